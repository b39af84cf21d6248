"""The frame of the simulators; each simulator is in its source.

Only the demo and the tests use them.
"""

from hasat.sim.simulation import Simulation, Simulator, simulate

__all__ = ["Simulation", "Simulator", "simulate"]
