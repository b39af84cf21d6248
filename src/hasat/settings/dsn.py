"""Database addresses in the forms people have them, as one libpq URL."""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from pydantic import SecretStr

from hasat.messages import msg

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
# One of libpq's own keywords with its value: host=a,b target_session_attrs=read-write
_LIBPQ_PAIR = re.compile(r"([a-z_]+)\s*=\s*('(?:[^'\\]|\\.)*'|[^\s']\S*)\s*")
_LIBPQ_NAMES = {"dbname": "database"}
_PARTS = ("host", "port", "user", "password", "database")
_SSL_MODES = {"verifyca": "verify-ca", "verifyfull": "verify-full"}


def compose_url(parts: Mapping[str, str], parameters: Mapping[str, str] | None = None) -> str:
    """Return a libpq URL from host, port, user, password and database, each quoted.

    A host that starts with a slash is the folder of a socket.
    """
    host, port, extra = parts["host"], parts.get("port") or "5432", dict(parameters or {})
    if "," in host:
        # libpq tries several hosts in turn, each with a port of its own or all with the same.
        extra |= {"host": host, "port": port}
        address = ""
    elif host.startswith("/"):
        extra["host"], address = host, f":{port}"
    else:
        address = f"[{host}]:{port}" if ":" in host and host[0] != "[" else f"{host}:{port}"
    login = quote(parts.get("user") or "postgres", safe="")
    if password := parts.get("password"):
        login += f":{quote(password, safe='')}"
    database = quote(parts.get("database", ""), safe="")
    query = f"?{urlencode(extra, quote_via=quote)}" if extra else ""
    return f"postgresql://{login}@{address}/{database}{query}"


def database_url(value: Any) -> str:
    """Return a checked libpq URL from a URL or from ``Host=...;Username=...`` keywords."""
    text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
    if "://" not in text and "=" in text:
        text = _from_libpq_keywords(text) or _from_keywords(text)
    scheme, separator, rest = text.partition("://")
    # SQLAlchemy's scheme names its driver after a plus sign.
    scheme = scheme.partition("+")[0]
    if not separator or scheme not in ("postgresql", "postgres"):
        raise ValueError(msg("must look like postgresql://user:password@host:5432/database"))
    url = f"postgresql://{rest}"
    try:
        parts = urlsplit(url)
        # libpq allows several hosts, each with a port; urlsplit reads only one.
        usable = "," in parts.netloc or parts.port != 0
    except ValueError:
        usable = False
    if not usable or re.search(r"\s", url):
        raise ValueError(msg("is a database URL whose host or port cannot be read"))
    return url


def password_in(url: str) -> Iterator[str]:
    """Return the password of a database URL, as written and decoded."""
    login, at, _ = url.partition("://")[2].rpartition("@")
    _, colon, password = login.partition(":")
    if at and colon and password:
        yield password
        yield unquote(password)


def _from_libpq_keywords(text: str) -> str | None:
    """Return a URL from libpq's ``host=a,b dbname=hasat user=me``; None if it is not one."""
    found: dict[str, str] = {}
    end = 0
    while pair := _LIBPQ_PAIR.match(text.strip(), end):
        end = pair.end()
        value = pair[2]
        if value.startswith("'"):
            value = re.sub(r"\\(.)", r"\1", value[1:-1])
        found[_LIBPQ_NAMES.get(pair[1], pair[1])] = value
    if end < len(text.strip()) or ";" in text or not found.get("host"):
        return None
    parts = {name: found.pop(name) for name in _PARTS if name in found}
    return compose_url(parts, found)


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
        if name in _PARTS:
            parts[name] = value
        elif name and value:
            parameters[name] = value
    if end < len(text) or not parts.get("host"):
        raise ValueError(msg("is a connection string without a readable Host"))
    return compose_url(parts, parameters)
