"""A server of the Model Context Protocol on stdin and stdout, with faults; it needs no library."""

import json
import os
import sys

TOOLS = ["env", "ping", "die", "hang", "cancelled", "huge"]
cancelled: list[int] = []


def tool(name: str) -> dict:
    return {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": name != "die"}}


def text(name: str) -> str:
    if name == "huge":
        return "x" * (5 << 20)
    return {"env": ",".join(sorted(os.environ)), "cancelled": str(len(cancelled))}.get(name, name)


print("a line that is no message", flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, params = message["method"], message.get("params", {})
    if method == "notifications/cancelled":
        cancelled.append(params["requestId"])
    if "id" not in message:
        continue
    result: dict = {}
    if method == "initialize":
        info = {"name": "lines", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": [tool(name) for name in TOOLS]}
    elif params["name"] == "die":
        sys.exit(1)
    elif params["name"] == "hang":
        continue
    else:
        result = {"content": [{"type": "text", "text": text(params["name"])}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
