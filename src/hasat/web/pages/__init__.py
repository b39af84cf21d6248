"""The pages, each in a module of its own, and what their forms do."""

from hasat.web.page import Action, Page
from hasat.web.pages import (
    changes,
    delivery,
    doctor,
    football,
    overview,
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
    *football.PAGES,
    *delivery.PAGES,
    *doctor.PAGES,
)
ACTIONS: tuple[Action, ...] = (*runs.ACTIONS, *delivery.ACTIONS)
