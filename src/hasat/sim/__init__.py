"""Upstreams to practise on: a process on loopback, with a seed, a clock to turn and faults by name.

Nothing in the product imports this room except the command line, the demo and `hasat.testing`.
"""

from hasat.sim.football import FOOTBALL
from hasat.sim.frame import UPSTREAMS, Simulation, Upstream, simulate
from hasat.sim.gib import GIB
from hasat.sim.tkgm import TKGM

UPSTREAMS.update({upstream.name: upstream for upstream in (GIB, TKGM, FOOTBALL)})

__all__ = ["UPSTREAMS", "Simulation", "Upstream", "simulate"]
