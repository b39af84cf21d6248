"""Scans of areas: planner, candidates, likelihood, records, and the runner."""
