"""Every number that an operator can set has a range, and what is outside of it is a sentence."""

import math
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import typer.main
from pydantic import TypeAdapter, ValidationError
from typer.core import TyperCommand, TyperGroup

from hasat.cli import app
from hasat.errors import SettingsError, UsageError
from hasat.jobs import Catalogue, Job, platform_jobs
from hasat.jobs.catalogue import check_params, param_types
from hasat.settings import Settings, load_settings
from hasat.settings.tree import leaves, plain_type
from hasat.source.installed import all_sources
from hasat.sources.football.settings import League

JOBS = {job.name: job for source in all_sources() for job in source.all_jobs}
JOBS |= {job.name: job for job in platform_jobs()}


def unbounded(schema: Any, path: str = "") -> Iterator[str]:
    """The places of a JSON schema where a number has no lower or no upper bound."""
    if isinstance(schema, list):
        for number, one in enumerate(schema):
            yield from unbounded(one, f"{path}[{number}]")
    if not isinstance(schema, dict):
        return
    if schema.get("type") in ("integer", "number"):
        low = schema.keys() & {"minimum", "exclusiveMinimum"}
        high = schema.keys() & {"maximum", "exclusiveMaximum"}
        if not (low and high):
            yield path
    for name, one in schema.items():
        yield from unbounded(one, f"{path}.{name}")


def test_every_numeric_setting_has_a_range() -> None:
    assert list(unbounded(Settings.model_json_schema())) == []


def test_every_duration_has_a_range() -> None:
    durations = {
        key: leaf
        for key, leaf in leaves().items()
        if plain_type(leaf.field.annotation) is timedelta
    }
    assert durations
    for key in durations:
        for value in ("0", "36500d"):
            with pytest.raises(SettingsError, match=key.rpartition(".")[2]):
                load_settings(environ={"HASAT_HOME": "/nowhere"}, flags={key: value})


@pytest.mark.parametrize("name", sorted(JOBS))
def test_every_numeric_parameter_of_a_job_has_a_range(name: str) -> None:
    job = JOBS[name]
    assert job.options is not None, "a job that takes anything checks nothing"
    for param, kind in param_types(job).items():
        if kind is object:
            continue
        assert list(unbounded(TypeAdapter(kind).json_schema(), param)) == []
        usual = job.params.get(param)
        if usual is not None:
            TypeAdapter(kind).validate_python(usual, strict=True)


def numeric_options(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every option and argument of a command and those below it that takes a number."""
    if isinstance(command, TyperGroup):
        context = typer.Context(command)
        for name in command.list_commands(context):
            yield from numeric_options(command.get_command(context, name), (*words, name))
        return
    assert isinstance(command, TyperCommand)
    for param in command.params:
        # The message of `point_at` also says which of the two comes first.
        if words == ("tkgm", "parcel") and param.name in ("lat", "lon"):
            continue
        kind = TypeAdapter(param.type_descriptor.annotation).json_schema()
        if kind.get("type") in ("integer", "number"):
            yield " ".join((*words, param.name)), param


def test_every_numeric_option_of_a_command_has_a_range() -> None:
    options = dict(numeric_options(typer.main.get_command(app)))
    assert {"jobs history limit", "tkgm scan step", "sim run speed"} <= options.keys()
    assert [name for name, one in options.items() if None in (one.min, one.max)] == []


def numeric() -> list[tuple[Job, str]]:
    return [
        (job, param)
        for job in JOBS.values()
        for param, kind in param_types(job).items()
        if plain_type(kind) in (int, float)
    ]


OUTSIDE = [-1, -48, -0.5, 10**30, 10**5000, math.nan, math.inf, "2", True]


@pytest.mark.parametrize(("job", "param"), numeric(), ids=lambda one: getattr(one, "name", one))
def test_what_is_out_of_range_is_refused_before_the_run(job: Job, param: str) -> None:
    sentence = rf"^{param} of {job.name} is .*Give a (whole )?number from \d+ to \d+\.$"
    for value in OUTSIDE:
        with pytest.raises(UsageError, match=sentence):
            check_params(job, {param: value})


def test_the_sentence_names_the_range() -> None:
    with pytest.raises(UsageError) as refused:
        check_params(JOBS["auto_finish_stale_fixtures"], {"threshold_hours": -48})
    assert str(refused.value) == (
        "threshold_hours of auto_finish_stale_fixtures is -48. Give a number from 0 to 2160."
    )
    with pytest.raises(UsageError, match="Give one of fast, standard, thorough"):
        check_params(JOBS["tkgm_scan"], {"quality": "perfect"})


def test_a_schedule_out_of_range_stops_the_configuration() -> None:
    schedule = '{"stale_live_refresh": {"params": {"stale_threshold_minutes": -5}}}'
    settings = load_settings(environ={"HASAT_JOBS_SCHEDULE": schedule})
    with pytest.raises(SettingsError, match="stale_threshold_minutes of stale_live_refresh is -5"):
        Catalogue.of(JOBS.values(), settings)


def test_settings_out_of_range_are_refused() -> None:
    for field, value in (("id", 10**10), ("season", 1)):
        with pytest.raises(ValidationError):
            League.model_validate({"id": 39, "season": 2026} | {field: value})
