"""Tools for assistants over the Model Context Protocol."""
