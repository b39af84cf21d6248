"""The pages, each in a module of its own, and what their forms do."""

from hasat.web.page import Action, Page
from hasat.web.pages import overview, parcels, quota, runs

PAGES: tuple[Page, ...] = (
    *overview.PAGES,
    *quota.PAGES,
    *runs.PAGES,
    *parcels.PAGES,
)
ACTIONS: tuple[Action, ...] = (*runs.ACTIONS, *parcels.ACTIONS)
