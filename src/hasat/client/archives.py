"""Archives on the caller's disk: complete copies of a dataset, as data frames or DuckDB tables."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import httpx2

from .errors import ClientError, InvalidResponseError
from .models import parse_time

if TYPE_CHECKING:
    from datetime import datetime

Format = Literal["parquet", "ndjson"]

_HEADERS = {"Accept-Encoding": "identity"}


class MissingLibraryError(ClientError, ImportError):
    """A library that the conversion needs is not installed."""


@dataclass(frozen=True)
class Archive:
    """A complete copy of a dataset in a file, and the cursor that its changes continue from."""

    path: Path
    format: Format
    dataset: str
    cursor: str
    count: int
    digest: str
    epoch: str
    committed_at: "datetime | None"

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame with the key, the typed columns and the body as JSON."""
        return _library("pandas").read_parquet(self._parquet())

    def to_polars(self) -> Any:
        """Return a polars.DataFrame with the key, the typed columns and the body as JSON."""
        return _library("polars").read_parquet(self._parquet())

    def to_geodataframe(self) -> Any:
        """Return a geopandas.GeoDataFrame of a dataset whose bodies are GeoJSON features."""
        geopandas, pandas = _library("geopandas"), _library("pandas")
        table = pandas.read_parquet(self._parquet(), columns=["key", "body"])
        features = [json.loads(body) for body in table["body"]]
        if features and not all(isinstance(one, dict) and "geometry" in one for one in features):
            raise ClientError(f"The records of {self.dataset} are not GeoJSON features.")
        if not features:
            return geopandas.GeoDataFrame({"key": []}, geometry=[], crs="EPSG:4326")
        found = geopandas.GeoDataFrame.from_features(features, crs="EPSG:4326")
        found.insert(0, "key", table["key"])
        return found

    def to_duckdb(self, connection: Any = None, table: str | None = None) -> Any:
        """Create a DuckDB table of the archive and return it as a relation.

        Without a connection, DuckDB's default one; without a name, that of the dataset.
        """
        connection = connection or _library("duckdb").default_connection()
        name = '"' + (table or self.dataset).replace('"', '""') + '"'
        path = str(self._parquet()).replace("'", "''")
        connection.execute(
            f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM read_parquet('{path}')"  # noqa: S608
        )
        return connection.table(table or self.dataset)

    def _parquet(self) -> Path:
        if self.format != "parquet":
            raise ClientError(f'{self.path} is {self.format}: download it as "parquet".')
        return self.path


class Download:
    """An archive that is being downloaded: continued after a break, verified at its end."""

    def __init__(self, dataset: str, form: Format, folder: Path) -> None:
        self.dataset = dataset
        self.form: Format = form
        self._folder = folder
        self._part = folder / f".{dataset}.{form}.part"
        self._tag = ""

    def headers(self) -> Mapping[str, str]:
        """Return the headers that continue the download where it broke off."""
        done = self._part.stat().st_size if self._tag and self._part.exists() else 0
        if not done:
            return _HEADERS
        return {**_HEADERS, "Range": f"bytes={done}-", "If-Range": self._tag}

    def begin(self, response: httpx2.Response) -> Any:
        """Open the file that the response is written to."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._tag = response.headers.get("ETag", "")
        return self._part.open("ab" if response.status_code == 206 else "wb")

    def finish(self, response: httpx2.Response) -> Archive:
        """Verify the file, give it its name and return the archive."""
        header = response.headers
        try:
            cursor, expected = header["X-Hasat-Cursor"], header["X-Hasat-Sha256"]
            count, digest = int(header["X-Hasat-Count"]), header["X-Hasat-Digest"]
            epoch = header["X-Hasat-Epoch"]
        except (KeyError, ValueError) as error:
            raise InvalidResponseError(
                f"The archive of {self.dataset} came without its headers ({error}); check that a "
                "proxy in between lets them through."
            ) from error
        with self._part.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                self._part.unlink()
                raise InvalidResponseError(
                    f"The archive of {self.dataset} arrived damaged: its SHA-256 is wrong. "
                    "Download it again."
                )
        suffix = ".ndjson.gz" if self.form == "ndjson" else f".{self.form}"
        path = self._folder / f"{self.dataset}{suffix}"
        self._part.replace(path)
        committed = parse_time(header.get("X-Last-Sync-At"))
        return Archive(path, self.form, self.dataset, cursor, count, digest, epoch, committed)


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        raise MissingLibraryError(
            f"This conversion needs {missing}: pip install {missing}", name=missing
        ) from error
