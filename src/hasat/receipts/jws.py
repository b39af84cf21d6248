"""Sign and verify receipts: compact JWS (RFC 7515) with Ed25519 (RFC 8037).

Verification needs the public keys only: no database, no network, no server.
"""

import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from hasat.errors import HasatError, UsageError
from hasat.messages import msg, template

ALGORITHM = "EdDSA"
TYPE = "receipt+jwt"
HASH_SIZE = 32
_MAX_YEAR = 9000
CLAIMS = frozenset({"iss", "iat", "jti", "request", "response", "version", "lists"})

PublicKeys = Mapping[str, Ed25519PublicKey]
"""Public keys by key id."""

_encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class InvalidReceiptError(HasatError):
    """The text is not a receipt that one of the keys signed."""

    status = 422
    code = "invalid-receipt"
    title = template("Not a valid receipt")


@dataclass(frozen=True)
class Receipt:
    """A receipt whose signature is valid, and the hash of the receipt before it."""

    kid: str
    previous: bytes
    claims: Mapping[str, Any]

    @property
    def issued_at(self) -> datetime:
        return datetime.fromtimestamp(self.claims["iat"], UTC)


def key_id(key: Ed25519PublicKey) -> str:
    """Return the id of a key: its thumbprint (RFC 7638), so that no two keys share one."""
    return _to_text(hashlib.sha256(_encode_json(_members(key)).encode()).digest())


def public_jwk(key: Ed25519PublicKey) -> dict[str, str]:
    """Return a public key as a JSON Web Key."""
    return {**_members(key), "kid": key_id(key), "use": "sig", "alg": ALGORITHM}


def _members(key: Ed25519PublicKey) -> dict[str, str]:
    return {"crv": "Ed25519", "kty": "OKP", "x": _to_text(key.public_bytes_raw())}


def parse_jwks(text: str | bytes) -> PublicKeys:
    """Return the Ed25519 keys of a JSON Web Key Set; keys of other kinds are passed over."""
    try:
        entries = json.loads(text)["keys"]
        found = {}
        for entry in entries:
            if (entry.get("kty"), entry.get("crv")) == ("OKP", "Ed25519"):
                key = Ed25519PublicKey.from_public_bytes(_to_bytes(entry["x"]))
                found[str(entry.get("kid", key_id(key)))] = key
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            msg("The keys are not a JSON Web Key Set."),
            remedy=msg("Download them from /.well-known/jwks.json of the server."),
        ) from error
    return found


def sign(key: Ed25519PrivateKey, claims: Mapping[str, Any], previous: bytes) -> str:
    """Return the receipt with these claims; its signed header names the receipt before it."""
    header = {
        "alg": ALGORITHM,
        "kid": key_id(key.public_key()),
        "typ": TYPE,
        "prev": _to_text(previous),
    }
    signed = ".".join(_to_text(_encode_json(part).encode()) for part in (header, claims))
    return f"{signed}.{_to_text(key.sign(signed.encode()))}"


def receipt_hash(jws: str) -> bytes:
    """Return the hash by which the next receipt names this one."""
    return hashlib.sha256(jws.encode()).digest()


def verify(jws: str, keys: PublicKeys) -> Receipt:
    """Return the receipt; raise InvalidReceiptError with the reason if it is not valid."""
    parts = jws.split(".")
    if len(parts) != 3:
        raise InvalidReceiptError(
            msg("It is not a compact JWS: {count} parts instead of 3.", count=len(parts))
        )
    header, claims, signature = (_decode_part(part) for part in parts)
    # The header is not trusted yet: it only says which key to verify with.
    stated = _object(header, "header")
    if stated.get("alg") != ALGORITHM or stated.get("typ") != TYPE or "crit" in stated:
        raise InvalidReceiptError(msg("Its header is not that of a receipt."))
    kid = stated.get("kid")
    if not isinstance(kid, str) or kid not in keys:
        raise InvalidReceiptError(
            msg("It was signed with a key that is not among the given ones: {kid}.", kid=kid),
            remedy=msg("Download the keys from /.well-known/jwks.json of the server."),
        )
    try:
        keys[kid].verify(signature, f"{parts[0]}.{parts[1]}".encode())
    except InvalidSignature:
        raise InvalidReceiptError(
            msg("The signature does not match: the receipt was changed, or it is forged.")
        ) from None
    found = _object(claims, "payload")
    try:
        previous = _to_bytes(stated["prev"])
        receipt = Receipt(kid, previous, found)
        complete = found.keys() >= CLAIMS and isinstance(found["request"], dict)
        if not complete or len(previous) != HASH_SIZE or receipt.issued_at.year > _MAX_YEAR:
            raise ValueError
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError, OSError):
        raise InvalidReceiptError(msg("It is signed, but it is not a receipt.")) from None
    return receipt


def read_claims(jws: str) -> Mapping[str, Any]:
    """Return the claims of a stored receipt without verifying it."""
    return _object(_decode_part(jws.split(".")[1]), "payload")


def _decode_part(text: str) -> bytes:
    try:
        return _to_bytes(text)
    except (ValueError, AttributeError):
        raise InvalidReceiptError(
            msg("It is not a compact JWS: a part is not base64url.")
        ) from None


def _object(data: bytes, part: str) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidReceiptError(msg("Its {part} is not a JSON object.", part=part))
    return found


def _to_text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _to_bytes(text: str) -> bytes:
    """Decode base64url; the bits that a decoder would ignore must be zero, as an encoder writes."""
    data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if _to_text(data) != text:
        raise ValueError(text)
    return data
