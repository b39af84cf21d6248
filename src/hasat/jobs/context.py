"""What a running job is given."""

import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

import structlog

from hasat.errors import ConflictError
from hasat.jobs.link import AWAY
from hasat.jobs.model import Job
from hasat.settings import Settings
from hasat.store import Store

Keep = Callable[[Mapping[str, Any] | None, int], Awaitable[bool]]
"""Stores progress and newly spent requests; False once the run is no longer this attempt's."""

OnProgress = Callable[[float, float | None, str], None]

_KEEP_EVERY_SECONDS = 1.0


class RunContext:
    """One attempt at a run, as the job sees it."""

    def __init__(
        self,
        *,
        run_id: int,
        job: Job,
        params: Mapping[str, Any],
        scheduled_for: datetime | None,
        settings: Settings,
        store: Store,
        keep: Keep | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.run_id = run_id
        self.job = job
        self.params = params
        self.scheduled_for = scheduled_for
        self.settings = settings
        self.store = store
        self.log = structlog.get_logger("hasat.job").bind(
            run=run_id, job=job.name, source=job.source
        )
        self.last_progress: Mapping[str, Any] | None = None
        self.unkept_requests = 0
        self._keep = keep
        self._on_progress = on_progress
        self._kept_at = float("-inf")

    async def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Tell how far the run is; cheap enough to call for every step.

        Raises ConflictError if the run was begun anew elsewhere while this worker was silent.
        """
        self.last_progress = {"done": done, "total": total, "note": note}
        if self._on_progress is not None:
            self._on_progress(done, total, note)
        now = time.monotonic()
        if self._keep is None or now - self._kept_at < _KEEP_EVERY_SECONDS:
            return
        self._kept_at = now
        requests, self.unkept_requests = self.unkept_requests, 0
        try:
            still_ours = await self._keep(self.last_progress, requests)
        except AWAY:
            # Progress is not worth failing for; the next call or the end of the run stores it.
            self.unkept_requests += requests
            return
        if not still_ours:
            raise ConflictError(
                f"Run {self.run_id} was begun anew by another worker while this one was silent."
            )

    def spent(self, requests: int = 1) -> None:
        """Count requests sent to an upstream."""
        self.unkept_requests += requests
