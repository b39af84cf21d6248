"""Routers of the platform under /api/v1."""
