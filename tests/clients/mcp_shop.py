"""A server of the official Python SDK; its port, or `stdio`, is the first argument."""

import sys

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("shop")


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def search(q: str) -> dict[str, str]:
    """Search the shop."""
    return {"found": q}


@server.tool()
def pay(q: str) -> str:
    """Pay for it."""
    return f"paid for {q}"


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
