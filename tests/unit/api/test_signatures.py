"""Signed requests: what the original service's clients send is accepted, and nothing else."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from hasat.api.app import create_app
from hasat.api.authentication import SignatureVerifier, SignedRequest
from hasat.api.problems import CredentialsMalformedError, SignatureWrongError, TimestampOutsideError
from hasat.errors import DatabaseError
from hasat.jobs import Catalogue
from hasat.settings import Settings, load_settings
from hasat.store import Store
from hasat.testing.http import app_client

NOW = 1_700_000_000
SECRET = "a secret of the client"


def hmac_sha256_by_hand(secret: bytes, text: bytes) -> str:
    """RFC 2104 in its own words, so that the test shares no code with what it tests."""
    block = (hashlib.sha256(secret).digest() if len(secret) > 64 else secret).ljust(64, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block) + text).digest()
    return hashlib.sha256(bytes(byte ^ 0x5C for byte in block) + inner).hexdigest()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(
        environ={
            "HASAT_HOME": str(tmp_path),
            "Authentication__Enabled": "true",
            "Authentication__Clients__0__AccessKey": "AK1",
            "Authentication__Clients__0__SecretKey": SECRET,
            "Authentication__Clients__0__Name": "accounting",
            "Authentication__Clients__1__AccessKey": "AK2",
            "Authentication__Clients__1__SecretKey": "x" * 100,
            "Authentication__Clients__1__PerMinute": "3",
        }
    )


@pytest.fixture
def signatures(settings: Settings) -> SignatureVerifier:
    return SignatureVerifier(settings, clock=lambda: datetime.fromtimestamp(NOW, UTC))


def signed(
    secret: str = SECRET,
    *,
    access_key: str = "AK1",
    path: bytes = b"/api/v1/einvoice/1234567890",
    query: bytes = b"",
    timestamp: str = str(NOW),
    signature: str | None = None,
) -> SignedRequest:
    target = path + b"?" + query if query else path
    text = b"GET\n" + target + b"\n" + timestamp.encode()
    signature = signature or hmac_sha256_by_hand(secret.encode(), text)
    return SignedRequest("GET", path, query, access_key, timestamp, signature)


def test_a_known_vector() -> None:
    # Computed with: printf 'GET\n/api/v1/status\n1700000000' | openssl dgst -sha256 -hmac secret
    text = SignedRequest("GET", b"/api/v1/status", b"", "AK1", str(NOW), "").signed_text()
    assert text == b"GET\n/api/v1/status\n1700000000"
    assert (
        hmac_sha256_by_hand(b"secret", text)
        == "d9447bd8bc6aa999364a891fc16a7cf2d3d3ef6c306dbcbb8173f70ce3fca793"
    )


@pytest.mark.parametrize(
    "query", [b"", b"search=%C4%B0stanbul&page=2", b"since=2026-01-01T00:00:00%2B03:00", b"a=?&b"]
)
def test_path_and_query_are_signed_as_sent(signatures: SignatureVerifier, query: bytes) -> None:
    caller = signatures.check(signed(query=query))
    assert (caller.name, sorted(caller.scopes)) == ("accounting", ["read"])


def test_a_long_secret_and_upper_case_hex_are_fine(signatures: SignatureVerifier) -> None:
    request = signed("x" * 100, access_key="AK2")
    upper = SignedRequest(
        "GET", request.path, b"", "AK2", request.timestamp, request.signature.upper()
    )
    assert signatures.check(upper).name == "AK2"


@pytest.mark.parametrize(
    "changed",
    [
        {"secret": "another secret"},
        {"access_key": "AK3"},
        {"access_key": "AK2"},
        {"access_key": ""},
        {"signature": "0" * 64},
    ],
)
def test_unknown_clients_and_wrong_signatures_get_the_same_error(
    signatures: SignatureVerifier, changed: dict[str, str]
) -> None:
    with pytest.raises(SignatureWrongError, match="unknown, or the signature does not match"):
        signatures.check(signed(**changed))  # type: ignore[arg-type]


def test_a_signature_fits_one_method_path_query_and_time_only(
    signatures: SignatureVerifier,
) -> None:
    good = signed(query=b"page=1")
    for other in (
        SignedRequest("POST", good.path, good.query, "AK1", good.timestamp, good.signature),
        SignedRequest("GET", b"/api/v1/status", good.query, "AK1", good.timestamp, good.signature),
        SignedRequest("GET", good.path, b"page=2", "AK1", good.timestamp, good.signature),
        SignedRequest("GET", good.path, good.query, "AK1", str(NOW + 1), good.signature),
    ):
        with pytest.raises(SignatureWrongError):
            signatures.check(other)


@pytest.mark.parametrize("seconds", [-300, 0, 300])
def test_clocks_may_differ_by_the_tolerance(signatures: SignatureVerifier, seconds: int) -> None:
    assert signatures.check(signed(timestamp=str(NOW + seconds))).name == "accounting"


@pytest.mark.parametrize("seconds", [-301, 301, 10_000_000])
def test_outside_of_the_tolerance_a_request_is_a_replay(
    signatures: SignatureVerifier, seconds: int
) -> None:
    with pytest.raises(TimestampOutsideError, match="1700000000"):
        signatures.check(signed(timestamp=str(NOW + seconds)))


@pytest.mark.parametrize(
    "timestamp", ["", "soon", "1700000000.0", "-1", " 1700000000", "9" * 13, "١٧"]
)
def test_a_timestamp_is_whole_seconds(signatures: SignatureVerifier, timestamp: str) -> None:
    with pytest.raises(CredentialsMalformedError, match="X-Timestamp"):
        signatures.check(signed(timestamp=timestamp))


@pytest.mark.parametrize("signature", ["abc", "g" * 64, "0" * 63 + " ", "00 " * 32])
def test_a_signature_is_64_hex_digits(signatures: SignatureVerifier, signature: str) -> None:
    with pytest.raises(CredentialsMalformedError, match="X-Signature"):
        signatures.check(signed(signature=signature))


@pytest.mark.anyio
async def test_over_http_the_target_is_taken_as_it_was_sent(
    settings: Settings, store_away: Store
) -> None:
    app = create_app(settings, store_away, Catalogue.of((), settings), ())
    timestamp = str(int(datetime.now(UTC).timestamp()))
    target = "/api/v1/no%20such?q=%C4%B0&r=a%2Fb"
    text = f"GET\n{target}\n{timestamp}".encode()
    headers = {
        "X-Access-Key": "AK1",
        "X-Timestamp": timestamp,
        "X-Signature": hmac_sha256_by_hand(SECRET.encode(), text),
    }
    async with app_client(app) as client:
        url = httpx2.URL(f"http://127.0.0.1{target}")
        # Past the gate, and nothing there: a refusal would have been 401.
        assert (await client.get(url, headers=headers)).status_code == 404
        wrong = await client.get("/api/v1/other", headers=headers)
        assert (wrong.status_code, wrong.json()["code"]) == (401, "signature-wrong")


@pytest.fixture
def store_away() -> Store:
    """Signatures need no database: this store has none."""

    class StoreAway(Store):
        def __init__(self) -> None:
            pass

        def connection(self) -> Any:
            raise DatabaseError("PostgreSQL cannot be reached.")

    return StoreAway()


@pytest.mark.anyio
async def test_a_client_has_its_own_limit_also_without_the_database(
    settings: Settings, store_away: Store
) -> None:
    app = create_app(settings, store_away, Catalogue.of((), settings), ())
    timestamp = str(int(datetime.now(UTC).timestamp()))
    statuses = {}
    for access_key, secret in (("AK1", SECRET), ("AK2", "x" * 100)):
        text = f"GET\n/api/v1/nothing\n{timestamp}".encode()
        headers = {
            "X-Access-Key": access_key,
            "X-Timestamp": timestamp,
            "X-Signature": hmac_sha256_by_hand(secret.encode(), text),
        }
        async with app_client(app) as client:
            answers = [await client.get("/api/v1/nothing", headers=headers) for _ in range(4)]
        limit = answers[-1].headers["ratelimit-limit"]
        statuses[access_key, limit] = [answer.status_code for answer in answers]
    assert statuses == {("AK1", "600"): [404] * 4, ("AK2", "3"): [404, 404, 404, 429]}
