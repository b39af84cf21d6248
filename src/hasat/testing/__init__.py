"""For tests of Hasat, of sources for it and of programs that follow it: the seams, in one place."""

from hasat.sim.clock import TurnableClock
from hasat.testing.transport import Script

__all__ = ["Script", "TurnableClock"]
