"""Fixtures and helpers of the tests, one topic per file."""
