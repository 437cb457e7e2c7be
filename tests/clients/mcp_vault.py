"""A server of fastmcp with its own login server in memory; its port is the first argument."""

import sys

from fastmcp import FastMCP
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
from mcp.server.auth.settings import ClientRegistrationOptions

port = int(sys.argv[1])
registration = ClientRegistrationOptions(enabled=True, valid_scopes=["read"], default_scopes=["read"])
login = InMemoryOAuthProvider(
    base_url=f"http://127.0.0.1:{port}", client_registration_options=registration, required_scopes=["read"]
)
server = FastMCP("shop", auth=login)


@server.tool(annotations={"readOnlyHint": True})
def search(q: str) -> dict[str, str]:
    """Search the shop."""
    return {"found": q}


@server.tool
def pay(q: str) -> str:
    """Pay for it."""
    return f"paid for {q}"


server.run(transport="http", host="127.0.0.1", port=port, show_banner=False)
