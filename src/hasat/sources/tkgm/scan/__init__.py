"""Scans of areas: planner, candidates, likelihood, records, and the runner."""

from typing import Literal

Quality = Literal["fast", "standard", "thorough"]
