"""An agent of the official SDK of A2A, in both bindings: python a2a_server.py PORT rpc|rest, which comes first."""

import asyncio
import sys

import uvicorn
from a2a.helpers import new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Role, Task, TaskState, TaskStatus
from starlette.applications import Starlette


class Clerk(AgentExecutor):
    """Echoes a text after a moment; asks for a size if the text is `ask`."""

    async def execute(self, context, event_queue):
        said = context.get_user_input()
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if context.current_task is None:
            await event_queue.enqueue_event(
                Task(
                    id=context.task_id,
                    context_id=context.context_id,
                    status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED),
                    history=[context.message],
                )
            )
        await updater.start_work()
        if said == "ask":
            await updater.requires_input(updater.new_agent_message([new_text_part("Which size?")]))
            return
        if said == "fail":
            await updater.failed(updater.new_agent_message([new_text_part("no such order")]))
            return
        await asyncio.sleep(60 if said == "slow" else 2)
        await updater.add_artifact([new_text_part(f"echo {said}")], name="output")
        await updater.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card(port):
    address = f"http://127.0.0.1:{port}"
    interfaces = [
        AgentInterface(url=f"{address}/rpc", protocol_binding="JSONRPC", protocol_version="1.0"),
        AgentInterface(url=address, protocol_binding="HTTP+JSON", protocol_version="1.0"),
    ]
    return AgentCard(
        name="Clerk",
        description="Answers questions about orders.",
        version="1",
        supported_interfaces=interfaces if "rest" not in sys.argv else interfaces[::-1],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="orders", name="Orders", description="Finds orders.", tags=["orders"])],
    )


def main():
    port = int(sys.argv[1])
    agent = card(port)
    handler = DefaultRequestHandler(agent_executor=Clerk(), task_store=InMemoryTaskStore(), agent_card=agent)
    routes = [
        *create_agent_card_routes(agent),
        *create_jsonrpc_routes(handler, "/rpc"),
        *create_rest_routes(handler),
    ]
    uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=port, log_level="error")


main()
