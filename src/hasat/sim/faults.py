"""Faults by name: an upstream declares which it can show, a test or a person switches them on."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hasat.errors import UsageError
from hasat.messages import msg

# What any upstream on HTTP can do wrong; the frame itself carries these out.
COMMON = {
    "slow": "every answer waits `seconds`",
    "error": "every answer is the status `status` (500)",
    "reset": "the connection is cut in the middle of the answer",
}


@dataclass
class Fault:
    """One fault that is switched on."""

    name: str
    share: float = 1.0
    times: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


class Faults:
    """The switchboard: which faults are on, and whether the next request meets one."""

    def __init__(self, known: Mapping[str, str], rng: random.Random) -> None:
        self.known = {**COMMON, **known}
        self._rng = rng
        self._on: dict[str, Fault] = {}

    def switch_on(
        self, name: str, *, share: float = 1.0, times: int | None = None, **options: Any
    ) -> None:
        """Show a fault in a share of the requests, for a number of times or until switched off."""
        if name not in self.known:
            raise UsageError(
                msg("There is no fault named {name!r}.", name=name),
                remedy=msg("Known faults: {known}.", known=", ".join(sorted(self.known))),
            )
        if not 0 < share <= 1 or (times is not None and times < 1):
            raise UsageError(
                msg("A fault needs a share in (0, 1] and, if given, times of 1 or more.")
            )
        self._on[name] = Fault(name, share, times, options)

    def switch_off(self, name: str | None = None) -> None:
        """Switch one fault off, or all of them."""
        if name is None:
            self._on.clear()
        else:
            self._on.pop(name, None)

    def strikes(self, name: str) -> Fault | None:
        """The fault if it hits this time; counts it."""
        fault = self._on.get(name)
        if fault is None or self._rng.random() >= fault.share:
            return None
        if fault.times is not None:
            fault.times -= 1
            if fault.times == 0:
                del self._on[name]
        return fault

    @property
    def on(self) -> tuple[Fault, ...]:
        return tuple(self._on.values())
