"""The frame around every page: templates, language, navigation, and the JSON twin."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from hasat import __version__
from hasat.clock import system_clock
from hasat.http.routes import Caller, exchange_of
from hasat.messages import LANGUAGES, Language
from hasat.web.charts import day_chart, timeline
from hasat.web.page import Asked, House, Page
from hasat.web.statics import Statics
from hasat.web.twin import as_json
from hasat.web.words import COOKIE, Words, language_of

NAVIGATION = (
    "overview",
    "quota",
    "runs",
    "changes",
    "taxpayers",
    "parcels",
    "football",
    "delivery",
    "audit",
    "doctor",
)
"""The order of the entries; one without a page is left out."""

_A_YEAR = 365 * 86400
_NOT_THE_PAGE = frozenset({"lang"})
_PAIR = re.compile(r"\[\s+(-?[\d.]+),\s+(-?[\d.]+)\s+\]")


class Frame:
    """Renders pages; the same data as a page, as its live part alone, or as JSON."""

    def __init__(self, house: House, pages: Sequence[Page], statics: Statics) -> None:
        self.house = house
        by_place = {page.name: page for page in pages}
        self._entries = [(name, by_place[name].path) for name in NAVIGATION if name in by_place]
        self._templates = Environment(
            loader=PackageLoader("hasat.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {"pretty": _pretty, "twin": as_json}
        self._templates.globals |= {
            "version": __version__,
            "static": statics.address,
            "has_static": statics.has,
            "zone": house.zone,
            "moment": self._moment,
            "timeline": timeline,
            "day_chart": day_chart,
        }
        # Now, so that the first reader does not wait for it.
        for name in self._templates.list_templates():
            self._templates.get_template(name)

    def asked(self, request: Request) -> Asked:
        """The question that a request is."""
        caller = exchange_of(request.scope).caller
        values = {**request.query_params, **request.path_params}
        return Asked(self.house, values, caller is not None and "operate" in caller.scopes)

    async def answer(self, request: Request, page: Page) -> Response:
        """The page, or its data for whoever prefers JSON."""
        asked = self.asked(request)
        data = await page.data(asked)
        if prefers_json(request.headers.get("accept", "")):
            return twin(data)
        words = Words(language_of(request))
        return self.html(request, page.name, words, asked, data=data, place=page.place, page=page)

    def html(
        self,
        request: Request,
        template: str,
        words: Words,
        asked: Asked,
        *,
        status: int = 200,
        place: str = "",
        page: Page | None = None,
        **more: Any,
    ) -> Response:
        """A whole page."""
        query = {k: v for k, v in request.query_params.items() if k not in _NOT_THE_PAGE}
        exchange = request.scope.get("hasat")
        caller: Caller | None = exchange.caller if exchange else None
        twin_path = page.twin.format_map(request.path_params) if page else None
        content = self._templates.get_template(f"{template}.html").render(
            frame="base.html",
            t=words,
            asked=asked,
            place=place,
            entries=self._entries,
            languages=[(one, f"?{urlencode({**query, 'lang': one})}") for one in LANGUAGES],
            caller=caller,
            twin=twin_path and _with_query(twin_path, query),
            here=_with_query(request.url.path, query),
            live=page is not None,
            **more,
        )
        answer = HTMLResponse(content, status, {"Vary": "Accept, Accept-Language, Cookie"})
        if request.query_params.get("lang") == words.language:
            answer.set_cookie(
                COOKIE, words.language, max_age=_A_YEAR, httponly=True, samesite="lax"
            )
        return answer

    def live_part(self, page: Page, asked: Asked, language: Language, data: Any) -> str:
        """What of the page may change while somebody looks at it."""
        return self._templates.get_template(f"{page.name}.html").render(
            frame="bare.html", t=Words(language), asked=asked, data=data
        )

    def _moment(self, value: datetime | None, form: str | None = None) -> str:
        """Of today the time alone, of other days the day with it; or in the form that is given."""
        if value is None:
            return "–"
        there, today = (at.astimezone(self.house.zone) for at in (value, system_clock()))
        usual = "%H:%M:%S" if there.date() == today.date() else "%Y-%m-%d %H:%M"
        return there.strftime(form or usual)


def twin(data: Any) -> Response:
    """The data of a page as JSON."""
    return JSONResponse(as_json(data), headers={"Vary": "Accept"})


def prefers_json(accept: str) -> bool:
    """Whether somebody asked for JSON and not for a page."""
    return "application/json" in accept and "text/html" not in accept


def _pretty(value: Any) -> str:
    """JSON for people; a pair of numbers, mostly a place, stays on its line."""
    return _PAIR.sub(r"[\1, \2]", json.dumps(value, ensure_ascii=False, indent=2))


def _with_query(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path
