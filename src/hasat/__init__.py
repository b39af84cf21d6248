"""Hasat collects from public sources within their limits and publishes every change."""

from importlib.metadata import version

__version__ = version("hasat")
