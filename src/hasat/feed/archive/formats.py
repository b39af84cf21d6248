"""The file formats of an archive, each written record by record in bounded memory."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
from isal import isal_zlib
from pyarrow.json import ParseOptions, ReadOptions, read_json
from pyarrow.parquet import ParquetWriter

from hasat.feed.archive.cumulative import NetChanges
from hasat.feed.archive.manifest import Format, Manifest
from hasat.feed.archive.snapshot import Batch, Column, FormatWriter
from hasat.feed.dataset import Dataset, XmlForm

# As small as zlib's level 4 in an eighth of its time; `bench/archive.py` measures it.
_LEVEL = isal_zlib.ISAL_DEFAULT_COMPRESSION
_GZIP = 16 + isal_zlib.MAX_WBITS
_GROUP_BYTES = 16 << 20
_BODY = b',"body":'
_ARROW = {
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "date": pa.date32(),
    "timestamp with time zone": pa.timestamp("us", tz="UTC"),
    "timestamp without time zone": pa.timestamp("us"),
}

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class _Gzip:
    """A gzip file without name and time, so that equal content gives equal bytes."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._zip = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _GZIP)

    def write(self, data: bytes) -> None:
        self._file.write(self._zip.compress(data))

    def close(self) -> None:
        with self._file:
            self._file.write(self._zip.flush())


