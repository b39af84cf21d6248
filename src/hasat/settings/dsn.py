"""Database addresses in the forms people have them, as one libpq URL."""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from pydantic import SecretStr

_PAIR = re.compile(
    r"""\s*([^=;]+?)\s*=\s*("(?:[^"]|"")*"|'(?:[^']|'')*'|[^;]*?)\s*(?:;|$)""", re.VERBOSE
)

# Npgsql's keywords, without spaces and lower-cased -> our part or libpq's parameter.
_KEYWORDS = {
    "host": "host",
    "server": "host",
    "port": "port",
    "database": "database",
    "db": "database",
    "username": "user",
    "userid": "user",
    "user": "user",
    "uid": "user",
    "password": "password",
    "pwd": "password",
    "psw": "password",
    "sslmode": "sslmode",
    "rootcertificate": "sslrootcert",
    "timeout": "connect_timeout",
    "applicationname": "application_name",
}
_SSL_MODES = {"verifyca": "verify-ca", "verifyfull": "verify-full"}


def compose_url(parts: Mapping[str, str], parameters: Mapping[str, str] | None = None) -> str:
    """A libpq URL from host, port, user, password and database, each quoted.

    A host that starts with a slash is the folder of a socket.
    """
    host, extra = parts["host"], dict(parameters or {})
    if host.startswith("/"):
        extra["host"], host = host, ""
    elif ":" in host and not host.startswith("["):
        host = f"[{host}]"
    login = quote(parts.get("user") or "postgres", safe="")
    if password := parts.get("password"):
        login += f":{quote(password, safe='')}"
    database = quote(parts.get("database", ""), safe="")
    query = f"?{urlencode(extra)}" if extra else ""
    return f"postgresql://{login}@{host}:{parts.get('port') or 5432}/{database}{query}"


def database_url(value: Any) -> str:
    """A checked libpq URL from a URL or from ``Host=...;Username=...`` keywords."""
    text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
    if "://" not in text and "=" in text:
        text = _from_keywords(text)
    scheme, separator, rest = text.partition("://")
    # SQLAlchemy's scheme names its driver after a plus sign.
    scheme = scheme.partition("+")[0]
    if not separator or scheme not in ("postgresql", "postgres"):
        raise ValueError("must look like postgresql://user:password@host:5432/database")
    url = f"postgresql://{rest}"
    try:
        parts = urlsplit(url)
        # libpq allows several hosts, each with a port; urlsplit reads only one.
        usable = "," in parts.netloc or parts.port != 0
    except ValueError:
        usable = False
    if not usable or re.search(r"\s", url):
        raise ValueError("is a database URL whose host or port cannot be read")
    return url


def password_in(url: str) -> Iterator[str]:
    """The password of a database URL, as written and as meant."""
    login, at, _ = url.partition("://")[2].rpartition("@")
    _, colon, password = login.partition(":")
    if at and colon and password:
        yield password
        yield unquote(password)


def _from_keywords(text: str) -> str:
    parts: dict[str, str] = {}
    parameters: dict[str, str] = {}
    end = 0
    for pair in _PAIR.finditer(text):
        if pair.start() != end:
            break
        end = pair.end()
        keyword = re.sub(r"\s", "", pair[1]).lower()
        value = pair[2]
        if value[:1] in ("'", '"'):
            value = value[1:-1].replace(value[0] * 2, value[0])
        name = _KEYWORDS.get(keyword)
        if name == "sslmode":
            value = _SSL_MODES.get(value.lower(), value.lower())
        if name in ("host", "port", "user", "password", "database"):
            parts[name] = value
        elif name and value:
            parameters[name] = value
    if end < len(text) or not parts.get("host"):
        raise ValueError("is a connection string without a readable Host")
    return compose_url(parts, parameters)
