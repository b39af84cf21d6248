"""The frame of the simulators: loopback servers with a seed, a clock to set and named faults.

Each simulator is in its source. The product does not use them, except for the demo.
"""

from hasat.sim.frame import Simulation, Simulator, simulate

__all__ = ["Simulation", "Simulator", "simulate"]