class Ndjson:
    """NDJSON: one line with the manifest, then one line per record."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self._file = _Gzip(path)
        self._file.write(_encode({"hasat": "archive", **manifest.as_dict()}).encode() + b"\n")

    def add(self, batch: Batch) -> None:
        self._file.write(batch.lines)

    def close(self) -> None:
        self._file.close()


class Xml:
    """XML in the form that the dataset declares."""

    def __init__(self, path: Path, manifest: Manifest, form: XmlForm) -> None:
        self._file = _Gzip(path)
        self._form = form
        attributes = {name: str(value) for name, value in manifest.as_dict().items()}
        self._file.write(form.opening(attributes).encode())

    def add(self, batch: Batch) -> None:
        self._file.write("".join(map(self._form.record, batch.bodies)).encode())

    def close(self) -> None:
        self._file.write(self._form.end.encode())
        self._file.close()


class _ParquetFile:
    """The leading columns, `key`, the fields the dataset declares, typed columns, and `body`.

    The facts about the file are stored as its metadata.
    """

    def __init__(
        self,
        path: Path,
        facts: Mapping[str, Any],
        declared: pa.Schema | None,
        typed: Sequence[Column],
        leading: Sequence[pa.Field] = (),
    ) -> None:
        self._declared = declared
        self._leading = leading
        self._typed = [pa.field(column.name, _type_of(column)) for column in typed]
        metadata = {f"hasat.{name}": str(value) for name, value in facts.items()}
        self._schema = pa.schema(
            [
                *leading,
                pa.field("key", pa.string()),
                *(declared or ()),
                *self._typed,
                # A removed record has none.
                pa.field("body", pa.string(), nullable=bool(leading)),
            ],
            metadata=metadata,
        )
        self._waiting: list[pa.Table] = []
        self._size = 0
        self._writer = ParquetWriter(path, self._schema, compression="zstd")

    def write(
        self,
        lines: bytes,
        keys: Sequence[str],
        typed: Sequence[bytes],
        leading: Sequence[Sequence[Any]] = (),
    ) -> None:
        declared = () if self._declared is None else _read_declared(lines, self._declared)
        columns = [
            *(
                pa.array(values, one.type)
                for values, one in zip(leading, self._leading, strict=True)
            ),
            pa.array(keys, pa.string()),
            *declared,
            *_read_typed(typed, self._typed),
            pa.array(_body_texts(lines, nullable=bool(self._leading)), pa.string()),
        ]
        table = pa.Table.from_arrays(columns, schema=self._schema)
        self._waiting.append(table)
        self._size += table.nbytes
        if self._size >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting))
        self._waiting.clear()
        self._size = 0

    def close(self) -> None:
        self._flush()
        self._writer.close()


class Parquet:
    """The records of a snapshot as Parquet."""

    def __init__(
        self, path: Path, manifest: Manifest, declared: pa.Schema | None, typed: Sequence[Column]
    ) -> None:
        self._file = _ParquetFile(path, manifest.as_dict(), declared, typed)

    def add(self, batch: Batch) -> None:
        self._file.write(batch.lines, batch.keys, batch.typed)

    def close(self) -> None:
        self._file.close()


class NdjsonDelta:
    """NDJSON: one line about the delta, then one line per record that changed."""

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self._file = _Gzip(path)
        self._file.write(_encode(header).encode() + b"\n")

    def add(self, changes: NetChanges) -> None:
        self._file.write(
            b"".join(
                f'{{"seq":{seq},"changeType":"{kind}",'.encode() + line[1:]
                for seq, kind, line in zip(
                    changes.seqs, changes.kinds, changes.lines.splitlines(True), strict=True
                )
            )
        )

    def close(self) -> None:
        self._file.close()


class ParquetDelta:
    """The records that changed as Parquet."""

    def __init__(
        self,
        path: Path,
        header: Mapping[str, Any],
        declared: pa.Schema | None,
        typed: Sequence[Column],
    ) -> None:
        leading = [pa.field("seq", pa.int64()), pa.field("changeType", pa.string())]
        self._file = _ParquetFile(path, header, declared, typed, leading)

    def add(self, changes: NetChanges) -> None:
        self._file.write(changes.lines, changes.keys, changes.typed, [changes.seqs, changes.kinds])

    def close(self) -> None:
        self._file.close()


def _body_texts(lines: bytes, *, nullable: bool = False) -> list[bytes | None]:
    """Return the body of each line verbatim; a quote inside the key is escaped."""
    texts = [line.split(_BODY, 1)[1][:-1] for line in lines.split(b"\n")[:-1]]
    return [None if nullable and text == b"null" else text for text in texts]


def _read_typed(rows: Sequence[bytes], fields: Sequence[pa.Field]) -> list[pa.Array]:
    if not fields:
        return []
    columns = zip(*orjson.loads(b"[" + b",".join(rows) + b"]"), strict=True)
    return [pa.array(values, field.type) for values, field in zip(columns, fields, strict=True)]


def _type_of(column: Column) -> pa.DataType:
    return _ARROW.get(column.type, pa.string())


def _read_declared(lines: bytes, columns: pa.Schema) -> list[pa.Array]:
    """Parse the bodies into columns with Arrow; a field without a column is an error."""
    shape = pa.schema([("key", pa.string()), ("body", pa.struct(list(columns)))])
    table = read_json(
        pa.BufferReader(lines),
        # One block, however long a line is.
        read_options=ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=ParseOptions(explicit_schema=shape, unexpected_field_behavior="error"),
    ).combine_chunks()
    return list(table["body"].chunk(0).flatten())


def open_format(
    dataset: Dataset, format_: Format, path: Path, manifest: Manifest, typed: Sequence[Column]
) -> FormatWriter:
    """Open a new file in this format."""
    if format_ == "ndjson":
        return Ndjson(path, manifest)
    if format_ == "parquet":
        declared = None if dataset.parquet_schema is None else dataset.parquet_schema()
        return Parquet(path, manifest, declared, typed)
    assert dataset.xml is not None
    return Xml(path, manifest, dataset.xml)


def open_delta(
    dataset: Dataset,
    format_: Format,
    path: Path,
    header: Mapping[str, Any],
    typed: Sequence[Column],
) -> NdjsonDelta | ParquetDelta:
    """Open a new file of a cumulative delta in this format."""
    if format_ == "ndjson":
        return NdjsonDelta(path, header)
    declared = None if dataset.parquet_schema is None else dataset.parquet_schema()
    return ParquetDelta(path, header, declared, typed)
