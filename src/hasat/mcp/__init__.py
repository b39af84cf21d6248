"""Tools for assistants over the Model Context Protocol: the same answers as everywhere else.

Reads what the other rooms know; what changes anything is behind the scope `operate`.
"""

from hasat.mcp.server import ToolServers

__all__ = ["ToolServers"]
