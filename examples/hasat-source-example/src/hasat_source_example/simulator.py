"""The simulated service: rates that change every minute, and companies."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from hasat.source import Simulation, Simulator

KEY = "simulated-key"
CURRENCIES = ("AUD", "CAD", "CHF", "DKK", "EUR", "GBP", "JPY", "KWD", "NOK", "SEK", "USD")
COMPANIES = {str(1000 + number): f"Company {number}" for number in range(1, 13)}


def build(simulation: Simulation) -> Starlette:
    async def rates(_request: Request) -> JSONResponse:
        minute = int(simulation.clock().timestamp()) // 60
        found = [
            {"code": code, "name": f"Currency {code}", "rate": (place * 7 + minute) % 100 / 10}
            for place, code in enumerate(CURRENCIES)
        ]
        half = simulation.faults.strikes("half-list")
        return JSONResponse({"rates": found[::2] if half else found})

    async def company(request: Request) -> JSONResponse:
        number = request.path_params["number"]
        if request.headers.get("X-Api-Key") != KEY:
            return JSONResponse({"error": "The key is wrong."}, 401)
        if number not in COMPANIES:
            return JSONResponse({"error": "There is no such company."}, 404)
        return JSONResponse({"title": COMPANIES[number], "founded": "2001-02-03"})

    return Starlette(routes=[Route("/rates", rates), Route("/companies/{number}", company)])


SIMULATOR = Simulator(
    "example",
    "exchange rates and a company register",
    build,
    {"half-list": "every other rate is missing"},
    settings=lambda address: {"url": address, "api_key": KEY, "companies": [*COMPANIES]},
)
