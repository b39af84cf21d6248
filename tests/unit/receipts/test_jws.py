"""A receipt is valid as it was signed, byte for byte, and in no other form."""

import json
import random
import subprocess
import sys
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from string import ascii_letters, digits
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from typer.testing import CliRunner, Result

from hasat.cli import app as command_line
from hasat.errors import SettingsError, UsageError
from hasat.receipts.jws import (
    InvalidReceiptError,
    key_id,
    parse_jwks,
    public_jwk,
    sign,
    verify,
)
from hasat.receipts.keys import known_keys, rotate_key, signing_key
from hasat.settings import Settings, load_settings

KEY = Ed25519PrivateKey.generate()
PUBLIC = KEY.public_key()
KEYS = {key_id(PUBLIC): PUBLIC}
CLAIMS: dict[str, Any] = {
    "iss": "hasat",
    "iat": 1_793_599_451,
    "jti": "5f0c6d3e-8f0e-4a55-9c39-0d6f2c7d1a10",
    "request": {"path": "/api/v1/einvoice/1234567890"},
    "response": {"title": "IŞIK A.Ş."},
    "version": {},
    "lists": [],
}
ALPHABET = f"{ascii_letters}{digits}-_"


def encoded(part: Any) -> str:
    return urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def test_another_implementation_accepts_it() -> None:
    jws = sign(KEY, CLAIMS, bytes(32))
    assert jwt.decode(jws, PUBLIC, algorithms=["EdDSA"], options={"verify_iat": False}) == CLAIMS
    [jwk] = jwt.PyJWKSet.from_dict({"keys": [public_jwk(PUBLIC)]}).keys
    assert jwk.key_id == verify(jws, KEYS).kid
    assert jwk.key.public_bytes_raw() == PUBLIC.public_bytes_raw()


def test_one_changed_byte_anywhere_is_refused() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    jws = sign(KEY, CLAIMS, bytes(32))
    assert verify(jws, KEYS).claims == CLAIMS
    for place, letter in enumerate(jws):
        others = set(ALPHABET) if place in (len(jws) - 1, jws.rindex(".") - 1) else set()
        others |= {dice.choice(ALPHABET), dice.choice(" .=\n\0é"), chr(ord(letter) ^ 1)}
        for other in others - {letter}:
            with pytest.raises(InvalidReceiptError):
                verify(jws[:place] + other + jws[place + 1 :], KEYS)
        with pytest.raises(InvalidReceiptError):
            verify(jws[:place] + jws[place + 1 :], KEYS)


@pytest.mark.parametrize("algorithm", ["none", "HS256", "ES256", None])
def test_a_receipt_cannot_choose_how_it_is_verified(algorithm: str | None) -> None:
    header = {"alg": algorithm, "typ": "receipt+jwt", "kid": key_id(PUBLIC), "prev": "A" * 43}
    public = PUBLIC.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for signature in ("", encoded("x"), urlsafe_b64encode(public[:32]).rstrip(b"=").decode()):
        with pytest.raises(InvalidReceiptError):
            verify(f"{encoded(header)}.{encoded(CLAIMS)}.{signature}", KEYS)


def test_the_key_of_another_is_refused_also_under_the_same_id() -> None:
    stranger = Ed25519PrivateKey.generate()
    jws = sign(stranger, CLAIMS, bytes(32))
    with pytest.raises(InvalidReceiptError, match="not among"):
        verify(jws, KEYS)
    with pytest.raises(InvalidReceiptError, match="does not match"):
        verify(jws, {key_id(stranger.public_key()): PUBLIC})


@pytest.mark.parametrize("missing", sorted(CLAIMS))
def test_something_else_that_the_key_signed_is_no_receipt(missing: str) -> None:
    claims = {name: value for name, value in CLAIMS.items() if name != missing}
    with pytest.raises(InvalidReceiptError):
        verify(sign(KEY, claims, bytes(32)), KEYS)
    with pytest.raises(InvalidReceiptError):
        verify(sign(KEY, {**CLAIMS, "iat": 10**30}, bytes(32)), KEYS)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"keys": [1]}', '{"keys": [{"kty": "OKP", "crv": "Ed25519"}]}', "\0"]
)
def test_a_broken_key_set_is_a_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="not a JSON Web Key Set"):
        parse_jwks(text)


