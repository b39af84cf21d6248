"""`hasat tkgm scan`: run a scan with progress, and write its files."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.text import Text
from shapely.geometry import mapping, shape

from hasat.console import context, output
from hasat.errors import OutOfQuotaError
from hasat.feed.holds import GuardError
from hasat.fetch import RequestContext
from hasat.jobs.approvals import hold_command
from hasat.messages import join, msg
from hasat.settings import Settings
from hasat.sources.tkgm.export import check_extension, export, export_unknown, without_parcels
from hasat.sources.tkgm.geometry import geodesic_area
from hasat.sources.tkgm.picture import check_picture_extension, draw
from hasat.sources.tkgm.queries import load_parcels
from hasat.sources.tkgm.registry.client import RegistryClient
from hasat.sources.tkgm.scan.progress import (
    Forecast,
    ScanProgress,
    ScanRequest,
    check_budget,
    claim_texts,
    first_estimate_text,
    forecast_text,
    progress_document,
    progress_note,
)
from hasat.sources.tkgm.scan.runner import Scan
from hasat.sources.tkgm.source import LANE, NAME, SCAN
from hasat.store import Store

_INCOMPLETE = 1


@dataclass(frozen=True)
class Files:
    """The files to write at the end of a scan."""

    out: Path | None
    unknown: Path | None
    picture: Path | None
    umask: int

    @property
    def wanted(self) -> bool:
        return any((self.out, self.unknown, self.picture))

    def check(self) -> None:
        """Reject file names of unknown formats before any request is sent."""
        for path in (self.out, self.unknown):
            if path is not None:
                check_extension(path)
        if self.picture is not None:
            check_picture_extension(self.picture)


async def run_scan(
    store: Store,
    settings: Settings,
    registry: RegistryClient,
    request: ScanRequest,
    files: Files,
    *,
    yes: bool,
    only_estimate: bool,
) -> tuple[dict[str, Any], int]:
    """Run a scan; return its result and the exit code of the command.

    Without `yes`, a scan that takes more than a day's budget stops after its sample.
    """
    km2 = geodesic_area(request.area) / 1e6
    output.note(msg("The area has {km2:,.2f} km².", km2=km2))
    with _progress() as on_progress:
        scan = Scan(store, registry, request, RequestContext(LANE, NAME), on_progress)
        result_forecast: Forecast | None = None

        async def show_forecast(forecast: Forecast) -> None:
            nonlocal result_forecast
            result_forecast = forecast
            output.note(forecast_text(forecast, (await scan.progress()).quota_left))
            if not yes:
                check_budget(request, forecast.questions, registry.day_budget)

        if request.method == "grid" and not (only_estimate or yes):
            check_budget(request, round(km2 * 1e6 / request.step**2), registry.day_budget)
        scan.on_forecast = None if only_estimate else show_forecast
        code, hold = 0, None
        message: str | None = None
        try:
            if only_estimate:
                result_forecast = await scan.run_sample()
            elif not (await scan.run()).complete:
                code, message = _INCOMPLETE, msg("Stopped at --max-queries.")
        except GuardError as error:
            params = {"area": mapping(request.area), "quality": request.quality}
            hold = await hold_command(store, settings, SCAN, params, error)
            code = error.exit_code
            message = join([error.message, msg("`hasat holds show {hold}` shows them.", hold=hold)])
        except OutOfQuotaError as error:
            code, message = error.exit_code, str(error)
        progress = await scan.progress()
    result: dict[str, Any] = {
        **progress_document(progress),
        "areaKm2": round(km2, 4),
        "forecast": None if result_forecast is None else asdict(result_forecast),
        "missingNumbers": scan.missing_numbers(),
        "requests": registry.requests,
        "message": message,
        "hold": hold,
        "onlyEstimate": only_estimate,
        "file": None,
        "unknownFile": None,
        "picture": None,
    }
    if files.wanted and not only_estimate:
        with context.umask(files.umask):
            result |= await _write(store, scan, request, files)
    return result, code


async def _write(store: Store, scan: Scan, request: ScanRequest, files: Files) -> dict[str, Any]:
    """Write the files and return their paths and counts."""
    parcels = await load_parcels(store, request.area)
    outlines = [shape(one.feature["geometry"]) for one in parcels if one.feature is not None]
    unknown = without_parcels(scan.unknown_areas(), outlines, request.area)
    written: dict[str, Any] = {"unknown": len(unknown)}
    now = await store.now()
    if files.out is not None:
        written |= {"exported": export(parcels, files.out), "file": str(files.out)}
        if files.unknown is None:
            written["unknownFile"] = str(export_unknown(unknown, files.out, now))
    if files.unknown is not None:
        written["unknownFile"] = str(export_unknown(unknown, files.unknown, now, alone=True))
    if files.picture is not None:
        draw(files.picture, request.area, outlines, await scan.empty_points(), unknown)
        written["picture"] = str(files.picture)
    return written


@contextmanager
def _progress() -> Iterator[Callable[[ScanProgress], Awaitable[None]] | None]:
    with output.progress_bar("tkgm scan") as on_progress:
        if on_progress is None:
            yield None
            return

        async def show(progress: ScanProgress) -> None:
            on_progress(progress.queries, progress.total_queries, progress_note(progress))

        yield show


def render_scan(result: dict[str, Any]) -> Text:
    """Return the result of a scan as text."""
    lines: list[str] = []
    if result["onlyEstimate"]:
        lines.append(_render_estimate(result))
    else:
        lines.append(
            msg(
                "Scan {scan} is {state}: {parcels:,} parcels, {now:,} queries now, "
                "{before:,} before.",
                scan=result["scan"],
                state=msg("complete") if result["complete"] else msg("not complete"),
                parcels=result["parcels"],
                now=result["questions"],
                before=result["knownBefore"],
            )
        )
        lines.append(
            msg("{added:,} added, {modified:,} modified, {removed:,} removed.", **result["changes"])
        )
        if count := result["unanswered"]:
            lines.append(msg("{count:,} queries without a response were left out.", count=count))
        lines += _render_completeness(result)
    if result["message"]:
        resumes = [] if result["complete"] else [msg("The same command resumes the scan.")]
        lines.append(join([result["message"], *resumes]))
    if file := result["file"]:
        count = result["exported"]
        lines.append(
            msg("{count:,} parcels of the area written to {file}.", count=count, file=file)
        )
    if file := result["unknownFile"]:
        count = result["unknown"]
        lines.append(msg("{count:,} areas that are still unknown: {file}.", count=count, file=file))
    if file := result["picture"]:
        lines.append(msg("Picture: {file}.", file=file))
    return output.text(lines)


def _render_estimate(result: dict[str, Any]) -> str:
    if result["forecast"] is None:
        return msg("No estimate: the area is too small for a sample, or the method is grid.")
    text = forecast_text(Forecast(**result["forecast"]), result["quotaLeft"])
    count = result["questions"]
    cost = msg("This took {count:,} queries, whose responses are stored.", count=count)
    return join([text, cost])


def _render_completeness(result: dict[str, Any]) -> list[str]:
    estimate, share = result["estimate"], result["completeness"]
    if estimate is None:
        return []
    if result["complete"]:
        if share is None:
            return [msg("No parcel found. Check the coordinates: longitude comes first.")]
        return _render_claim(share, result)
    return [
        msg(
            "About {expected:,.0f} parcels in total ({low:,.0f} to {high:,.0f}), "
            "{questions_left:,} queries left.",
            **{name: estimate[name] for name in ("expected", "low", "high", "questions_left")},
        )
    ]


def _render_claim(share: dict[str, Any], result: dict[str, Any]) -> list[str]:
    """Return what the scan claims, why, and whether its first estimate held."""
    if "audit" not in share:
        return [msg("The parcels found are too small to claim that none is missing.")]
    lines: list[str] = [*claim_texts(share)]
    if result["firstEstimate"] in ("too low", "too high"):
        lines.append(first_estimate_text(result["forecast"], result["firstEstimate"]))
    return lines
