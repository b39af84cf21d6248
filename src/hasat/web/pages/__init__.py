"""The pages and their forms, one module per section."""

from hasat.web.page import Action, Page
from hasat.web.pages import (
    audit,
    changes,
    delivery,
    doctor,
    football,
    overview,
    parcels,
    quota,
    runs,
    taxpayers,
)

PAGES: tuple[Page, ...] = (
    *overview.PAGES,
    *quota.PAGES,
    *runs.PAGES,
    *changes.PAGES,
    *taxpayers.PAGES,
    *parcels.PAGES,
    *football.PAGES,
    *delivery.PAGES,
    *audit.PAGES,
    *doctor.PAGES,
)
ACTIONS: tuple[Action, ...] = (*quota.ACTIONS, *runs.ACTIONS, *parcels.ACTIONS, *delivery.ACTIONS)
