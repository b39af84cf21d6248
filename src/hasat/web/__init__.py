"""The dashboard: pages rendered on the server that work without scripts.

A page is a `Page` in one of the modules of `pages` with a template of the same name; one function
loads the data for both HTML and JSON. Texts are in the message catalogue.
"""

from hasat.web.app import add_pages

__all__ = ["add_pages"]
