"""The door to this room's reading: lists in, parts, fingerprints and published bodies out.

A list is opened (`open_list`) and read once (`Reader`) in batches of lines of records not seen
before; all lines of a taxpayer make what is `published` about him. A first run, in which everything
is new, groups them on shelves on disk (`shelve`, `read_shelf`). `Part` and `merge` are the plain
forms of a line and of publishing, for what is unusual.
"""

from hasat.sources.gib.bulk import KeptLines, Shelf, Shelved, read_shelf, shelve
from hasat.sources.gib.errors import ListError
from hasat.sources.gib.fingerprints import Difference, Known, difference
from hasat.sources.gib.lines import identifier_of, line_of, part_of, published, read_line
from hasat.sources.gib.merging import DOCUMENT_OF, Taxpayer, body, canonical_body, merge
from hasat.sources.gib.opening import Limits, ListFile, open_list
from hasat.sources.gib.records import Part, SetAside
from hasat.sources.gib.splitting import Batch, Reader, Tally
from hasat.sources.gib.times import moment

__all__ = [
    "DOCUMENT_OF",
    "Batch",
    "Difference",
    "KeptLines",
    "Known",
    "Limits",
    "ListError",
    "ListFile",
    "Part",
    "Reader",
    "SetAside",
    "Shelf",
    "Shelved",
    "Tally",
    "Taxpayer",
    "body",
    "canonical_body",
    "difference",
    "identifier_of",
    "line_of",
    "merge",
    "moment",
    "open_list",
    "part_of",
    "published",
    "read_line",
    "read_shelf",
    "shelve",
]
