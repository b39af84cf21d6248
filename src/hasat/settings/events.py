"""The kinds of events: those of the platform and those that installed sources declare."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator

from hasat.messages import msg
from hasat.settings.plugins import load_plugins
from hasat.settings.types import Description


@dataclass(frozen=True)
class EventKind:
    """A kind of events, and how a chat message shows it."""

    name: str
    title: str
    counts: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Headings of the counts of changes in its payload, by their name there."""


PLATFORM_KINDS: Final = (
    EventKind("RemovalGuardTriggered", "🛡️ Silme Koruması Tetiklendi"),
    EventKind("MvRefreshFailed", "🔄 Arşiv Yazılamadı"),
    EventKind("HealthStatusChanged", "💚 Sağlık Durumu Değişti"),
    EventKind("DatasetChanged", "📥 Veri Kümesi Değişti"),
)
TEST: Final = EventKind("Test", "👋 Deneme Mesajı")
"""The kind of `hasat webhooks test`, which every endpoint gets."""


def event_kinds() -> Mapping[str, EventKind]:
    """Return the kinds that endpoints can choose from, by name."""
    declared = (kind for source in load_plugins().sources for kind in source.events)
    return {kind.name: kind for kind in (*PLATFORM_KINDS, *declared)}


def _known(value: Any) -> Any:
    names = {name.casefold(): name for name in event_kinds()}
    return names.get(str(value).casefold().replace("_", "-"), value)


def _check(name: str) -> str:
    if name not in event_kinds():
        raise ValueError(msg("must be one of {names}", names=", ".join(event_kinds())))
    return name


EventName = Annotated[
    str,
    BeforeValidator(_known),
    AfterValidator(_check),
    Description("the kind of an event, such as `DatasetChanged`"),
]
