"""The pages of the platform and their forms, one module per section."""

from hasat.messages import template
from hasat.pages import Action, NavigationEntry, Page
from hasat.web.pages import (
    audit,
    changes,
    delivery,
    doctor,
    keys,
    overview,
    quota,
    receipts,
    records,
    runs,
    search,
    settings,
    watchlists,
)

PAGES: tuple[Page, ...] = (
    *overview.PAGES,
    *quota.PAGES,
    *runs.PAGES,
    *records.PAGES,
    *changes.PAGES,
    *watchlists.PAGES,
    *delivery.PAGES,
    *keys.PAGES,
    *receipts.PAGES,
    *audit.PAGES,
    *settings.PAGES,
    *doctor.PAGES,
    *search.PAGES,
)
ACTIONS: tuple[Action, ...] = (
    *overview.ACTIONS,
    *quota.ACTIONS,
    *runs.ACTIONS,
    *watchlists.ACTIONS,
    *delivery.ACTIONS,
)
NAVIGATION: tuple[NavigationEntry, ...] = (
    NavigationEntry("overview", template("Overview"), "/", 10),
    NavigationEntry("quota", template("Quota"), "/quota", 20),
    NavigationEntry("runs", template("Runs and jobs"), "/runs", 30),
    NavigationEntry("records", template("Records"), "/records", 35),
    NavigationEntry("changes", template("Changes"), "/changes", 40),
    NavigationEntry("watchlists", template("Watch lists"), "/watchlists", 75),
    NavigationEntry("delivery", template("Delivery"), "/delivery", 80),
    NavigationEntry("keys", template("API keys"), "/keys", 85),
    NavigationEntry("receipts", template("Receipts"), "/receipts", 87),
    NavigationEntry("audit", template("Audit log"), "/audit", 90, for_operators=True),
    NavigationEntry("settings", template("Settings"), "/settings", 95, for_operators=True),
    NavigationEntry("doctor", template("Diagnostics"), "/doctor", 100, for_operators=True),
)
