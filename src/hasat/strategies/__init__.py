"""Strategies: complete jobs for simple sources, which then need a parser and nothing else.

- `WholeList`: one download covers the whole dataset.
- `PerKey`: one request per record, oldest first, for the keys of a watch set.

Both fetch with a grant, store what the upstream sent, parse, reconcile under the guard and commit.
Their `job(dataset)` goes to the jobs of the source, their `rebuild` recomputes the dataset from the
stored responses.
"""

from hasat.strategies.per_key import PerKey
from hasat.strategies.records import UnreadableRecordError, record_of
from hasat.strategies.watched_keys import WatchedKey, add_keys, read_keys, remove_keys
from hasat.strategies.whole_list import WholeList

__all__ = [
    "PerKey",
    "UnreadableRecordError",
    "WatchedKey",
    "WholeList",
    "add_keys",
    "read_keys",
    "record_of",
    "remove_keys",
]
