"""Tables on the terminal: columns that fit its width, coloured outcomes, and local times."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column as RichColumn
from rich.table import Table
from rich.text import Text

from hasat.clock import zone
from hasat.console.output import localize, shown
from hasat.messages import format_time, language_of_environment, msg, template
from hasat.settings import Settings

# A column of long texts gets at least this width before another column is hidden for it.
_MIN_TEXT_WIDTH: Final = 20

_STYLES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            template("done"),
            template("ok"),
            template("active"),
            template("approved"),
            template("committed"),
            template("delivered"),
            template("added"),
            template("valid"),
        ),
        "green",
    ),
    **dict.fromkeys(
        (
            template("failed"),
            template("set_aside"),
            template("dead"),
            template("refused"),
            template("removed"),
            template("exhausted"),
        ),
        "red",
    ),
    **dict.fromkeys(
        (
            template("held"),
            template("waiting"),
            template("interrupted"),
            template("out_of_quota"),
            template("paused"),
            template("gap"),
            template("cooldown"),
        ),
        "yellow",
    ),
    **dict.fromkeys(
        (template("running"), template("started"), template("queued"), template("modified")), "cyan"
    ),
    **dict.fromkeys(
        (
            template("nothing"),
            template("unchanged"),
            template("skipped"),
            template("rejected"),
            template("superseded"),
            template("revoked"),
            template("expired"),
            template("off"),
        ),
        "dim",
    ),
}


@dataclass(frozen=True)
class Column:
    """A column: `rank` is 0 if it is always shown; the highest rank is hidden first."""

    heading: str
    rank: int = 0
    numeric: bool = False
    wraps: bool = False
    """Whether it has long texts, which may take several lines."""


class FittingTable(Table):
    """A table without borders that hides columns instead of cutting texts, and says so."""

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__(box=None, pad_edge=False, padding=(0, 1))
        self._ranks = [column.rank for column in columns]
        self._wraps = [column.wraps for column in columns]
        for column in columns:
            self.add_column(
                Text(column.heading, "bold"),
                justify="right" if column.numeric else "left",
                overflow="fold",
            )

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row; messages are translated, and brackets in a text are no markup."""
        texts = [Text(shown(cell)) if isinstance(cell, str) else cell for cell in cells]
        super().add_row(*texts, **options)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not console.is_terminal:
            # A pipe has no width.
            yield from super().__rich_console__(console, options)
            return
        widths = [self._measure_column(console, options, one).maximum for one in self.columns]
        needed = [
            min(width, _MIN_TEXT_WIDTH) if wraps else width
            for width, wraps in zip(widths, self._wraps, strict=True)
        ]
        shown = self._fitting(needed, options.max_width)
        fits = sum(needed[one] for one in shown) <= options.max_width
        everything = self.columns
        self.columns = []
        for position, number in enumerate(shown):
            column = everything[number].copy()
            column._index = position
            column._cells = everything[number]._cells
            column.no_wrap = fits and not self._wraps[number]
            self.columns.append(column)
        try:
            yield from super().__rich_console__(console, options)
        finally:
            self.columns = everything
        if hidden := [one for number, one in enumerate(everything) if number not in shown]:
            yield _hint(hidden, options.max_width, sum(widths))

    def _fitting(self, needed: Sequence[int], width: int) -> Sequence[int]:
        """Return the numbers of the columns that fit; those of rank 0 always do."""
        shown = list(range(len(needed)))
        for number in _by_rank(self._ranks):
            if sum(needed[one] for one in shown) <= width:
                break
            shown.remove(number)
        return shown


def _by_rank(ranks: Sequence[int]) -> Iterator[int]:
    """Return the numbers of the columns that may be hidden, the first one to hide first."""
    optional = [number for number, rank in enumerate(ranks) if rank]
    return iter(sorted(optional, key=lambda number: (-ranks[number], -number)))


def _hint(hidden: Sequence[RichColumn], width: int, needed: int) -> Text:
    names = ", ".join(str(column.header) for column in hidden)
    sentence = msg(
        "Hidden in {width} columns: {names}. Widen the window to {needed}, or use --json.",
        width=width,
        names=names,
        needed=needed,
    )
    return Text(localize(sentence), "dim")


def outcome(name: str) -> Text:
    """Return a state or an outcome, translated, in the colour that it has on a terminal."""
    return Text(localize(name), _STYLES.get(name, ""))


def local_time(moment: datetime | None, settings: Settings, *, seconds: bool = False) -> str:
    """Write a time in the scheduler's zone, with the zone; a dash if there is none."""
    if moment is None:
        return "-"
    local = moment.astimezone(zone(settings.jobs.timezone))
    return f"{format_time(local, language_of_environment(os.environ), seconds=seconds)} {local:%Z}"
