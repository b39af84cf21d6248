"""The server as `hasat serve` runs it: the API and the dashboard of all installed sources."""

from fastapi import FastAPI

from hasat.api.app import create_app
from hasat.console.runtime import build_catalogue
from hasat.settings import Settings
from hasat.source.installed import all_sources
from hasat.store import Store
from hasat.web import add_pages


def complete_app(settings: Settings, store: Store) -> FastAPI:
    """Return the app with every job, route and page."""
    catalogue = build_catalogue(settings)
    app = create_app(settings, store, catalogue, all_sources())
    add_pages(app, settings, store, catalogue, all_sources())
    return app
