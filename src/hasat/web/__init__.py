"""Pages for people: rendered on the server, working without scripts, nothing from elsewhere.

Reads what the other rooms answer; each page has a JSON twin in the API.
"""

from hasat.web.pages import add_pages

__all__ = ["add_pages"]
