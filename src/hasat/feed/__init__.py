"""The heart: reconcile what a run saw with the mirror, and number every change without a gap.

Knows no source by name. Touches only PostgreSQL (schemas feed and core) and the archive folder.
"""
