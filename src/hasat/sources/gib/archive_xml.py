"""The XML of an archive, in the form of the original service."""

import re
from collections.abc import Mapping
from typing import Any, Final
from xml.sax.saxutils import quoteattr

from hasat.clock import local_time, system_clock
from hasat.feed.dataset import XmlForm
from hasat.sources.gib.merging import DOCUMENT_OF

_FACTS = ("dataset", "cursor", "epoch", "head", "version", "digest", "committedAt")
# The lists are XML, so nothing that XML forbids is in them; if ever, it becomes U+FFFD here.
# A carriage return would be read back as a line feed.
_ESCAPED: Final = re.compile("[&<>\r\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}


# Fields of a body and of an alias, and the elements that they are, in the original's order.
_FIELDS: Final = {
    "identifier": "Identifier",
    "title": "Title",
    "accountType": "AccountType",
    "type": "Type",
    "firstCreationTime": "FirstCreationTime",
}
_ALIAS_FIELDS: Final = {"alias": "Name", "type": "Type", "creationTime": "CreationTime"}
_ALIAS: Final = f"<Alias>{''.join(f'<{tag}>%s</{tag}>' for tag in _ALIAS_FIELDS.values())}</Alias>"
_USER: Final = (
    f"<User>{''.join(f'<{tag}>%s</{tag}>' for tag in _FIELDS.values())}<Aliases>%s</Aliases></User>"
)


def _opening(facts: Mapping[str, str]) -> str:
    attributes = {
        "documentType": DOCUMENT_OF[facts["dataset"]],
        "generatedAt": local_time(system_clock()),
        "count": facts["count"],
        **{name: facts[name] for name in _FACTS},
    }
    told = "".join(f" {name}={quoteattr(value)}" for name, value in attributes.items())
    return f'<?xml version="1.0" encoding="utf-8"?><GibUserList{told}>'


def _record(body: Any) -> str:
    """One User; a field that is null has no element."""
    aliases = body["aliases"]
    fields = [body[name] for name in _FIELDS]
    texts = [*fields, *[alias[name] for alias in aliases for name in _ALIAS_FIELDS]]
    if None in texts or not _is_plain(" ".join(texts)):
        return _careful(body)
    entries = "".join(
        [_ALIAS % (one["alias"], one["type"], one["creationTime"]) for one in aliases]
    )
    return _USER % (*fields, entries)


def _is_plain(text: str) -> bool:
    """Whether nothing needs escaping; quicker to tell than to try."""
    return text.isprintable() and not ("&" in text or "<" in text or ">" in text)


def _careful(body: Any) -> str:
    fields = "".join([_element(tag, body[name]) for name, tag in _FIELDS.items()])
    aliases = "".join(
        [
            "<Alias>"
            + "".join([_element(tag, one[name]) for name, tag in _ALIAS_FIELDS.items()])
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


XML = XmlForm(_opening, _record, "</GibUserList>")
