"""The consumer's side: load a dataset from an archive, follow its feed, know that it is equal.

Touches a Hasat server over HTTP and a database of the user's own; nothing of Hasat's own store.
"""

from hasat.replica.failures import Backoff, DifferentError, StartOverError
from hasat.replica.replica import BlockingReplica, Replica, Report
from hasat.replica.target import State, Target
from hasat.replica.targets import open_target

__all__ = [
    "Backoff",
    "BlockingReplica",
    "DifferentError",
    "Replica",
    "Report",
    "StartOverError",
    "State",
    "Target",
    "open_target",
]
