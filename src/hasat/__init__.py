"""Hasat collects from public sources within their limits and hands every change on."""

from importlib.metadata import version

__version__ = version("hasat")
