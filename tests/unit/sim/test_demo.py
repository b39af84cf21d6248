"""The script of the demo: every scene happens at its time, and a restart resumes it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from hasat.demo.scenes import all_scenes, schedule_scenes
from hasat.demo.upstreams import DemoProgress, DemoUpstreams
from hasat.settings import load_settings
from hasat.sources.football.demo import MATCHES, SEASON_AGE, season_start
from hasat.sources.football.simulator.matches import FULL, REAL_TIME, Tempo
from hasat.sources.football.simulator.world import make_world
from hasat.sources.gib.identifiers import has_valid_checksum
from hasat.sources.gib.simulator.taxpayers import LAYOUTS, taxpayer

START = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)


class _Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


def _minute_of(word: str) -> int:
    [scene] = [one for one in all_scenes() if word in one.title]
    return scene.minute


def test_time_stands_still_while_the_demo_is_off(tmp_path: Path) -> None:
    assert DemoProgress.read(tmp_path).elapsed == timedelta(0)
    season = season_start(tmp_path, START)
    DemoProgress(timedelta(minutes=7)).write(tmp_path)
    assert DemoProgress.read(tmp_path) == DemoProgress(timedelta(minutes=7))
    assert season_start(tmp_path, START + timedelta(hours=3)) == season


def test_a_season_that_is_over_is_followed_by_another(tmp_path: Path) -> None:
    assert season_start(tmp_path, START) == START - SEASON_AGE
    much_later = START + timedelta(days=9)
    assert season_start(tmp_path, much_later) == much_later - SEASON_AGE


def test_a_damaged_progress_file_starts_the_script_again(tmp_path: Path) -> None:
    (tmp_path / "story.json").write_text('{"elapsed": "for')
    assert DemoProgress.read(tmp_path).elapsed == timedelta(0)


def test_the_broken_lists_come_when_the_screen_says_so(tmp_path: Path) -> None:
    clock = _Clock()
    upstreams = DemoUpstreams(tmp_path, DemoProgress.read(tmp_path), clock)
    lists = []
    for minute in range(80):
        clock.now = START + timedelta(minutes=minute)
        upstreams.advance()
        lists.append([fault.name for fault in upstreams.simulations["gib"].faults.on])
        # As a download of the list does.
        upstreams.simulations["gib"].faults.strikes("truncated")
    half, cut = _minute_of("Half a list"), _minute_of("truncated")
    halves = [minute for minute, faults in enumerate(lists) if "half-list" in faults]
    assert halves == [*range(half, half + 5), *range(60 + half, 60 + half + 5)]
    cuts = [minute for minute, faults in enumerate(lists) if "truncated" in faults]
    assert cuts == [cut, 60 + cut]


def test_matches_kick_off_and_are_corrected_when_the_screen_says_so(tmp_path: Path) -> None:
    progress = DemoProgress.read(tmp_path)
    world = DemoUpstreams(tmp_path, progress, _Clock()).simulations["football"].inside.world
    assert len(world.matches) == MATCHES
    kick_offs = [match.kick_off - START for match in world.matches.values()]
    first = _minute_of("match day")
    assert any(timedelta(minutes=first) <= one <= timedelta(minutes=first + 1) for one in kick_offs)
    corrected = [
        (match.kick_off - START) + match.tempo.corrected_after / match.tempo.speed
        for match in world.matches.values()
        if match.is_corrected and match.fate == "played" and match.kick_off > START
    ]
    minute = _minute_of("corrected")
    assert timedelta(minutes=minute) <= min(corrected) <= timedelta(minutes=minute + 5)


def test_matches_are_played_while_the_api_is_down(tmp_path: Path) -> None:
    clock = _Clock()
    upstreams = DemoUpstreams(tmp_path, DemoProgress.read(tmp_path), clock)
    silent = []
    for minute in range(30):
        clock.now = START + timedelta(minutes=minute)
        upstreams.advance()
        if upstreams.simulations["football"].faults.on:
            silent.append(clock.now)
    world = upstreams.simulations["football"].inside.world
    played = [m for m in world.matches.values() if m.at(silent[0]).code in ("1H", "HT", "2H")]
    assert played
    scene = START + timedelta(minutes=_minute_of("API"))
    assert silent[0] + timedelta(minutes=3) <= scene <= silent[-1] - timedelta(minutes=3)


def test_a_hurried_world_is_the_same_world_in_less_time() -> None:
    life = make_world(3, START, 1, 4)
    hurried = make_world(3, START, 1, 4, tempo=Tempo(speed=60))
    midnight = START.replace(hour=0)
    for slow, fast in zip(life.matches.values(), hurried.matches.values(), strict=True):
        assert slow.tempo is REAL_TIME
        assert fast.kick_off - START == (slow.kick_off - midnight) / 60
        end, quick_end = slow.kick_off + FULL, fast.kick_off + FULL / 60
        assert slow.at(end).body()["goals"] == fast.at(quick_end).body()["goals"]
        assert slow.at(end).code == fast.at(quick_end).code


def test_a_scene_is_announced_for_when_a_job_has_looked() -> None:
    """The list breaks in the middle of a minute; the next sync is at the full one."""
    [half] = [one for one in all_scenes() if "Half a list" in one.title]
    began = START + timedelta(seconds=24)
    assert half.visible_at(began, began) == START + timedelta(minutes=half.minute + 1)


def test_a_later_start_announces_only_what_is_to_come() -> None:
    began = START - timedelta(minutes=20)
    demo = {"HASAT_DEMO_BEGAN": began.isoformat(), "HASAT_DEMO_STARTED": START.isoformat()}
    states = schedule_scenes(load_settings(environ=demo), START + timedelta(minutes=50))
    words = {one.scene.title: one.when(ZoneInfo("UTC")) for one in states}
    assert list(words.values()) == [
        "from the start",
        "from the start",
        "before this start",
        "10:44, happened",
        "10:45, happened",
        "before this start",
        "10:51",
        "before this start",
    ]
    assert schedule_scenes(load_settings(environ={}), START) == []


def test_a_scene_can_be_shown_again_at_any_time(tmp_path: Path) -> None:
    clock = _Clock()
    # Twenty minutes later, no scene of the script is shown.
    DemoProgress(timedelta(minutes=20)).write(tmp_path)
    upstreams = DemoUpstreams(tmp_path, DemoProgress.read(tmp_path), clock)
    [scene] = [one for one in all_scenes() if "Half a list" in one.title]
    faults = upstreams.simulations["gib"].faults
    upstreams.advance()
    assert not faults.on
    upstreams.replay(scene)
    shown = []
    for minute in range(10):
        clock.now = START + timedelta(minutes=minute, seconds=5)
        upstreams.advance()
        shown.append("half-list" in [fault.name for fault in faults.on])
    assert shown == [True] * 5 + [False] * 5
    assert not upstreams.simulations["football"].faults.on


def test_the_taxpayers_of_the_demo_have_valid_check_digits(tmp_path: Path) -> None:
    layout = LAYOUTS["published"]
    found = [taxpayer(1, number, 0, layout).identifier for number in range(2_000)]
    assert len(set(found)) == len(found)
    numbers = [one for one in found if len(one) == 10]
    assert len(numbers) > 1_900
    assert all(map(has_valid_checksum, numbers))
