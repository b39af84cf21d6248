"""`hasat source new`: the package of a new source."""

import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer

from hasat.console import output
from hasat.errors import ConflictError, UsageError
from hasat.messages import msg

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_MAX_NAME = 25
_EXAMPLE = "example"

app = typer.Typer(no_args_is_help=True, help="Sources of other packages.")


@app.callback()
def _group() -> None:
    """Sources of other packages."""


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="The name of the source, such as weather.")],
    folder: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where to make the folder of the package.")
    ] = Path(),
    json: output.JsonFlag = False,
) -> None:
    """Write the package of a new source: a complete one to change, with its tests.

    It mirrors a list and a register of its own simulator, so everything can be tried at once.

    Example: `hasat source new weather`
    """
    check_name(name)
    package = folder / f"hasat-source-{name.replace('_', '-')}"
    if package.exists():
        raise ConflictError(
            msg("The folder {folder} exists already.", folder=package),
            remedy=msg("Choose another name, or another place with --folder."),
        )
    written = []
    for path, text in render(name):
        file = package / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        written.append(path)
    found = {"name": name, "folder": str(package), "files": written}
    output.emit(found, json=json, human=lambda: str(package))
    if not json:
        output.note(msg("Next: pip install -e {folder} pytest && pytest {folder}", folder=package))


def check_name(name: str) -> None:
    """Raise UsageError for a name that a new source cannot have."""
    from hasat.settings.tree import Settings, settings_model
    from hasat.source.installed import RESERVED_NAMES, installed_sources

    if not _NAME.fullmatch(name) or len(name) > _MAX_NAME:
        raise UsageError(
            msg("{name!r} cannot be the name of a source.", name=name),
            remedy=msg(
                "Use up to {longest} lower-case letters, digits and single underscores, a letter "
                "first.",
                longest=_MAX_NAME,
            ),
        )
    installed = installed_sources()
    taken = {*RESERVED_NAMES, *settings_model().model_fields}
    taken |= {one.name for one in installed.sources} | {one.name for one in installed.broken}
    if name in taken or hasattr(Settings, name):
        raise UsageError(
            msg("The name {name} is taken: by a source, a command or a setting.", name=name),
            remedy=msg("Choose another name."),
        )


def render(name: str) -> Iterator[tuple[str, str]]:
    """Return the files of the example by path, with the name of the new source in them."""
    words = {
        f"hasat-source-{_EXAMPLE}": f"hasat-source-{name.replace('_', '-')}",
        _EXAMPLE: name,
        _EXAMPLE.upper(): name.upper(),
        _EXAMPLE.title(): name.title().replace("_", ""),
    }
    pattern = re.compile("|".join(words))
    for path, file in _files(_skeleton(), ""):
        text = file.read_text("utf-8")
        yield (
            pattern.sub(lambda found: words[found[0]], path),
            pattern.sub(lambda found: words[found[0]], text),
        )


def _skeleton() -> Traversable:
    packaged = files("hasat.cli") / "skeleton"
    if packaged.is_dir():
        return packaged
    # In a checkout the build has not copied it.
    return Path(__file__).parents[3] / "examples" / "hasat-source-example"


def _files(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for one in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if one.is_dir() and not one.name.startswith((".", "__")):
            yield from _files(one, f"{prefix}{one.name}/")
        elif one.name.endswith((".py", ".toml", ".md", ".html")):
            yield f"{prefix}{one.name}", one
