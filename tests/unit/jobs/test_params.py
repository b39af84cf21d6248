"""Parameters of a job: accepted values, and errors for the others."""

from typing import Any

import pytest

from hasat.errors import SettingsError, UsageError
from hasat.jobs import Catalogue, Job, Outcome, RunContext
from hasat.jobs.catalogue import check_params
from hasat.settings import load_settings


async def nothing(context: RunContext) -> Outcome:
    return Outcome()


STRICT = Job(
    "strict",
    nothing,
    "Strict.",
    params={"minutes": 15, "dry_run": False, "hours": 2},
    options={"league": int, "hours": float, "area": object},
)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"minutes": 0, "dry_run": True, "hours": 0.5, "league": 39},
        {"hours": 3, "league": None, "area": [1, 2]},
    ],
)
def test_valid_parameters_are_accepted(given: dict[str, Any]) -> None:
    check_params(STRICT, given)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"minuets": 5}, "strict has no parameter 'minuets'. Did you mean 'minutes'?"),
        ({"x": 5}, "no parameter 'x'. It has area, dry_run, hours, league, minutes."),
        ({"minutes": "abc"}, "minutes of strict is 'abc'. Give a whole number."),
        ({"minutes": True}, "Give a whole number."),
        ({"minutes": 1.5}, "Give a whole number."),
        ({"hours": "2"}, "Give a number."),
        ({"dry_run": 1}, "Give true or false."),
        ({"league": "39"}, "Give a whole number."),
    ],
)
def test_invalid_parameters_are_rejected(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_params(STRICT, given)
    assert sentence in str(refused.value)


def test_a_job_without_options_accepts_anything() -> None:
    check_params(Job("loose", nothing, "Loose."), {"whatever": {"any": [1, None]}})


def test_the_schedule_may_have_unknown_parameters_but_no_wrong_types() -> None:
    def of(params: str) -> Catalogue:
        environ = {"HASAT_JOBS_SCHEDULE": f'{{"strict": {{"params": {params}}}}}'}
        return Catalogue.of([STRICT], load_settings(environ=environ))

    more = of('{"scope_source": "daily", "league": null, "minutes": 5}')
    assert more.get("strict").params["minutes"] == 5
    assert [str(remark) for remark in more.remarks] == [
        "jobs.schedule.strict.params.scope_source has no effect: the job has no such parameter."
    ]
    with pytest.raises(SettingsError, match="Job strict: minutes of strict is"):
        of('{"minutes": "often"}')
