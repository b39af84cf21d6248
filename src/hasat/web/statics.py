"""Files that pages load: style, scripts, pictures. All from here, named by their content."""

import hashlib
import mimetypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response

from hasat.errors import NotFoundError
from hasat.messages import msg

_FOR_EVER = "public, max-age=31536000, immutable"
_SHORTLY = "public, max-age=300"


@dataclass(frozen=True)
class _File:
    content: bytes
    kind: str
    version: str


class Statics:
    """The folder static, read once; an address holds its file's digest, so it can be kept."""

    def __init__(self) -> None:
        self._files: Mapping[str, _File] = dict(_walk(files("hasat.web") / "static", ""))

    def has(self, name: str) -> bool:
        """Whether there is such a file: islands are missing where they could not be built."""
        return name in self._files

    def address(self, name: str) -> str:
        return f"/static/{name}?v={self._files[name].version}"

    async def answer(self, request: Request) -> Response:
        """The file that the address names."""
        path = request.url.path
        # What browsers ask for beside a page of JSON.
        name = "favicon.svg" if path.startswith("/favicon.") else path.removeprefix("/static/")
        file = self._files.get(name)
        if file is None:
            raise NotFoundError(msg("There is no file {path}.", path=path))
        kept = _FOR_EVER if request.query_params.get("v") == file.version else _SHORTLY
        return Response(file.content, media_type=file.kind, headers={"Cache-Control": kept})


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, _File]]:
    for one in folder.iterdir():
        name = f"{prefix}{one.name}"
        if one.is_dir():
            yield from _walk(one, f"{name}/")
        else:
            content = one.read_bytes()
            kind = mimetypes.guess_type(one.name)[0] or "application/octet-stream"
            yield name, _File(content, kind, hashlib.sha256(content).hexdigest()[:12])
