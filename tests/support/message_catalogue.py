"""The messages of the source code and templates, and the command that updates the catalogues."""

import ast
import string
import sys
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeGuard

import typer.main
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po
from jinja2 import Environment
from jinja2.ext import extract_from_ast
from typer.core import TyperGroup

from hasat.cli import app
from hasat.console.help import help_texts
from hasat.settings.tree import leaves
from hasat.source.installed import all_sources

SOURCE = Path(str(files("hasat")))
CATALOGUE = SOURCE / "locale" / "tr" / "LC_MESSAGES" / "hasat.po"

_MARKERS = {"msg", "template"}
_TEMPLATE_MARKER = "t"
_HEADER = """\
msgid ""
msgstr ""
"Language: tr\\n"
"MIME-Version: 1.0\\n"
"Content-Type: text/plain; charset=utf-8\\n"
"Content-Transfer-Encoding: 8bit\\n"
"Plural-Forms: nplurals=2; plural=(n > 1);\\n"

"""


def extract(source: Path = SOURCE) -> dict[str, set[str]]:
    """Return every message of the source code and the files that use it."""
    found: dict[str, set[str]] = {}
    for file in sorted([*source.rglob("*.py"), *source.rglob("*.html")]):
        text = file.read_text("utf-8")
        messages = _in_html(text) if file.suffix == ".html" else _templates(ast.parse(text))
        for message in messages:
            if any(part.strip(" .,:;") for part, *_ in string.Formatter().parse(message)):
                found.setdefault(message, set()).add(file.relative_to(source).as_posix())
    if source == SOURCE:
        for text in _help_of(typer.main.get_command(app)):
            found.setdefault(text, set()).add("cli/__init__.py")
        for text in _summaries():
            found.setdefault(text, set()).add("sources")
    return found


def _summaries() -> Iterable[str]:
    """Yield the summaries of datasets, columns and settings, which pages show."""
    yield from (leaf.field.description for leaf in leaves().values() if leaf.field.description)
    for dataset in (one for source in all_sources() for one in source.datasets):
        yield dataset.summary
        yield from (column.summary for column in dataset.columns if column.summary)


def _help_of(command: Any) -> Iterable[str]:
    """Yield the help of a command and of everything below it."""
    yield from help_texts(command)
    if isinstance(command, TyperGroup):
        context = typer.Context(command)
        for name in command.list_commands(context):
            yield from _help_of(command.get_command(context, name))


def _in_html(text: str) -> Iterable[str]:
    """Yield the texts that a Jinja template translates: the constants in calls of `t`."""
    tree = Environment(autoescape=True).parse(text)
    for _, _, arguments in extract_from_ast(tree, (_TEMPLATE_MARKER,)):
        message = arguments[0] if isinstance(arguments, tuple) else arguments
        if message is not None:
            yield message


def _templates(tree: ast.AST) -> Iterable[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Name(name), [ast.Constant(str(template)), *_]) if name in _MARKERS:
                yield template
            case ast.Call(ast.Attribute(attr="table"), headings):
                yield from (one.value for one in map(_heading, headings) if _is_text(one))


def _heading(node: ast.expr) -> ast.expr:
    """Return the heading of a column, which is given as a text or as a Column."""
    match node:
        case ast.Call(ast.Name("Column"), [heading, *_]):
            return heading
    return node


def _is_text(node: ast.expr) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def translations(file: Path = CATALOGUE) -> dict[str, str]:
    """Return the translation of every template in a catalogue, empty where there is none."""
    with file.open("rb") as stream:
        return {str(one.id): str(one.string) for one in read_po(stream) if one.id}


def write(found: Mapping[str, Iterable[str]], known: Mapping[str, str], file: Path) -> None:
    """Write a catalogue of exactly these templates."""
    catalogue = Catalog(locale="tr")
    for template in sorted(found, key=lambda one: (min(found[one]), one)):
        places = [(place, None) for place in sorted(found[template])]
        catalogue.add(template, known.get(template, ""), locations=places)  # type: ignore[arg-type]
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as stream:
        stream.write(_HEADER.encode())
        write_po(stream, catalogue, width=98, omit_header=True, include_lineno=False)


def update() -> int:
    """Add new templates to the catalogue and remove those that are gone; list what is missing."""
    found = extract()
    known = translations() if CATALOGUE.exists() else {}
    write(found, known, CATALOGUE)
    missing = [template for template in found if not known.get(template)]
    print(f"{len(found)} messages, {len(missing)} without a translation.")
    for template in missing:
        print(f"  {template}")
    return 0


if __name__ == "__main__":
    sys.exit(update())
