"""The scenes of the demo, for its terminal and for the overview."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from hasat.messages import msg
from hasat.settings import Settings


@dataclass(frozen=True)
class Scene:
    """An event of the demo that can be seen on `page` from a given minute on."""

    minute: int
    page: str
    link: str
    """An address, or a command, that shows the same."""
    title: str
    text: str
    every_hour: bool = False

    def visible_at(self, began: datetime, started: datetime) -> datetime | None:
        """Return when the scene is first visible after a start of the demo; None if it was before.

        Simulators start some seconds later, and jobs run at the full minute.
        """
        happens_at = began + timedelta(minutes=self.minute, seconds=15)
        visible = happens_at.replace(second=0, microsecond=0) + timedelta(minutes=1)
        while self.every_hour and visible < started:
            visible += timedelta(hours=1)
        return visible if visible >= started else None


@dataclass(frozen=True)
class ScheduledScene:
    """A scene with the time at which it becomes visible."""

    scene: Scene
    at: datetime | None
    is_past: bool

    def when(self, zone: ZoneInfo) -> str:
        """Describe the time in a few words."""
        if self.at is None:
            return msg("from the start") if self.scene.minute == 0 else msg("before this start")
        time = f"{self.at.astimezone(zone):%H:%M}"
        return msg("{time}, happened", time=time) if self.is_past else time


def schedule_scenes(settings: Settings, now: datetime) -> Sequence[ScheduledScene]:
    """Return the scenes with their times; none outside the demo."""
    began, started = settings.demo.began, settings.demo.started
    if began is None or started is None:
        return []
    times = [scene.visible_at(began, started) if scene.minute else None for scene in SCENES]
    return [
        ScheduledScene(scene, at, at is not None and at <= now)
        for scene, at in zip(SCENES, times, strict=True)
    ]


SCENES: Final = (
    Scene(
        0,
        "/changes?dataset=einvoice",
        "/changes.json?dataset=einvoice",
        msg("A list of taxpayers changes every minute"),
        msg(
            "GIB only publishes complete lists. Hasat computes the changes and numbers them "
            "without gaps, so a consumer can prove that it missed nothing."
        ),
    ),
    Scene(
        0,
        "/parcels",
        "/changes.json?dataset=parcels",
        msg("A town is scanned, parcel by parcel"),
        msg(
            "TKGM answers one point per request, with a daily limit. Watch the map fill: the scan "
            "asks first where most is unknown, and resumes after any stop."
        ),
    ),
    Scene(
        1,
        "/football",
        "/api/v1/football/fixtures?state=live",
        msg("A match day at 60 times the speed"),
        msg(
            "A match takes two minutes, a round starts every hour and a half. Scores, events and "
            "tables are updated within the daily requests of the plan."
        ),
    ),
    Scene(
        3,
        "/runs?job=gib_sync",
        "hasat gib runs",
        msg("Half a list arrives: your approval is needed"),
        msg(
            "More than a thousand taxpayers seem to be gone. The guard holds the run and shows "
            "what it would remove. Reject it; the next run is held too while the half list is "
            "published. After five minutes the complete list is back."
        ),
        every_hour=True,
    ),
    Scene(
        4,
        "/delivery",
        "hasat webhooks dead-letters",
        msg("A webhook receiver goes down"),
        msg(
            "Every sync is reported by webhook. For five minutes the receiver is down: failed "
            "deliveries become dead letters, which you can send again under the same id."
        ),
        every_hour=True,
    ),
    Scene(
        5,
        "/changes?dataset=fixtures",
        "/changes.json?dataset=fixtures",
        msg("A score is corrected after the match"),
        msg(
            "A goal is disallowed. Consumers receive the correction as a change with the record "
            "before and after. League 6 publishes its results late; until then its matches stay "
            "as last published, and nothing is guessed."
        ),
    ),
    Scene(
        10,
        "/runs?bad=1",
        "hasat jobs history --failed",
        msg("A truncated download"),
        msg(
            "The run fails with its reason and changes nothing. The next run downloads the list "
            "again."
        ),
        every_hour=True,
    ),
    Scene(
        12,
        "/football",
        "/api/v1/football/fixtures?inferred=true",
        msg("The API goes down while matches end"),
        msg(
            "The API does not respond for minutes. Matches are marked as probably finished, "
            "separately from the published data. The mark is cleared once the API responds."
        ),
    ),
)
