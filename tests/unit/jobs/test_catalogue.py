"""The catalogue: overrides of the operator, and errors for invalid ones."""

from datetime import date
from typing import Any

import pytest

from hasat.errors import NotFoundError, SettingsError
from hasat.jobs import Catalogue, Job, Outcome, RunContext, platform_jobs
from hasat.settings import JobOverride, Settings, load_settings


async def work(context: RunContext) -> Outcome:
    return Outcome()


def settings_with(**overrides: Any) -> Settings:
    settings = load_settings(environ={})
    schedule = {name: JobOverride(**given) for name, given in overrides.items()}
    jobs = settings.jobs.model_copy(update={"schedule": schedule})
    return settings.model_copy(update={"jobs": jobs})


SAMPLE = Job("sample", work, "Sample.", cron="0 4 * * *", params={"batch": 10, "days": 3})


def test_overrides_change_only_what_they_name() -> None:
    settings = settings_with(
        sample={"enabled": False, "params": {"days": 7}, "mode": {"type": "fast"}}
    )
    job = Catalogue.of([SAMPLE], settings).get("sample")
    assert (job.enabled, job.cron) == (False, "0 4 * * *")
    assert job.params == {"batch": 10, "days": 7, "mode": {"type": "fast"}}
    changed = Catalogue.of([SAMPLE], settings_with(sample={"cron": "*/5 * * * *"}))
    assert (changed.get("sample").cron, changed.get("sample").enabled) == ("*/5 * * * *", True)


def test_a_cron_is_in_the_schedulers_zone_unless_the_job_has_its_own() -> None:
    jobs = [SAMPLE, Job("berlin", work, "Berlin.", cron="0 4 * * *", zone="Europe/Berlin")]
    catalogue = Catalogue.of(jobs, settings_with())
    assert catalogue.get("sample").zone == "Europe/Istanbul"
    assert catalogue.get("berlin").zone == "Europe/Berlin"


def test_an_override_of_a_job_that_does_not_exist_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(SettingsError) as caught:
        Catalogue.of([SAMPLE], settings_with(sampel={"enabled": False}))
    assert "'sampel'" in caught.value.message
    assert caught.value.remedy == "Did you mean 'sample'?"


def test_an_override_of_another_installation_is_remarked() -> None:
    catalogue = Catalogue.of([SAMPLE], settings_with(nowhere={"enabled": False}))
    assert [str(remark) for remark in catalogue.remarks] == [
        "jobs.schedule.nowhere has no effect: there is no such job."
    ]


def test_an_unknown_job_gets_a_suggestion() -> None:
    with pytest.raises(NotFoundError) as caught:
        Catalogue.of(platform_jobs(), settings_with()).get("housekeping")
    assert caught.value.remedy == "Did you mean 'housekeeping'?"


@pytest.mark.parametrize(
    "jobs",
    [
        [SAMPLE, SAMPLE],
        [Job("Sample", work, "Upper case.")],
        [Job("a-b", work, "A dash.")],
        [Job("bad", work, "Bad.", cron="every day")],
        [Job("bad", work, "Bad.", cron="0 4 * * *", zone="Europe/Atlantis")],
        [Job("bad", work, "Bad.", params={"day": date(2026, 5, 1)})],
    ],
)
def test_an_invalid_catalogue_is_rejected(jobs: list[Job]) -> None:
    with pytest.raises(SettingsError):
        Catalogue.of(jobs, settings_with())


def test_housekeeping_is_always_in_the_catalogue() -> None:
    (job,) = platform_jobs()
    assert (job.name, job.cron, job.enabled) == ("housekeeping", "15 4 * * *", True)


def test_jobs_can_be_part_of_values_that_are_hashed() -> None:
    assert hash(SAMPLE) == hash(SAMPLE)
