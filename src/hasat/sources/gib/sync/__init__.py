"""Synchronisation of the mirror with the taxpayer lists."""
