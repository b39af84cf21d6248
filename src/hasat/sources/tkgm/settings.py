"""The settings of the source `tkgm`, and the limits of its upstream."""

import socket
from collections.abc import Sequence
from datetime import timedelta

from pydantic import Field

from hasat.budget import EndpointLimit, Lane, Upstream
from hasat.fetch import Endpoint
from hasat.settings import Section, Settings, types

WORKERS_SETTING = "tkgm.workers_file"


class TkgmRegistry(Section):
    """Direct access to the land registry, for a machine that has permission."""

    url: types.ApiUrl | None = Field(
        default=None,
        description="Its address, such as https://cbsapi.tkgm.gov.tr/megsiswebapi.v3/api; "
        "without it, it is never asked directly.",
    )
    daily: types.Count = Field(
        default=1000, description="Requests a day, in Turkish time, that may leave from here."
    )
    per_minute: int = Field(
        default=120, ge=1, le=6000, description="Requests a minute, evenly spaced."
    )
    egress: types.Name | None = Field(
        default=None,
        description="The address that requests leave from, by a name; who has the same one "
        "shares its day. Default the machine's name.",
    )


class TkgmEndpoint(Section):
    """The server of `hasat tkgm endpoint`, which forwards requests to the registry."""

    host: types.Host = Field(default="127.0.0.1", description="Address to listen on.")
    port: types.Port = Field(default=8790, description="Port to listen on.")
    api_key: types.Secret | None = Field(
        default=None, description="What X-API-Key must say; the api_key of workers.json."
    )


class TkgmWfs(Section):
    """The official web feature service, for those who have credentials from TKGM."""

    url: types.ApiUrl | None = Field(
        default=None,
        description="Its address, such as https://cbsservis.tkgm.gov.tr/tkgm.ows/wfs; without it, "
        "it is never asked.",
    )
    user: types.Name | None = Field(default=None, description="The user name from TKGM.")
    password: types.Secret | None = Field(default=None, description="The password from TKGM.")
    layer: types.Name = Field(
        default="TKGM:parseller", description="The feature type of the parcels."
    )
    page_size: int = Field(default=1000, ge=10, le=10_000, description="Parcels in one request.")
    daily: types.Count = Field(default=1000, description="Requests a day, in Turkish time.")
    per_minute: int = Field(
        default=30, ge=1, le=6000, description="Requests a minute, evenly spaced."
    )
    timeout: types.UpToTenMinutes = Field(
        default=timedelta(minutes=2), description="How long a page may take."
    )


class TkgmSettings(Section):
    """Cadastral parcels, requested point by point through a pool of endpoints."""

    workers_file: types.File | None = Field(
        default=None, description="The workers.json that lists the endpoints and their key."
    )
    single_timeout: types.UpToTenMinutes = Field(
        default=timedelta(seconds=15), description="How long the answer for one point may take."
    )
    batch_timeout: types.UpToTenMinutes = Field(
        default=timedelta(seconds=60), description="How long the answer for a batch may take."
    )
    batch_size: int = Field(default=20, ge=1, le=20, description="Points asked in one request.")
    raw_retention_days: types.Days = Field(
        default=30, description="How long responses are stored as the registry sent them."
    )
    cooldown_seconds: int = Field(
        default=300,
        ge=1,
        le=86_400,
        description="Rest of an endpoint after a 403 without a reason.",
    )
    daily_per_endpoint: types.Count = Field(
        default=2000, description="Points a day for an endpoint that declares no budget of its own."
    )
    min_interval_ms: int = Field(
        default=200, ge=0, le=60_000, description="Least time between two requests to one endpoint."
    )
    hedge_percent: float = Field(
        default=2.0,
        ge=0,
        le=20,
        description="Second tries for slow answers, as a share; 0 for none.",
    )
    parcel_age: types.Age = Field(
        default=timedelta(days=1), description="Age up to which a known parcel is not asked again."
    )
    not_found_age: types.Age = Field(
        default=timedelta(hours=1), description="Age up to which an empty point is not asked again."
    )
    lists_age: types.Age = Field(
        default=timedelta(days=30),
        description="Age up to which administrative lists are not asked again.",
    )
    max_area_km2: types.Count = Field(
        default=2000, description="Largest area in km² that is scanned without confirmation."
    )
    user_agent: types.Name = Field(default="Hasat", description="What requests call themselves.")
    registry: TkgmRegistry = TkgmRegistry()
    endpoint: TkgmEndpoint = TkgmEndpoint()
    wfs: TkgmWfs = TkgmWfs()


def tkgm_upstream(settings: Settings, endpoints: Sequence[Endpoint] = ()) -> Upstream:
    """Return the limits of TKGM: per endpoint, points a day and a pause between two requests."""
    limits = settings.section(TkgmSettings)
    return Upstream(
        "tkgm",
        zone="Europe/Istanbul",
        each_endpoint=EndpointLimit(limits.daily_per_endpoint, limits.min_interval_ms / 1000),
        endpoints={one.url: EndpointLimit(one.daily, one.min_interval) for one in endpoints},
    )


def registry_upstream(settings: Settings) -> Upstream:
    """Return the limits of direct requests to TKGM, which counts them by egress address."""
    limits = settings.section(TkgmSettings).registry
    return Upstream(
        f"tkgm@{limits.egress or socket.gethostname()}",
        zone="Europe/Istanbul",
        day_limit=limits.daily,
        minute_limit=limits.per_minute,
        lanes=(Lane("daily", early=True),),
        opening_seconds=0,
    )


def wfs_upstream(settings: Settings) -> Upstream:
    """Return the limits of the official service."""
    limits = settings.section(TkgmSettings).wfs
    return Upstream(
        "tkgm_wfs",
        zone="Europe/Istanbul",
        day_limit=limits.daily,
        minute_limit=limits.per_minute,
        lanes=(Lane("daily", early=True),),
        opening_seconds=0,
    )