def _settings(home: Path, **environ: str) -> Settings:
    return load_settings(environ={"HASAT_HOME": str(home), **environ})


_CREATE = """
import sys
from hasat.receipts.keys import signing_key
from hasat.settings import load_settings
settings = load_settings(environ={"HASAT_HOME": sys.argv[1]})
print("ready", flush=True)
sys.stdin.readline()
print(signing_key(settings).kid)
"""


def test_several_processes_create_one_private_key(tmp_path: Path) -> None:
    home = tmp_path / "home"
    command = [sys.executable, "-c", _CREATE, str(home)]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    kids = {process.communicate()[0].strip() for process in processes}
    assert kids == {signing_key(_settings(home)).kid}
    files = {(file.name, file.stat().st_mode & 0o777) for file in home.iterdir()}
    assert files == {("receipt-key.pem", 0o600)}


def test_a_replaced_key_still_verifies(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    assert known_keys(settings) == {}
    first = signing_key(settings)
    jws = sign(first.private, CLAIMS, bytes(32))
    for _ in range(3):
        old, new = rotate_key(settings)
        assert old.kid != new.kid == signing_key(settings).kid
    assert len(known_keys(settings)) == 4
    assert verify(jws, known_keys(settings)).kid == first.kid


def test_a_given_key_is_taken_in_the_usual_forms(tmp_path: Path) -> None:
    pem = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    seed = KEY.private_bytes_raw()
    forms = [pem, pem.replace("\n", "\\n"), b64encode(seed).decode()]
    forms += [urlsafe_b64encode(seed).rstrip(b"=").decode()]
    for form in forms:
        settings = _settings(tmp_path, HASAT_RECEIPTS_KEY=form)
        assert signing_key(settings).kid == key_id(PUBLIC)
        assert form.strip() in settings.secrets()
    for wrong in ("x", "A" * 42, pem.replace("MC4", "MC5")):
        with pytest.raises(SettingsError, match=r"receipts\.key"):
            signing_key(_settings(tmp_path, HASAT_RECEIPTS_KEY=wrong))
    assert list(tmp_path.iterdir()) == []


def _verify(home: Path, *words: str) -> Result:
    # No database is there: the address leads nowhere.
    environ = {"HASAT_HOME": str(home), "HASAT_DATABASE_URL": "postgresql://127.0.0.1:9/none"}
    return CliRunner().invoke(command_line, ["receipt", "verify", *words], env=environ)


def test_the_command_verifies_on_another_machine(tmp_path: Path) -> None:
    file, keys = tmp_path / "answer.jws", tmp_path / "jwks.json"
    jws = sign(KEY, CLAIMS, bytes(32))
    keys.write_text(json.dumps({"keys": [public_jwk(PUBLIC)]}))
    for text in (jws, f"{jws}\n", f"{jws}\r\n"):
        file.write_text(text, newline="")
        answer = _verify(tmp_path / "home", str(file), "--jwks", str(keys), "--json")
        assert answer.exit_code == 0, answer.output
        assert json.loads(answer.stdout)["claims"] == CLAIMS
    place = len(jws) // 2
    changed = "A" if jws[place] != "A" else "B"
    for text in (jws[:place] + changed + jws[place + 1 :], f" {jws}", f"{jws}\n\n", "é", ""):
        file.write_text(text)
        answer = _verify(tmp_path / "home", str(file), "--jwks", str(keys))
        assert isinstance(answer.exception, InvalidReceiptError), text
    assert InvalidReceiptError.exit_code == 1
    file.write_text(jws)
    answer = _verify(tmp_path / "home", str(file))
    assert isinstance(answer.exception, UsageError)
    assert "--jwks" in str(answer.exception)
