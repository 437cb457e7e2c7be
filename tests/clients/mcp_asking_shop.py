"""A server of the official Python SDK that asks a person; its port is the first argument."""

import sys
from typing import Annotated

from mcp.server import MCPServer
from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel, Field

server = MCPServer("shop")


class Order(BaseModel):
    size: str
    copies: int = Field(ge=1, le=9)


def order() -> Elicit[Order]:
    return Elicit("Which tea?", Order)


@server.tool()
def pay(q: str, order: Annotated[ElicitationResult[Order], Resolve(order)]) -> str:
    """Pay for it."""
    if not isinstance(order, AcceptedElicitation):
        return f"declined: {order.action}"
    return f"{order.data.copies} of {q} in {order.data.size}"


server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
