"""The settings of the source `gib`, and the limits of its upstream."""

from datetime import timedelta
from typing import ClassVar

from pydantic import Field

from hasat.budget import Lane, Upstream
from hasat.settings import LegacyNames, Section, Settings, types


class GibSettings(Section):
    """The e-Fatura and e-İrsaliye taxpayer lists."""

    legacy: ClassVar[LegacyNames] = LegacyNames(
        environment={
            "gib.pk_list_url": ("GibEndpoints__PkListUrl",),
            "gib.gb_list_url": ("GibEndpoints__GbListUrl",),
            "gib.batch_size": ("GibEndpoints__BatchSize",),
            "gib.download_timeout": ("GibEndpoints__DownloadTimeout",),
            "gib.change_retention_days": ("GibEndpoints__ChangeRetentionDays",),
            "gib.max_allowed_removal_percent": ("GibEndpoints__MaxAllowedRemovalPercent",),
            "gib.max_sync_staleness_hours": ("HealthChecks__MaxSyncStalenessHours",),
        },
        retired={"Caching__*": "lookups read the committed tables, so there is no cache to set."},
    )

    pk_list_url: types.HttpUrl = Field(
        default="https://merkeztest.gib.gov.tr/EFaturaMerkez/newUserPkListxml.zip",
        description="The list of mailboxes (PK); the default is GIB's test list.",
    )
    gb_list_url: types.HttpUrl = Field(
        default="https://merkeztest.gib.gov.tr/EFaturaMerkez/newUserGbListxml.zip",
        description="The list of senders (GB); the default is GIB's test list.",
    )
    batch_size: int = Field(
        default=25_000,
        ge=1,
        le=100_000,
        description="About how many taxpayers a sync merges at a time.",
    )
    download_timeout: types.UpToAnHour = Field(
        default=timedelta(minutes=10), description="How long the download of a list may take."
    )
    raw_retention_days: types.Days = Field(
        default=2,
        description="How long downloaded lists are stored verbatim, about 100 MB each; the two "
        "that were applied last stay.",
    )
    change_retention_days: types.Days = Field(
        default=30, description="How long changes can be read."
    )
    max_allowed_removal_percent: types.Percent = Field(
        default=10.0, description="Removed taxpayers above which the guard holds a run."
    )
    max_modified_percent: types.Percent = Field(
        default=20.0, description="Modified taxpayers above which the guard holds a run."
    )
    max_added_percent: types.Percent = Field(
        default=20.0, description="Added taxpayers above which the guard holds a run."
    )
    max_list_users_drop_percent: types.Percent = Field(
        default=10.0, description="Fewer users in one list than last time, above which it is held."
    )
    max_list_bytes_drop_percent: types.Percent = Field(
        default=15.0,
        description="Fewer bytes in the usual records of one list than last time, above which it "
        "is held.",
    )
    max_list_users_growth_percent: types.Growth | None = Field(
        default=None,
        description="More users in one list than last time, above which it is held; "
        "max_added_percent where it is not set.",
    )
    max_list_bytes_growth_percent: types.Growth = Field(
        default=50.0,
        description="More bytes of XML per user in one list than last time, above which it is "
        "held.",
    )
    max_rejects_percent: types.Percent = Field(
        default=1.0, description="Unreadable users in one list above which the guard holds a run."
    )
    max_sync_staleness_hours: int = Field(
        default=24,
        ge=1,
        le=8760,
        description="Age of the last good sync after which health is degraded.",
    )
    daily_requests: types.Count = Field(
        default=500, description="Requests a day, in Turkish time, that may be sent to the lists."
    )
    requests_per_minute: int = Field(
        default=60, ge=1, le=6000, description="Requests a minute that may be sent to the lists."
    )
    search_personal_numbers: bool = Field(
        default=True,
        description="Whether a search shows taxpayers with eleven-digit (personal) numbers.",
    )


def gib_upstream(settings: Settings) -> Upstream:
    """Return the limits of downloads of the lists: far above what scheduled syncs need."""
    limits = settings.section(GibSettings)
    return Upstream(
        "gib",
        zone="Europe/Istanbul",
        day_limit=limits.daily_requests,
        minute_limit=limits.requests_per_minute,
        lanes=(Lane("daily", early=True),),
        opening_seconds=0,
    )
