"""The official SDK of A2A sends a message to an agent and follows its task: python a2a_client.py URL [TEXT]."""

import asyncio
import sys

from a2a.client import ClientConfig, create_client
from a2a.helpers import get_artifact_text, new_text_message
from a2a.types import GetTaskRequest, Role, SendMessageRequest, TaskState


async def talk(url, text, binding):
    config = ClientConfig(supported_protocol_bindings=[binding])
    async with await create_client(url, config) as client:
        request = SendMessageRequest(message=new_text_message(text, role=Role.ROLE_USER))
        output, task = None, None
        async for event in client.send_message(request):
            if event.HasField("task"):
                task = event.task.id
            if event.HasField("artifact_update"):
                output = get_artifact_text(event.artifact_update.artifact)
        found = await client.get_task(GetTaskRequest(id=task))
        assert found.status.state == TaskState.TASK_STATE_COMPLETED, found
        print(binding, output)


async def main():
    url, text = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "hi"
    for binding in ["JSONRPC", "HTTP+JSON"]:
        await talk(url, text, binding)


asyncio.run(main())
