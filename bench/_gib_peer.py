"""The original's pipeline: parse every User, COPY all of them, find the changes in SQL."""

import json
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

from psycopg import AsyncConnection

DOCUMENTS = {"einvoice": "Invoice", "edespatch": "DespatchAdvice"}
_BLOCK = 1 << 20

_TEMPORARY = """
CREATE TEMP TABLE peer_temp (identifier text, title text, account_type text, type text,
    first_creation_time text, document text, aliases jsonb) ON COMMIT DROP
"""
_TABLE = """
CREATE TABLE IF NOT EXISTS peer_{name} (identifier text PRIMARY KEY, title text, account_type text,
    type text, first_creation_time text, aliases_json jsonb, content_hash text)
"""
_MERGED = """
CREATE TEMP TABLE merged_{name} ON COMMIT DROP AS
SELECT identifier, max(title) AS title, max(account_type) AS account_type, max(type) AS type,
       max(first_creation_time) AS first_creation_time,
       jsonb_agg(alias ORDER BY alias) AS aliases_json,
       md5(concat_ws('|', max(title), max(account_type), max(type), max(first_creation_time),
                     jsonb_agg(alias ORDER BY alias)::text)) AS content_hash
  FROM (SELECT *, jsonb_array_elements(aliases) AS alias
          FROM peer_temp WHERE document = '{document}') AS one
 GROUP BY identifier
"""
_CHANGES = """
INSERT INTO peer_changelog
SELECT '{name}', coalesce(m.identifier, t.identifier), m.aliases_json
  FROM merged_{name} AS m FULL JOIN peer_{name} AS t USING (identifier)
 WHERE m.content_hash IS DISTINCT FROM t.content_hash
"""
_REMOVE = """
DELETE FROM peer_{name} AS t
 WHERE NOT EXISTS (SELECT FROM merged_{name} AS m WHERE m.identifier = t.identifier)
"""
_UPSERT = """
INSERT INTO peer_{name} AS t SELECT * FROM merged_{name}
ON CONFLICT (identifier) DO UPDATE
   SET title = excluded.title, account_type = excluded.account_type, type = excluded.type,
       first_creation_time = excluded.first_creation_time, aliases_json = excluded.aliases_json,
       content_hash = excluded.content_hash
 WHERE t.content_hash <> excluded.content_hash
"""


async def seed_pipeline(conn: AsyncConnection[Any], paths: Sequence[Path]) -> None:
    """Run the pipeline once, into separate tables, and commit."""
    await conn.execute(
        "CREATE TABLE IF NOT EXISTS peer_changelog (dataset text, identifier text, aliases jsonb)"
    )
    await conn.execute(_TEMPORARY)
    async with conn.cursor() as cursor, cursor.copy("COPY peer_temp FROM STDIN") as copy:
        for path, box in zip(paths, ("PK", "GB"), strict=True):
            for row in _rows(path, box):
                await copy.write_row(row)
    await conn.execute("CREATE INDEX ON peer_temp (document, identifier)")
    for name, document in DOCUMENTS.items():
        for step in (_TABLE, _MERGED, _CHANGES, _REMOVE, _UPSERT):
            await conn.execute(step.format(name=name, document=document))
    await conn.commit()


def _rows(path: Path, box: str) -> Iterator[tuple[str | None, ...]]:
    parser: ElementTree.XMLPullParser[ElementTree.Element] = ElementTree.XMLPullParser(["end"])
    with zipfile.ZipFile(path) as archive, archive.open(archive.infolist()[0]) as stream:
        while block := stream.read(_BLOCK):
            parser.feed(block)
            for event in parser.read_events():
                element = cast(tuple[str, ElementTree.Element], event)[1]
                if element.tag == "User":
                    yield from _documents(element, box)
                    element.clear()


def _documents(user: ElementTree.Element, box: str) -> Iterator[tuple[str | None, ...]]:
    fields = [
        user.findtext(name)
        for name in ("Identifier", "Title", "AccountType", "Type", "FirstCreationTime")
    ]
    for document in user.iterfind("Documents/Document"):
        aliases = [
            {
                "alias": alias.findtext("Name"),
                "type": box,
                "creationTime": alias.findtext("CreationTime"),
            }
            for alias in document.iterfind("Alias")
            if alias.find("DeletionTime") is None
        ]
        if aliases:
            yield (*fields, document.get("type"), json.dumps(aliases, ensure_ascii=False))
