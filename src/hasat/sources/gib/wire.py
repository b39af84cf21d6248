"""The door to this room's reading: lists in, parts, fingerprints and published bodies out.

A list is opened (`open_list`), read once (`Reader`) in batches of records not seen before, and its
records merged per taxpayer (`merge`, `canonical_body`). A first run, in which everything is new,
goes through lines on shelves on disk (`shelve`, `line_groups`, `published`).
"""

from hasat.sources.gib.bulk import SHELVES, Group, LineGroup, Shelved, groups, line_groups, shelve
from hasat.sources.gib.errors import ListError
from hasat.sources.gib.fingerprints import Difference, Known, difference
from hasat.sources.gib.lines import line_of, part_of, published, read_line
from hasat.sources.gib.merging import DOCUMENT_OF, Taxpayer, body, canonical_body, merge
from hasat.sources.gib.opening import Limits, ListFile, open_list
from hasat.sources.gib.records import Part, SetAside
from hasat.sources.gib.splitting import Batch, LineReader, Reader, Tally
from hasat.sources.gib.times import moment

__all__ = [
    "DOCUMENT_OF",
    "SHELVES",
    "Batch",
    "Difference",
    "Group",
    "Known",
    "Limits",
    "LineGroup",
    "LineReader",
    "ListError",
    "ListFile",
    "Part",
    "Reader",
    "SetAside",
    "Shelved",
    "Tally",
    "Taxpayer",
    "body",
    "canonical_body",
    "difference",
    "groups",
    "line_groups",
    "line_of",
    "merge",
    "moment",
    "open_list",
    "part_of",
    "published",
    "read_line",
    "shelve",
]
