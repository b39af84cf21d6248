"""Rendering of pages: templates, navigation and language, and the static files they load."""

import hashlib
import json
import mimetypes
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime
from importlib.resources.abc import Traversable
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from jinja2 import BaseLoader, ChoiceLoader, DictLoader, Environment, PrefixLoader, StrictUndefined
from pydantic.alias_generators import to_camel
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from hasat import __version__
from hasat.errors import NotFoundError
from hasat.http.routes import Caller
from hasat.messages import LANGUAGES, Language, msg
from hasat.pages import Page, PageContext, PageRequest
from hasat.web.charts import day_chart, sparkline, timeline
from hasat.web.localization import COOKIE, Localizer, request_language
from hasat.web.site import Site
from hasat.web.values import FILTERS

_YEAR_SECONDS = 365 * 86400
_LANGUAGE_NAMES = {"en": "English", "tr": "Türkçe"}
_COORDINATES = re.compile(r"\[\s+(-?[\d.]+),\s+(-?[\d.]+)\s+\]")
_CACHE_FOREVER = "public, max-age=31536000, immutable"
_CACHE_BRIEFLY = "public, max-age=300"


class Renderer:
    """Renders a page as HTML, its live parts alone, or its data as JSON."""

    def __init__(self, context: PageContext, site: Site, static_files: "StaticFiles") -> None:
        self.context = context
        self._site = site
        self._templates = Environment(
            loader=_loader(site.templates),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {"pretty": _pretty, "to_json": to_json, **FILTERS}
        self._templates.globals |= {
            "version": __version__,
            "static": static_files.address,
            "has_static": static_files.has,
            "zone": context.zone,
            "timeline": timeline,
            "day_chart": day_chart,
            "record_address": site.record_address,
            "list_address": site.list_address,
            "sparkline": sparkline,
        }
        # Compile the templates now, so that the first request does not wait.
        for name in self._templates.list_templates():
            self._templates.get_template(name)

    async def respond(self, request: Request, page: Page) -> Response:
        """Return the page, or its data if the client prefers JSON."""
        page_request = PageRequest.from_http(self.context, request)
        data = await page.load(page_request)
        status = page.status(data)
        if prefers_json(request.headers.get("accept", "")):
            return json_response(data, status)
        return self.html(request, page.name, page_request, status=status, page=page, data=data)

    def html(
        self,
        request: Request,
        template: str,
        page_request: PageRequest,
        *,
        status: int = 200,
        page: Page | None = None,
        **variables: Any,
    ) -> Response:
        """Render a whole page."""
        language = request_language(request)
        query = {k: v for k, v in request.query_params.items() if k != "lang"}
        exchange = request.scope.get("hasat")
        caller: Caller | None = exchange.caller if exchange else None
        json_path = page.json_path.format_map(request.path_params) if page else None
        content = self._templates.get_template(f"{template}.html").render(
            layout="base.html",
            t=self._localizer(language),
            request=page_request,
            section=page.section if page else "",
            title=self._site.title(page.section) if page else "",
            navigation=[
                entry
                for entry in self._site.navigation
                if page_request.may_operate or not entry.for_operators
                if self._site.is_open(entry, caller)
            ],
            languages=[
                (one, _LANGUAGE_NAMES[one], f"?{urlencode({**query, 'lang': one})}")
                for one in LANGUAGES
            ],
            caller=caller,
            json_url=json_path and _with_query(json_path, query),
            url=_with_query(request.url.path, query),
            live=page is not None,
            **variables,
        )
        response = HTMLResponse(content, status, {"Vary": "Accept, Accept-Language, Cookie"})
        if request.query_params.get("lang") == language:
            response.set_cookie(
                COOKIE, language, max_age=_YEAR_SECONDS, httponly=True, samesite="lax"
            )
        return response

    def live_parts(self, page: Page, request: PageRequest, language: Language, data: Any) -> str:
        """Render the parts of a page that an open page updates."""
        return self._templates.get_template(f"{page.name}.html").render(
            layout="bare.html", t=self._localizer(language), request=request, data=data
        )

    def _localizer(self, language: Language) -> Localizer:
        return Localizer(language, self.context.zone, self._site.labels)


@dataclass(frozen=True)
class _StaticFile:
    content: bytes
    media_type: str
    version: str


class StaticFiles:
    """Folders of static files, read once; an address has the file's digest and never expires."""

    def __init__(self, folders: Mapping[str, Traversable]) -> None:
        self._files: Mapping[str, _StaticFile] = {
            file_name: file
            for name, folder in folders.items()
            for file_name, file in _read(folder, f"{name}/" if name else "")
        }

    def has(self, name: str) -> bool:
        """Whether a file exists: scripts are missing where they could not be built."""
        return name in self._files

    def address(self, name: str) -> str:
        return f"/static/{name}?v={self._files[name].version}"

    async def respond(self, request: Request) -> Response:
        """Return the file that an address names."""
        path = request.url.path
        # Browsers request /favicon.ico for a JSON document.
        name = "favicon.svg" if path.startswith("/favicon.") else path.removeprefix("/static/")
        file = self._files.get(name)
        if file is None:
            raise NotFoundError(msg("There is no file {path}.", path=path))
        is_current = request.query_params.get("v") == file.version
        headers = {"Cache-Control": _CACHE_FOREVER if is_current else _CACHE_BRIEFLY}
        return Response(file.content, media_type=file.media_type, headers=headers)


def _read(folder: Traversable, prefix: str) -> Iterator[tuple[str, _StaticFile]]:
    for one in folder.iterdir():
        name = f"{prefix}{one.name}"
        if one.is_dir():
            yield from _read(one, f"{name}/")
        else:
            content = one.read_bytes()
            media_type = mimetypes.guess_type(one.name)[0] or "application/octet-stream"
            yield name, _StaticFile(content, media_type, hashlib.sha256(content).hexdigest()[:12])


def _loader(folders: Mapping[str, Traversable]) -> BaseLoader:
    """Return a loader of the platform's templates, and of a source's by `<source>/<name>`."""
    loaders = {
        name: DictLoader({one.name: one.read_text("utf-8") for one in folder.iterdir()})
        for name, folder in folders.items()
    }
    return ChoiceLoader([loaders.pop(""), PrefixLoader(loaders)])


def json_response(data: Any, status: int = 200) -> Response:
    """Return the data of a page as JSON."""
    return JSONResponse(to_json(data), status, headers={"Vary": "Accept"})


def to_json(value: Any) -> Any:
    """Convert a page's data to JSON values: fields in camel case, keys of mappings unchanged."""
    if is_dataclass(value) and not isinstance(value, type):
        return {to_camel(one.name): to_json(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {to_camel(name): to_json(one) for name, one in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(key): to_json(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [to_json(one) for one in value]
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value


def prefers_json(accept: str) -> bool:
    """Whether an Accept header names JSON and not HTML."""
    return "application/json" in accept and "text/html" not in accept


def _pretty(value: Any) -> str:
    """Indent JSON, with each pair of coordinates on one line."""
    return _COORDINATES.sub(r"[\1, \2]", json.dumps(value, ensure_ascii=False, indent=2))


def _with_query(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path
