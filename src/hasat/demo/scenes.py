"""The scenes of the demo, for its terminal and for the overview."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from hasat.demo.part import RECEIVER_DOWN, Scene, demo_parts
from hasat.messages import msg
from hasat.settings import Settings

REPLAY_PATH: Final = "/replay"
"""The address of the simulated upstreams that begins a scene again, by its number."""


@dataclass(frozen=True)
class ScheduledScene:
    """A scene with the time at which it becomes visible, and its number among all scenes."""

    number: int
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
    scenes = all_scenes()
    times = [scene.visible_at(began, started) if scene.minute else None for scene in scenes]
    return [
        ScheduledScene(number, scene, at, at is not None and at <= now)
        for number, (scene, at) in enumerate(zip(scenes, times, strict=True), 1)
    ]


def all_scenes() -> Sequence[Scene]:
    """Return the scenes of the platform and its sources, by their minute."""
    scenes = [scene for part in demo_parts().values() for scene in part.scenes]
    return sorted([*scenes, *_SCENES], key=lambda scene: scene.minute)


_SCENES: Final = (
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
        replay=RECEIVER_DOWN,
    ),
)
