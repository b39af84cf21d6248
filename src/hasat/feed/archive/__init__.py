"""Archives: a whole dataset as files, from one snapshot, for those who begin to follow.

Touches PostgreSQL (schema feed, reading core) and the place where archives are kept.
"""

from hasat.feed.archive.facts import Archive, Facts
from hasat.feed.archive.places import Place, place_of
from hasat.feed.archive.write import write_archives

__all__ = ["Archive", "Facts", "Place", "place_of", "write_archives"]
