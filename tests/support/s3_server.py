"""An S3 store on loopback, in a process of its own: what Hasat needs of the protocol, in memory.

    python s3_server.py BUCKET ACCESS_KEY SECRET_KEY

Prints its port. Checks the signature of every request (version 4), as a real store does; every
fifth upload of a part is answered with 503 once, as real stores do on bad days.
"""

import hashlib
import hmac
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET, ACCESS, SECRET = (*sys.argv[1:], "", "", "")[:3]
OBJECTS: dict[str, bytes] = {}
UPLOADS: dict[str, dict[int, bytes]] = {}
NUMBERS = count(1)
REFUSED: set[tuple[str, str]] = set()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        return

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        if not self._is_signed(url.path, query, body):
            return self._answer(403, _error("SignatureDoesNotMatch"))
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        if bucket != BUCKET:
            return self._answer(404, _error("NoSuchBucket"))
        getattr(self, f"_{self.command.lower()}")(key, query, body)
        return None

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - the library's names

    def _is_signed(self, path: str, query: dict[str, str], body: bytes) -> bool:
        found = re.match(
            "AWS4-HMAC-SHA256 Credential=([^/]+)/([^,]+), ?SignedHeaders=([^,]+), ?Signature=(.+)",
            self.headers.get("Authorization", ""),
        )
        if found is None:
            return False
        access, scope, names, signature = found.groups()
        sent = self.headers.get("x-amz-content-sha256", "")
        if sent not in (hashlib.sha256(body).hexdigest(), "UNSIGNED-PAYLOAD"):
            return False
        lines = "".join(f"{n}:{(self.headers[n] or '').strip()}\n" for n in names.split(";"))
        asked = "&".join(
            f"{quote(k, safe='-_.~')}={quote(v, safe='-_.~')}" for k, v in sorted(query.items())
        )
        request = "\n".join([self.command, path, asked, lines, names, sent])
        digest = hashlib.sha256(request.encode()).hexdigest()
        text = "\n".join(["AWS4-HMAC-SHA256", self.headers["x-amz-date"], scope, digest])
        secret = f"AWS4{SECRET}".encode()
        for part in scope.split("/"):
            secret = hmac.digest(secret, part.encode(), "sha256")
        expected = hmac.new(secret, text.encode(), "sha256").hexdigest()
        return access == ACCESS and hmac.compare_digest(signature, expected)

    def _put(self, key: str, query: dict[str, str], body: bytes) -> None:
        if "partNumber" in query:
            part = (query["uploadId"], query["partNumber"])
            if int(query["partNumber"]) % 5 == 2 and part not in REFUSED:
                REFUSED.add(part)
                return self._answer(503, _error("SlowDown"))
            UPLOADS[query["uploadId"]][int(query["partNumber"])] = body
        else:
            OBJECTS[key] = body
        return self._answer(200, headers={"ETag": _etag(body)})

    def _post(self, key: str, query: dict[str, str], body: bytes) -> None:
        if "uploads" in query:
            upload = str(next(NUMBERS))
            UPLOADS[upload] = {}
            content = f"<UploadId>{upload}</UploadId><Bucket>{BUCKET}</Bucket><Key>{key}</Key>"
            return self._xml("InitiateMultipartUploadResult", content)
        if "uploadId" in query:
            parts = UPLOADS.pop(query["uploadId"])
            numbers = [int(number) for number in re.findall(rb"<PartNumber>(\d+)<", body)]
            if sorted(parts) != numbers:
                return self._answer(400, _error("InvalidPart"))
            OBJECTS[key] = b"".join(parts[number] for number in numbers)
            return self._xml(
                "CompleteMultipartUploadResult", f"<ETag>{escape(_etag(OBJECTS[key]))}</ETag>"
            )
        names = re.findall(r"<Key>([^<]+)</Key>", body.decode())
        for name in names:
            OBJECTS.pop(name, None)
        content = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in names)
        return self._xml("DeleteResult", content)

    def _delete(self, key: str, _query: dict[str, str], _body: bytes) -> None:
        OBJECTS.pop(key, None)
        self._answer(204)

    def _get(self, key: str, query: dict[str, str], _body: bytes) -> None:
        if not key:
            found = "".join(
                f"<Contents><Key>{escape(name)}</Key><Size>{len(data)}</Size>"
                f"<LastModified>2026-01-01T00:00:00Z</LastModified><ETag>{escape(_etag(data))}</ETag>"
                "</Contents>"
                for name, data in sorted(OBJECTS.items())
                if name.startswith(query.get("prefix", ""))
            )
            return self._xml("ListBucketResult", f"<IsTruncated>false</IsTruncated>{found}")
        if key not in OBJECTS:
            return self._answer(404, _error("NoSuchKey"))
        data = OBJECTS[key]
        headers = {"ETag": _etag(data), "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            start, stop = int(wanted[1]), min(int(wanted[2]) + 1, len(data))
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
            return self._answer(206, data[start:stop], headers)
        return self._answer(200, data, headers)

    _head = _get

    def _xml(self, name: str, inside: str) -> None:
        self._answer(200, f"<{name}>{inside}</{name}>".encode(), {"Content-Type": "text/xml"})

    def _answer(
        self, status: int, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _etag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
