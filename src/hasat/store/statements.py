"""SQL kept in files: one statement a file, next to the code that runs it."""

from functools import cache
from importlib.resources import files
from typing import LiteralString


@cache
def statement(package: str, name: str) -> LiteralString:
    """The statement in ``sql/NAME.sql`` of a package."""
    # These files are part of the program: as trustworthy as a literal in it.
    return (files(package) / "sql" / f"{name}.sql").read_text("utf-8")
