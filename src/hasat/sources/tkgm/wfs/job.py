"""The job `tkgm_wfs`: copy the parcels of an area from the official service, complete."""

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from shapely import box

from hasat.budget import Budget, Remaining
from hasat.errors import BrokenAnswerError, OutOfQuotaError, SettingsError, UsageError
from hasat.feed.raw import RawRequest, delete_expired_bodies, store_body
from hasat.fetch import (
    Client,
    ClientOptions,
    Fetcher,
    Outcome,
    Request,
    RequestContext,
    Response,
    Verdict,
)
from hasat.fetch.outcomes import classify_status
from hasat.jobs import Outcome as RunOutcome
from hasat.jobs import RunContext
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources.tkgm.features import format_key, publish_parcels, remove_parcels
from hasat.sources.tkgm.geometry import check_in_turkey, check_size, parse_area
from hasat.sources.tkgm.queries import load_parcels
from hasat.sources.tkgm.registry.wire import is_daily_limit
from hasat.sources.tkgm.settings import TkgmSettings, wfs_upstream
from hasat.sources.tkgm.wfs.features import FeaturePage, exception_text, parse_page
from hasat.store import Store
from hasat.store.quarantine import QuarantinedRecord, quarantine

NAME = "tkgm_wfs"
_DATASET = "parcels"
_MAX_BYTES = 256 * 1024 * 1024


def lacks_wfs(settings: Settings) -> str | None:
    """Return what is missing to ask the official service."""
    wfs = settings.section(TkgmSettings).wfs
    if wfs.url is None or wfs.user is None or wfs.password is None:
        return msg("The official service needs tkgm.wfs.url, tkgm.wfs.user and tkgm.wfs.password.")
    return None


def classify_page(response: Response) -> Verdict:
    """Classify a response of the service, which reports errors with status 200 too."""
    verdict = classify_status(response)
    text = exception_text(response.body)
    if text is None:
        return verdict
    if is_daily_limit(text):
        return Verdict(Outcome.DAY_EXHAUSTED, text[:200])
    if verdict.outcome is Outcome.OK:
        return Verdict(Outcome.BAD_REQUEST, text[:200])
    return Verdict(verdict.outcome, text[:200], verdict.retry_after)


