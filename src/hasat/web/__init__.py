"""Pages for people: rendered on the server, working without scripts, nothing from elsewhere.

A page is a `Page` in one of the modules of `pages`, a template and a file of texts, all of one
name; one function reads what the page and its JSON twin show.
"""

from hasat.web.app import add_pages

__all__ = ["add_pages"]
