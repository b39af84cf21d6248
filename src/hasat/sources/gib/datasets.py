"""The two datasets of this source, and their forms in changes, Parquet and XML archives."""

import re
from collections.abc import Mapping
from typing import Any, Final
from xml.sax.saxutils import quoteattr

from psycopg import AsyncConnection

from hasat.clock import ISTANBUL, local_time, system_clock
from hasat.feed.columns import Column
from hasat.feed.dataset import Dataset, XmlForm
from hasat.sources.gib.identifiers import check_identifier
from hasat.sources.gib.lists.records import DOCUMENT_OF

SOURCE = "gib"

_CHANGE_FIELDS = ("title", "accountType", "type", "firstCreationTime", "aliases")

_XML_ATTRIBUTES = ("dataset", "cursor", "epoch", "head", "version", "digest", "committedAt")
# Fields of a body and of an alias with their elements, in the order of the original service.
_XML_FIELDS: Final = {
    "identifier": "Identifier",
    "title": "Title",
    "accountType": "AccountType",
    "type": "Type",
    "firstCreationTime": "FirstCreationTime",
}
_XML_ALIAS_FIELDS: Final = {"alias": "Name", "type": "Type", "creationTime": "CreationTime"}
# The lists are XML and contain nothing that XML forbids; anything that did becomes U+FFFD. A
# carriage return is escaped because a parser would read it back as a line feed.
_ESCAPED: Final = re.compile("[&<>\r\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}


def _format_of(tags: Mapping[str, str]) -> str:
    return "".join(f"<{tag}>%s</{tag}>" for tag in tags.values())


_ALIAS: Final = f"<Alias>{_format_of(_XML_ALIAS_FIELDS)}</Alias>"
_USER: Final = f"<User>{_format_of(_XML_FIELDS)}<Aliases>%s</Aliases></User>"


def _xml_opening(facts: Mapping[str, str]) -> str:
    attributes = {
        "documentType": DOCUMENT_OF[facts["dataset"]],
        "generatedAt": local_time(system_clock()),
        "count": facts["count"],
        **{name: facts[name] for name in _XML_ATTRIBUTES},
    }
    text = "".join(f" {name}={quoteattr(value)}" for name, value in attributes.items())
    return f'<?xml version="1.0" encoding="utf-8"?><GibUserList{text}>'


def _xml_user(body: Any) -> str:
    """Return a taxpayer as a User element; a field that is null has no element."""
    aliases = body["aliases"]
    fields = [body[name] for name in _XML_FIELDS]
    texts = [*fields, *[alias[name] for alias in aliases for name in _XML_ALIAS_FIELDS]]
    if None in texts or not _is_plain(" ".join(texts)):
        return _escaped_user(body)
    entries = "".join(
        [_ALIAS % (one["alias"], one["type"], one["creationTime"]) for one in aliases]
    )
    return _USER % (*fields, entries)


def _is_plain(text: str) -> bool:
    """Return whether nothing needs escaping; most records are spared the slow path by this."""
    return text.isprintable() and not ("&" in text or "<" in text or ">" in text)


def _escaped_user(body: Any) -> str:
    fields = "".join([_element(tag, body[name]) for name, tag in _XML_FIELDS.items()])
    aliases = "".join(
        [
            "<Alias>"
            + "".join([_element(tag, one[name]) for name, tag in _XML_ALIAS_FIELDS.items()])
            + "</Alias>"
            for one in body["aliases"]
        ]
    )
    return f"<User>{fields}<Aliases>{aliases}</Aliases></User>"


def _element(name: str, text: str | None) -> str:
    if text is None:
        return ""
    return f"<{name}>{_ESCAPED.sub(_escape, text)}</{name}>"


def _escape(found: re.Match[str]) -> str:
    return _ESCAPES.get(found[0], "\ufffd")


XML = XmlForm(_xml_opening, _xml_user, "</GibUserList>")


def change_fields(identifier: str, body: Any) -> dict[str, Any]:
    """Return a taxpayer in the original's form of a change; all fields are null if removed."""
    return {
        "identifier": identifier,
        **{name: None if body is None else body[name] for name in _CHANGE_FIELDS},
    }


def parquet_schema() -> Any:
    """Return the Parquet columns; times stay text, because not every one can be parsed."""
    import pyarrow as pa

    text = pa.string()
    alias = pa.struct([("alias", text), ("type", text), ("creationTime", text)])
    return pa.schema([*((name, text) for name in _XML_FIELDS), ("aliases", pa.list_(alias))])


async def list_hashes(conn: AsyncConnection[Any]) -> Mapping[str, bytes]:
    """Return the SHA-256 of the lists that both mirrors equal, by mailbox."""
    cursor = await conn.execute("SELECT name, sha256 FROM gib.list ORDER BY name")
    return dict(await cursor.fetchall())


async def forget_lists(conn: AsyncConnection[Any]) -> None:
    """Forget the last lists: the next sync reads both completely."""
    await conn.execute("DELETE FROM gib.list")


# The identifier is the key.
COLUMNS = (
    Column("title", summary="Title of the taxpayer"),
    Column("type", summary="Type as published"),
    Column("account_type", path="accountType", summary="Account type as published"),
    Column(
        "first_creation_time",
        "timestamp",
        "firstCreationTime",
        summary="First registration",
        zone=ISTANBUL.key,
    ),
)


def _title(body: Mapping[str, Any]) -> str:
    return str(body["title"])


def _taxpayers(name: str, summary: str) -> Dataset:
    return Dataset(
        name,
        SOURCE,
        summary,
        change_fields,
        flat=True,
        noun="users",
        xml=XML,
        columns=COLUMNS,
        title=_title,
        # The search leaves out the numbers of persons where the operator or the caller must not see
        # them all; a list by title would not.
        listed=False,
        parquet_schema=parquet_schema,
        lists=list_hashes,
        forget_input=forget_lists,
        check_key=check_identifier,
    )


EINVOICE = _taxpayers("einvoice", "e-Fatura taxpayers (Document type Invoice)")
EDESPATCH = _taxpayers("edespatch", "e-İrsaliye taxpayers (Document type DespatchAdvice)")
DATASETS = (EINVOICE, EDESPATCH)
