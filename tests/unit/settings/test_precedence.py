"""Flags over environment over files over defaults, for every setting and any mix of layers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import platformdirs
import pytest
from annotated_types import Ge
from hypothesis import given, note, settings
from hypothesis import strategies as st

from hasat.settings import Origin, load_settings
from hasat.settings.legacy import CLIENTS, POSTGRES
from hasat.settings.load import nested
from hasat.settings.reference import allowed, shown_values
from hasat.settings.tree import Leaf, leaves, plain_type

LAYERS = ("flag", "environment", "file")
# Settings whose type alone does not say which values they accept.
SPECIAL: Mapping[str, list[Any]] = {
    "database.url": [f"postgresql://u:p@host{n}:5432/db" for n in range(3)],
    "database.read_url": [f"postgresql://u:p@standby{n}:5432/db" for n in range(3)],
    "demo.began": ["2026-01-01T00:00:00Z", "2026-01-02T03:04:05Z", "2026-01-03T00:00:00+03:00"],
    "demo.upstreams": ["http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"],
    "demo.started": ["2026-01-01T00:00:00Z", "2026-01-02T03:04:05Z", "2026-01-03T00:00:00+03:00"],
    "serve.base_map": [f"https://{name}.example/{{z}}/{{x}}/{{y}}.png" for name in "abc"],
    "jobs.timezone": ["UTC", "Europe/Berlin", "Asia/Tokyo"],
    "football.default_timezone": ["Europe/Istanbul", "Europe/Berlin", "Asia/Tokyo"],
    "football.base_url": ["https://a.example", "http://127.0.0.1:9", "http://[::1]:8/x"],
    "football.api_key_env": ["SOME_KEY", "OTHER_KEY", "THIRD_KEY"],
    "football.collect": [["odds"], ["squads"], ["bets"]],
    "football.only_league_id": ["39", "203", "140"],
    "football.rate_limiter.emergency_stop_threshold": ["1", "2", "3"],
    "football.rate_limiter.daily_limit": ["10", "20", "30"],
    "football.tracked_leagues": [[{"id": n, "name": "x", "season": 2025}] for n in (1, 2, 3)],
    "authentication.clients": [
        [{"access_key": f"a{n}", "secret_key": "s", "name": ""}] for n in (1, 2, 3)
    ],
    "webhooks.endpoints": [
        [{"name": f"n{n}", "url": "https://a.example/x", "format": "http"}] for n in (1, 2, 3)
    ],
    "smtp.sender": ["a@example.com", "Hasat <b@example.com>", "c@example.com"],
    "webhooks.private_networks": [["10.0.0.0/8"], ["127.0.0.1/32"], ["fd00::/8"]],
    "webhooks.slack.notify_on": [["DatasetChanged"], ["SyncFailed"], ["mvrefreshfailed"]],
    "webhooks.http.notify_on": [["DatasetChanged"], ["SyncFailed"], ["mvrefreshfailed"]],
    # These must make sense together with the defaults of others.
    "sources": [["gib"], ["tkgm"], ["football"]],
    "archives.provider": ["FileSystem", "filesystem", "FILESYSTEM"],
    "jobs.heartbeat_seconds": ["1", "2", "3"],
    "jobs.stalled_seconds": ["61", "62", "63"],
}
# Alone they break a rule about several settings, or say where the files are.
EXCLUDED = {
    *("home", "config", "archives.access_key", "archives.secret_key", "jobs.schedule", "smtp.url")
}


def three_values(leaf: Leaf) -> list[Any]:
    """Three acceptable values of a setting, as a person would write them."""
    if leaf.key in SPECIAL:
        return SPECIAL[leaf.key]
    kind = plain_type(leaf.field.annotation)
    words = allowed(leaf)
    if get_origin(kind) is Literal:
        choices = list(get_args(kind))
        return [choices[0], choices[-1], choices[len(choices) // 2]]
    if leaf.shape == "list":
        item = plain_type(get_args(kind)[0])
        texts = list(get_args(item)) if get_origin(item) is Literal else ["one", "two", "three"]
        return [[text] for text in texts[:3]]
    if kind is bool:
        return ["true", "false", "yes"]
    if kind in (int, float):
        least = max([3, *(int(limit.ge) for limit in leaf.field.metadata if isinstance(limit, Ge))])
        return [str(least + n) for n in range(3)]
    if "duration" in words:
        return ["1s", "00:00:02", "3"]
    if "address" in words and "http" in words:
        return [f"https://{name}.example/x" for name in ("one", "two", "three")]
    return (
        ["/one", "/two", "/three"] if words in ("a path", "a URL path") else ["one", "two", "six"]
    )


def as_flag(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def load(home: Path, leaf: Leaf, chosen: Mapping[str, Any], name: str) -> tuple[Any, Origin]:
    """The setting's value and origin when the given layers say what they say."""
    document = nested({leaf.key: chosen["file"]}) if "file" in chosen else {}
    (home / "hasat.yaml").write_text(json.dumps(document), encoding="utf-8")
    environ = {"HASAT_HOME": str(home), "HASAT_CONFIG": str(home)}
    if "environment" in chosen:
        environ[name] = as_flag(chosen["environment"])
    flags = {leaf.key: as_flag(chosen["flag"])} if "flag" in chosen else {}
    loaded = load_settings(flags, environ, home)
    value: Any = loaded
    for part in leaf.key.split("."):
        value = getattr(value, part)
    return value, loaded.origins[leaf.key]


CASES = [leaf for key, leaf in leaves().items() if key not in EXCLUDED]


