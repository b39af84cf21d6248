"""Test kit for Hasat and its sources: throw-away databases, a fake clock, HTTP and jobs."""
