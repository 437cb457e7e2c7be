"""A server of fastmcp; its port is the first argument."""

import sys

from fastmcp import FastMCP

server = FastMCP("shop")


@server.tool(annotations={"readOnlyHint": True})
def search(q: str) -> dict[str, str]:
    """Search the shop."""
    return {"found": q}


@server.tool
def pay(q: str) -> str:
    """Pay for it."""
    return f"paid for {q}"


server.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False)
