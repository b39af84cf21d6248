"""The key that signs receipts: given as a setting, or a file in HASAT_HOME created on first use.

Each home has a key of its own, and the database has the public keys of all, so that several
machines share receipts without sharing a private key. Public keys that this home has replaced are
also in `receipt-keys.json`, so that its receipts can be verified without the database.
"""

import json
from base64 import b64decode
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from hasat.errors import SettingsError, UsageError
from hasat.messages import msg
from hasat.receipts.jws import PublicKeys, key_id, parse_jwks, public_jwk
from hasat.settings import Settings
from hasat.store.embedded.layout import replace_file
from hasat.store.home import create_once

_FILE = "receipt-key.pem"
_PUBLIC_FILE = "receipt-keys.json"
_SEED_SIZE = 32


@dataclass(frozen=True)
class SigningKey:
    """A private key, with the id and the bytes of its public key."""

    private: Ed25519PrivateKey
    kid: str
    public: bytes

    @classmethod
    def of(cls, private: Ed25519PrivateKey) -> "SigningKey":
        public = private.public_key()
        return cls(private, key_id(public), public.public_bytes_raw())


def signing_key(settings: Settings) -> SigningKey:
    """Return the key of this installation; create it in HASAT_HOME on first use."""
    if settings.receipts.key is not None:
        return _parse_key(settings.receipts.key.get_secret_value(), "receipts.key")
    file = settings.home / _FILE
    text = create_once(file, _new_key)
    return _parse_key(text, str(file))


def known_keys(settings: Settings) -> PublicKeys:
    """Return the public keys of this home; none are created."""
    found = dict(_read_public(settings.home / _PUBLIC_FILE))
    if settings.receipts.key is not None or (settings.home / _FILE).exists():
        key = signing_key(settings)
        found[key.kid] = key.private.public_key()
    return found


def rotate_key(settings: Settings) -> tuple[SigningKey, SigningKey]:
    """Replace the key of this home by a new one, and return both; the old one only verifies."""
    if settings.receipts.key is not None:
        raise UsageError(
            msg("The key is given by the setting receipts.key."),
            remedy=msg("Change the setting; old public keys stay listed."),
        )
    home, old = settings.home, signing_key(settings)
    listed = {"keys": [public_jwk(key) for key in known_keys(settings).values()]}
    # The old public key first: a receipt is never without the key that verifies it.
    replace_file(home / _PUBLIC_FILE, json.dumps(listed, indent=1), mode=0o600)
    replace_file(home / _FILE, _new_key(), mode=0o600)
    return old, signing_key(settings)


def _new_key() -> str:
    key = Ed25519PrivateKey.generate()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@lru_cache(maxsize=8)
def _parse_key(text: str, origin: str) -> SigningKey:
    """Parse a private key: PEM, or its 32 bytes in base64."""
    try:
        if "-----BEGIN" in text:
            # An environment variable or a YAML file may have the line breaks escaped.
            key = load_pem_private_key(text.replace("\\n", "\n").encode(), None)
        else:
            seed = b64decode(text.strip() + "=" * (-len(text.strip()) % 4), altchars=b"-_")
            if len(seed) != _SEED_SIZE:
                raise ValueError
            key = Ed25519PrivateKey.from_private_bytes(seed)
        if not isinstance(key, Ed25519PrivateKey):
            raise TypeError
    except (ValueError, TypeError) as error:
        raise SettingsError(
            msg("{origin} is not an Ed25519 private key.", origin=origin),
            remedy=msg("Use PEM (openssl genpkey -algorithm ed25519), or 32 bytes in base64."),
        ) from error
    return SigningKey.of(key)


def _read_public(file: Path) -> PublicKeys:
    try:
        return parse_jwks(file.read_bytes())
    except FileNotFoundError:
        return {}
