"""The endpoints of API-Football, one declaration each."""

from collections.abc import Mapping

from hasat.sources.football.endpoints.declaration import (
    FORMAT_PARAMETERS,
    MAX_DIGITS,
    SOURCE,
    Endpoint,
    FormError,
    Plan,
    Row,
    Rule,
    Unit,
    is_number,
)
from hasat.sources.football.endpoints.mirrored import MIRRORED
from hasat.sources.football.endpoints.optional import FORMS, OPTIONAL

__all__ = [
    "DATASETS",
    "ENDPOINTS",
    "ENDPOINT_OF",
    "FORMAT_PARAMETERS",
    "FORMS",
    "MAX_DIGITS",
    "MIRRORED",
    "OPTIONAL",
    "OPTION_NAMES",
    "SOURCE",
    "Endpoint",
    "FormError",
    "Plan",
    "Row",
    "Rule",
    "Unit",
    "find_endpoint",
    "is_number",
]

ENDPOINTS = (*MIRRORED, *OPTIONAL, *FORMS)
DATASETS = {endpoint.dataset.name: endpoint.dataset for endpoint in ENDPOINTS}
ENDPOINT_OF = {endpoint.dataset.name: endpoint for endpoint in reversed(ENDPOINTS)}
"""The endpoint that defines each dataset."""


OPTION_NAMES = tuple(endpoint.option_name for endpoint in OPTIONAL)
"""The names of what the operator can switch on."""


def find_endpoint(path: str, parameters: Mapping[str, str]) -> Endpoint | None:
    """Return the endpoint that a request was sent to, in the form that its parameters name."""
    found = [endpoint for endpoint in ENDPOINTS if endpoint.matches(path, parameters)]
    return max(found, key=lambda endpoint: endpoint.is_form, default=None)
