"""Names and routes of sources are checked for collisions before anything starts."""

from dataclasses import replace
from unittest import mock

import pytest
from fastapi import APIRouter

from hasat.api.app import create_app
from hasat.errors import SettingsError
from hasat.jobs import Catalogue, Job, Outcome, RunContext
from hasat.settings import load_settings
from hasat.source import Dataset, EventKind, Source, WholeList
from hasat.source.installed import all_sources, check_collisions
from hasat.store import Store


async def _nothing(context: RunContext) -> Outcome:
    return Outcome()


BELLS = Source(
    "bells",
    "Bells",
    datasets=(Dataset("towers", "bells", "Towers"),),
    strategies={"towers": WholeList("https://bells.example", lambda _: ())},
    jobs=(Job("ring", _nothing, "Rings.", source="bells"),),
    events=(EventKind("Rung", "Rung"),),
)


@pytest.mark.parametrize(
    ("other", "collision"),
    [
        (Source("bells", "Other bells"), "source is named bells"),
        (Source("chimes", "", datasets=(Dataset("towers", "chimes", ""),)), "dataset is named"),
        (Source("chimes", "", jobs=(Job("ring", _nothing, ""),)), "job is named ring"),
        (
            Source("chimes", "", jobs=(Job("towers_sync", _nothing, ""),)),
            "job is named towers",
        ),
        (Source("chimes", "", events=(EventKind("Rung", ""),)), "event is named Rung"),
        (
            Source("chimes", "", events=(EventKind("DatasetChanged", ""),)),
            "event is named",
        ),
        (Source("holds", ""), "named holds, a name that Hasat uses"),
    ],
)
def test_a_name_that_is_used_twice_is_an_error(other: Source, collision: str) -> None:
    with pytest.raises(SettingsError, match=collision):
        check_collisions([BELLS, other])


def test_the_built_in_sources_do_not_collide() -> None:
    check_collisions([*all_sources(), BELLS])


def _app(*sources: Source) -> None:
    settings = load_settings(environ={"HASAT_HOME": "/nowhere"})
    create_app(settings, mock.Mock(spec=Store), Catalogue.of([], settings), sources)


def _router(path: str) -> APIRouter:
    router = APIRouter()
    router.get(path)(_nothing_at_all)
    return router


async def _nothing_at_all() -> None:
    return None


def test_a_dataset_with_the_name_of_a_route_is_an_error() -> None:
    with pytest.raises(SettingsError, match="named jobs, which is a route"):
        _app(Source("chimes", "", datasets=(Dataset("jobs", "chimes", "Jobs"),)))


@pytest.mark.parametrize("path", ["/towers/changes", "/holds/{hold}", "/bells/{name}"])
def test_a_route_of_two_sources_is_an_error(path: str) -> None:
    bells = replace(BELLS, routers=lambda: (_router("/bells/{key}"),))
    _app(bells)
    with pytest.raises(SettingsError, match="More than one source has the route GET"):
        _app(bells, Source("chimes", "", routers=lambda: (_router(path),)))


@pytest.mark.parametrize("name", ["", "Bells", "church bells", "bells-2", "2bells", "../bells"])
def test_a_name_that_is_no_identifier_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a source"):
        Source(name, "Bells")


def test_the_name_of_the_platform_is_refused() -> None:
    with pytest.raises(SettingsError, match="a name that Hasat uses itself"):
        check_collisions([Source("platform", "Bells")])


@pytest.mark.parametrize(
    "declared",
    [
        {"strategies": {"towers": WholeList("https://bells.example", lambda _: ())}},
        {"datasets": (Dataset("towers", "chimes", ""),)},
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(declared: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="towers"):
        Source("bells", "Bells", **declared)  # type: ignore[arg-type]
