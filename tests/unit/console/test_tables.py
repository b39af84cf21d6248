"""Tables of the commands: they fit the terminal and never cut a text."""

from datetime import UTC, datetime
from io import StringIO

import pytest
from rich.console import Console

from hasat.console import output
from hasat.console.tables import Column, FittingTable, local_time, outcome
from hasat.settings import load_settings

JOB = "standings_backfill_league_season"
MESSAGE = "The guard holds the run: 1,234 of 5,678 records would be removed at once."


def runs() -> FittingTable:
    table = output.table(
        Column("run", numeric=True),
        "job",
        Column("by", 2),
        "outcome",
        Column("message", 1, wraps=True),
    )
    table.add_row("7", JOB, "schedule", outcome("held"), MESSAGE)
    table.add_row("12", "housekeeping", "hand", outcome("done"), "odd [/b] text")
    return table


def shown(table: FittingTable, width: int, *, terminal: bool = True) -> str:
    file = StringIO()
    console = Console(
        file=file,
        width=width,
        force_terminal=terminal,
        color_system="standard" if terminal else None,
        highlight=False,
        soft_wrap=not terminal,
    )
    console.print(table, markup=False)
    return file.getvalue()


def plain(text: str) -> str:
    return Console(file=StringIO()).render_str(text, markup=False).plain


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal_and_no_text_is_cut(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = shown(runs(), width)
    lines = [line for line in text.splitlines() if not line.startswith("\x1b[2m")]
    assert "…" not in text
    assert JOB in text
    assert all(len(plain(line).split("\x1b")[0]) <= width for line in lines)


def test_columns_are_hidden_by_rank_and_named() -> None:
    # At 60 columns, neither the message nor the trigger fits next to the name of the job.
    text = shown(runs(), 60)
    assert "schedule" not in text
    assert "Hidden in 60 columns: by, message." in text.replace("\n", " ")
    assert "use --json" in text.replace("\n", " ")
    # At 72, the message wraps, so only the trigger is hidden.
    text = shown(runs(), 72)
    assert "Hidden in 72 columns: by." in text.replace("\n", " ")
    assert "guard" in text
    assert "Hidden" not in shown(runs(), 200)


def test_a_pipe_has_every_column_on_one_line() -> None:
    lines = shown(runs(), 10_000, terminal=False).splitlines()
    assert len(lines) == 3
    assert MESSAGE in lines[1]
    assert "\x1b" not in "".join(lines)


def test_texts_are_no_markup() -> None:
    assert "odd [/b] text" in shown(runs(), 200)


def test_outcomes_have_colours() -> None:
    table = output.table("outcome")
    for name in ("done", "failed", "held", "running"):
        table.add_row(outcome(name))
    text = shown(table, 80)
    for code, name in (("32", "done"), ("31", "failed"), ("33", "held"), ("36", "running")):
        assert f"\x1b[{code}m{name}" in text


def test_times_are_local_and_name_their_zone() -> None:
    settings = load_settings({"jobs.timezone": "Europe/Istanbul"}, environ={})
    moment = datetime(2026, 2, 19, 22, 5, 9, tzinfo=UTC)
    assert local_time(moment, settings) == "2026-02-20 01:05 +03"
    assert local_time(moment, settings, seconds=True) == "2026-02-20 01:05:09 +03"
    assert local_time(None, settings) == "-"
