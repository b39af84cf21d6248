"""Which datasets a path reads, for keys that are restricted to some.

A path below `/api/v1/DATASET` reads that dataset. Any other route is closed to such a key, unless
its author marks it with `reads(...)`: with the datasets that it reads, or with none if it checks
the dataset itself.
"""

from collections.abc import Collection

from hasat.api.middleware import RouteTable
from hasat.http.routes import Caller, DatasetNotAllowedError, check_dataset_access, datasets_read_by
from hasat.messages import msg

_PREFIX = "/api/v1/"


class DatasetAccess:
    """Checks requests of restricted keys against the declared routes."""

    def __init__(self, routes: RouteTable, datasets: Collection[str]) -> None:
        self._routes = routes
        self._datasets = frozenset(datasets)

    def check(self, caller: Caller, path: str, method: str) -> None:
        """Reject a request that reads what the caller's key may not read."""
        if caller.datasets is None:
            return
        declared = datasets_read_by(self._routes.endpoint(path, method))
        if declared is None:
            first = path.removeprefix(_PREFIX).partition("/")[0]
            if path.startswith(_PREFIX) and first in self._datasets:
                declared = frozenset({first})
            else:
                raise DatasetNotAllowedError(
                    msg(
                        "The key of {caller!r} is restricted to datasets; {path} is not part of "
                        "them.",
                        caller=caller.name,
                        path=path[:100],
                    ),
                    remedy=msg(
                        "Its datasets: {datasets}. The operator changes them with "
                        "`hasat keys datasets`.",
                        datasets=", ".join(sorted(caller.datasets)),
                    ),
                )
        for dataset in sorted(declared):
            check_dataset_access(caller, dataset)
