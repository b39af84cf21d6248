"""Named SQL queries: each package has one `queries.sql` next to the code that runs them."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import LiteralString, cast

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load_query(package: str, name: str) -> LiteralString:
    """Return the query ``-- name: NAME`` of a package's ``queries.sql``."""
    return _queries(package)[name]


@cache
def _queries(package: str) -> Mapping[str, LiteralString]:
    text = (files(package) / "queries.sql").read_text("utf-8")
    _, *parts = _NAME.split(text)
    names, bodies = parts[::2], parts[1::2]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{package}/queries.sql has several queries named {sorted(repeated)}")
    # The file is part of the program: as trustworthy as a literal in it.
    return dict(zip(names, cast("list[LiteralString]", bodies), strict=True))
