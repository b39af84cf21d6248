"""The job `tkgm_scan`: a scan by a worker, as far as the day's quota goes."""

from typing import Any, Literal

from hasat.errors import OutOfQuotaError, UsageError
from hasat.fetch import Asker
from hasat.jobs import Job, Outcome, RunContext
from hasat.messages import msg
from hasat.settings import Settings, kinds
from hasat.sources.tkgm.aims import Quality
from hasat.sources.tkgm.datasets import SOURCE

NAME = "tkgm_scan"
LANE = "daily"


def lacks(settings: Settings) -> str | None:
    """What must be set before parcels can be asked for."""
    if settings.tkgm.workers_file is None:
        return "TKGM has no endpoints to ask: name your workers.json in tkgm.workers_file."
    return None


async def run(context: RunContext) -> Outcome:
    """Scan `area`, a box or GeoJSON; `quality`, `max_queries` and `removals` as in the command."""
    # Whoever lists jobs need not load what works with geometry.
    from hasat.sources.tkgm.asking import registry
    from hasat.sources.tkgm.report import course_told, note_of
    from hasat.sources.tkgm.scanning import Course, Scan

    workers = context.settings.tkgm.workers_file
    if workers is None:
        raise UsageError(
            msg("There are no endpoints to ask."),
            remedy=msg("Name your workers.json in tkgm.workers_file."),
        )
    wish = _wish(context.params)
    async with registry(context.store, context.settings, workers, waiting=context.waiting) as asked:
        counted = 0

        async def tell(course: Course) -> None:
            nonlocal counted
            context.spent(asked.requests - counted)
            counted = asked.requests
            await context.progress(course.asked, course.questions, note_of(course))

        scan = Scan(
            context.store,
            asked,
            wish,
            Asker(LANE, NAME, context.run_id),
            tell,
            removals=context.params.get("removals") or "hold",
        )
        kind, message = "done", None
        try:
            course = await scan.run()
            if not course.complete:
                message = "Stopped at max_queries: the next run with the same area goes on."
        except OutOfQuotaError as error:
            kind, message = "out_of_quota", error.message
            course = await scan.course()
        context.spent(asked.requests - counted)
    return Outcome(
        kind,  # type: ignore[arg-type]
        rows_changed=course.changes.total,
        detail=course_told(course),
        message=message,
    )


def _wish(params: Any) -> Any:
    from hasat.sources.tkgm.area import area_of
    from hasat.sources.tkgm.wishes import Wish

    if not params.get("area"):
        raise UsageError(
            msg("Which area?"),
            remedy=msg("Give the parameter area: west,south,east,north in degrees, or GeoJSON."),
        )
    quality: Quality = params.get("quality") or "standard"
    return Wish(area_of(params["area"]), quality, max_questions=params.get("max_queries"))


SCAN = Job(
    NAME,
    run,
    "Finds all parcels of an area; goes on where it was when the quota ended.",
    lane=LANE,
    overlap="queue",
    options={
        "area": object,
        "quality": Quality,
        "max_queries": kinds.Count,
        "removals": Literal["hold", "accept", "reject"],
    },
    source=SOURCE,
)