@dataclass
class WfsCopy:
    """The copy of one box: pages, then what is gone."""

    context: RunContext
    fetcher: Fetcher
    bounds: tuple[float, float, float, float]
    seen: set[str] = field(default_factory=set)
    unreadable: int = 0
    changed: int = 0

    async def run(self) -> None:
        """Copy every page, then remove the parcels of the box that the service lacks."""
        settings = self.context.settings.section(TkgmSettings).wfs
        start = 0
        while True:
            page = await self._page(start, settings.page_size)
            parcels = {format_key(one.key): one for one in page.parcels}
            new = parcels.keys() - self.seen
            if parcels and not new:
                raise BrokenAnswerError(
                    msg("The service repeats a page: it ignores STARTINDEX."),
                    remedy=msg("Copy smaller areas, or set tkgm.wfs.page_size higher."),
                )
            version = await publish_parcels(self.context.store, parcels, run=self.context.run_id)
            counts = version.counts[_DATASET]
            self.changed += counts.added + counts.modified
            self.seen |= new
            await self.context.progress(len(self.seen), None, f"{len(self.seen):,}")
            if page.features < settings.page_size:
                break
            start += page.features
        if self.unreadable == 0:
            await self._remove_gone()

    async def _page(self, start: int, size: int) -> FeaturePage:
        settings = self.context.settings.section(TkgmSettings)
        west, south, east, north = self.bounds
        params = {
            "SERVICE": "WFS",
            "VERSION": "1.1.0",
            "REQUEST": "GetFeature",
            "TYPENAME": settings.wfs.layer,
            "SRSNAME": "EPSG:4326",
            "MAXFEATURES": str(size),
            "STARTINDEX": str(start),
            "CQL_FILTER": f"BBOX(geom,{west:.7f},{south:.7f},{east:.7f},{north:.7f})",
        }
        request = Request("", settings.wfs.timeout.total_seconds(), kind="page", params=params)
        fetched = await self.fetcher.fetch(
            request, RequestContext("daily", NAME, self.context.run_id)
        )
        self.context.count_requests(1)
        if fetched.verdict.outcome is not Outcome.OK or fetched.response is None:
            raise BrokenAnswerError(
                msg("The service refuses the request: {reason}.", reason=fetched.verdict.reason),
                remedy=msg("Check tkgm.wfs.layer and tkgm.wfs.url."),
            )
        await self._store_raw(params, fetched.response)
        page = parse_page(fetched.body)
        await self._quarantine(page)
        return page

    async def _store_raw(self, params: Mapping[str, str], response: Response) -> None:
        what = f"{params['TYPENAME']} {params['CQL_FILTER']} {params['STARTINDEX']}"
        raw = RawRequest("tkgm", _DATASET, what, what, response.status, response.headers)
        days = self.context.settings.section(TkgmSettings).raw_retention_days
        async with self.context.store.connection() as conn:
            await delete_expired_bodies(conn, "tkgm", _DATASET, days)
            await store_body(conn, raw, response.body, run=self.context.run_id)

    async def _quarantine(self, page: FeaturePage) -> None:
        self.unreadable += len(page.unreadable)
        asides = [QuarantinedRecord("wfs", reason, body) for reason, body in page.unreadable]
        if asides:
            async with self.context.store.connection() as conn:
                await quarantine(conn, "tkgm", self.context.run_id, asides)

    async def _remove_gone(self) -> None:
        """Remove the parcels inside the box that the complete response does not have."""
        known = await load_parcels(self.context.store, box(*self.bounds))
        keys = [str(one.feature["id"]) for one in known if one.feature is not None]
        gone = [key for key in keys if key not in self.seen]
        if gone:
            version = await remove_parcels(
                self.context.store, gone, run=self.context.run_id, known=len(keys)
            )
            self.changed += version.counts[_DATASET].removed


async def copy_area(context: RunContext) -> RunOutcome:
    """Copy the parcels of `area`; the official list is complete, so absence means removal."""
    if (missing := lacks_wfs(context.settings)) is not None:
        raise SettingsError(missing, remedy=msg("TKGM gives credentials to those it permits."))
    if not context.params.get("area"):
        raise UsageError(
            msg("The parameter area is missing."),
            remedy=msg("Give area as west,south,east,north in degrees, or as GeoJSON."),
        )
    area = parse_area(context.params["area"])
    if not context.params.get("yes"):
        check_in_turkey(area)
        check_size(area, context.settings.section(TkgmSettings).max_area_km2)
    async with _fetcher(context.store, context.settings) as fetcher:
        copy = WfsCopy(context, fetcher, area.bounds)
        kind, message = "done", None
        try:
            await copy.run()
        except OutOfQuotaError as error:
            kind, message = "out_of_quota", error.message
    detail = {"parcels": len(copy.seen), "unreadable": copy.unreadable}
    return RunOutcome(
        kind,  # type: ignore[arg-type]
        rows_changed=copy.changed,
        detail=detail,
        message=message,
    )


@asynccontextmanager
async def _fetcher(store: Store, settings: Settings) -> AsyncIterator[Fetcher]:
    tkgm = settings.section(TkgmSettings)
    wfs = tkgm.wfs
    assert wfs.url is not None
    assert wfs.user is not None
    assert wfs.password is not None
    pair = f"{wfs.user}:{wfs.password.get_secret_value()}".encode()
    headers = {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    upstream = wfs_upstream(settings)
    options = ClientOptions(tkgm.user_agent, headers, max_bytes=_MAX_BYTES)
    async with Budget(store, upstream) as budget, Client(options) as client:
        yield Fetcher(
            store,
            budget,
            client,
            upstream.name,
            wfs.url,
            classify_page,
            lambda headers: Remaining(),
        )
