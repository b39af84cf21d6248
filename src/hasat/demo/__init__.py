"""The demo: the simulators of the sources in one process, their faults and their scenes."""

from hasat.demo.part import (
    DemoFolder,
    DemoPart,
    Loading,
    Scene,
    demo_part,
    demo_parts,
)

__all__ = ["DemoFolder", "DemoPart", "Loading", "Scene", "demo_part", "demo_parts"]