@settings(max_examples=300)
@given(
    leaf=st.sampled_from(CASES),
    present=st.sets(st.sampled_from(LAYERS)),
    order=st.permutations((0, 1, 2)),
    data=st.data(),
)
def test_the_strongest_layer_that_speaks_is_heard(
    tmp_path_factory: pytest.TempPathFactory,
    leaf: Leaf,
    present: set[str],
    order: list[int],
    data: st.DataObject,
) -> None:
    home = tmp_path_factory.getbasetemp()
    if leaf.secret:
        present = present - {"flag"}
    values = three_values(leaf)
    chosen = {layer: values[order[n]] for n, layer in enumerate(LAYERS) if layer in present}
    names = [name for name in leaf.names if name not in (POSTGRES, CLIENTS) and name[-1] != "*"]
    name = data.draw(st.sampled_from(names))
    note(f"{leaf.key} {chosen} {name}")

    value, origin = load(home, leaf, chosen, name)

    strongest = next((layer for layer in LAYERS if layer in chosen), "default")
    assert origin.kind == strongest
    if strongest == "default":
        default = leaf.field.default
        assert value == (home / default if leaf.path and default else default)
    else:
        # The same value alone in the weakest layer: what the others say has no influence.
        assert value == load(home, leaf, {"file": chosen[strongest]}, name)[0]


@pytest.mark.parametrize("leaf", CASES, ids=lambda leaf: leaf.key)
def test_each_setting_falls_back_layer_by_layer(leaf: Leaf, tmp_path: Path) -> None:
    layers = [layer for layer in LAYERS if layer != "flag" or not leaf.secret]
    while layers:
        chosen = dict(zip(layers, three_values(leaf), strict=False))
        _, origin = load(tmp_path, leaf, chosen, leaf.names[0])
        assert origin.kind == layers.pop(0)


def test_hasats_own_name_counts_before_the_seeds() -> None:
    environ = {
        "HASAT_GIB_BATCH_SIZE": "7",
        "GibEndpoints__BatchSize": "8",
        "HASAT_HOME": "/nowhere",
    }
    assert load_settings({}, environ, Path("/nowhere")).gib.batch_size == 7


def test_an_empty_variable_counts_as_not_set() -> None:
    environ = {"HASAT_PORT": " ", "READ_API_PORT": "9001", "HASAT_HOME": "/nowhere"}
    loaded = load_settings({}, environ, Path("/nowhere"))
    assert (loaded.serve.port, loaded.origin("serve.port").where) == (9001, "READ_API_PORT")


def test_every_setting_has_an_origin_and_can_be_shown(tmp_path: Path) -> None:
    loaded = load_settings({}, {"HASAT_HOME": str(tmp_path)}, tmp_path)
    assert set(shown_values(loaded)) == set(loaded.origins)
    assert {origin.kind for key, origin in loaded.origins.items() if key != "home"} == {"default"}


def test_jobs_are_merged_part_by_part(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "hasat.yaml").write_text("jobs: {schedule: {a: {cron: 0 6 * * *, enabled: true}}}")
    environ = {"HASAT_HOME": str(tmp_path), "HASAT_JOBS_SCHEDULE": '{"a": {"params": {"n": 1}}}'}
    loaded = load_settings({"jobs.schedule.a.enabled": "false"}, environ, tmp_path)
    job = loaded.jobs.schedule["a"]
    assert (job.enabled, job.cron, job.params) == (False, "0 6 * * *", {"n": 1})
    kinds = [
        loaded.origins[f"jobs.schedule.a.{part}"].kind for part in ("enabled", "cron", "params")
    ]
    assert kinds == ["flag", "file", "environment"]


def test_loading_creates_nothing(tmp_path: Path) -> None:
    load_settings({}, {"HASAT_HOME": str(tmp_path / "home")}, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("where", "expected"), [("home", 1), ("cwd", 2), ("told", 3)])
def test_the_folder_of_files_is_looked_for_in_three_places(
    tmp_path: Path, where: str, expected: int
) -> None:
    folders = {"told": tmp_path / "told", "home": tmp_path / "h" / "config", "cwd": tmp_path / "c"}
    folders["cwd"] = tmp_path / "c" / "config"
    for number, name in ((3, "told"), (1, "home"), (2, "cwd")):
        if name == "home" and where == "cwd":
            continue
        folders[name].mkdir(parents=True)
        (folders[name] / "hasat.yaml").write_text(f"jobs: {{concurrency: {number}}}")
    environ = {"HASAT_HOME": str(tmp_path / "h")}
    if where == "told":
        environ["HASAT_CONFIG"] = "../told"
    loaded = load_settings({}, environ, tmp_path / "c")
    assert (loaded.jobs.concurrency, loaded.config) == (expected, folders[where])


def test_home_is_the_systems_for_root_and_the_users_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert load_settings({}, {}, tmp_path).home == Path("/var/lib/hasat")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    user = load_settings({}, {}, tmp_path)
    assert user.home == platformdirs.user_data_path("hasat", appauthor=False)
    assert user.archives.base_path == user.home / "archives"
    assert load_settings({}, {"HASAT_HOME": "data"}, tmp_path).home == tmp_path / "data"


def test_relative_paths_start_where_they_were_written(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "tkgm.yaml").write_text("workers_file: workers.json")
    environ = {"HASAT_HOME": str(tmp_path), "HASAT_CONFIG": "etc", "LOG_FILE": "logs/x.jsonl"}
    loaded = load_settings({}, environ, tmp_path)
    assert loaded.tkgm.workers_file == tmp_path / "etc" / "workers.json"
    assert loaded.log.file == tmp_path / "logs" / "x.jsonl"


def test_settings_cannot_be_changed_after_loading(tmp_path: Path) -> None:
    loaded = load_settings({}, {"HASAT_HOME": str(tmp_path)}, tmp_path)
    with pytest.raises(ValueError, match="frozen"):
        loaded.serve.port = 1
