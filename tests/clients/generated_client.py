"""Drives a venue with a client that `openapi-python-client` made of its description: `generated_client.py URL FOLDER`.

FOLDER holds the package `trellis_client`. Expects a worker with the scripted model `echo`. Ends with status 0 and the
line `ok` when everything was as it should be.
"""

import importlib
import pathlib
import sys

URL, FOLDER = sys.argv[1:]
sys.path.insert(0, FOLDER)

from trellis_client import Client
from trellis_client.api.agents import apply_agent, delete_agent, get_agent, list_agents, send_message, submit_task
from trellis_client.api.jobs import get_job, list_jobs
from trellis_client.api.run import run
from trellis_client.api.status import status
from trellis_client.models import JobStatus, Message, Problem, Run, Submission


def expect(what, actual, expected):
    if actual != expected:
        raise SystemExit(f"{what}: expected {expected!r}, got {actual!r}")


def modules():
    """Every module of the package can be imported."""
    count = 0
    for path in pathlib.Path(FOLDER, "trellis_client").rglob("*.py"):
        parts = path.relative_to(FOLDER).with_suffix("").parts
        importlib.import_module(".".join(part for part in parts if part != "__init__"))
        count += 1
    expect("modules", count > 100, True)


def story(client):
    expect("status", status.sync(client=client).status, "OK")
    config = {"model": {"provider": "scripted", "name": "echo"}}
    applied = apply_agent.sync("clerk", client=client, body=config)
    expect("apply", (applied.agent_id, applied.result.value), ("clerk", "created"))
    expect("get agent", get_agent.sync("clerk", client=client).agent_id, "clerk")
    receipt = submit_task.sync("clerk", client=client, body=Submission(input_="hello"), wait=True)
    expect("submit", (receipt.duplicate, receipt.agent), (False, "clerk"))
    job = get_job.sync(receipt.job, client=client, wait=30_000)
    expect("wait", (job.id, job.status, job.output), (receipt.job, JobStatus.COMPLETE, "hello"))
    again = submit_task.sync("clerk", client=client, body=Submission(input_="hello"), idempotency_key="k-1")
    twice = submit_task.sync("clerk", client=client, body=Submission(input_="hello"), idempotency_key="k-1")
    expect("key", (twice.job, twice.duplicate), (again.job, True))
    sent = send_message.sync("clerk", client=client, body=Message(input_="note", session_id=receipt.session))
    expect("message", sent.session, receipt.session)
    expect("list jobs", receipt.job in list_jobs.sync(client=client).items, True)
    expect("list by status", receipt.job in list_jobs.sync(client=client, status="COMPLETE").items, True)
    written = run.sync(client=client, body=Run(operation="lattice:write", input_={"path": "w/a", "value": 1}))
    expect("run", written["existed"], False)
    missing = get_job.sync("0" * 32, client=client)
    expect("problem", (type(missing), missing.status), (Problem, 404))
    delete_agent.sync("clerk", client=client)
    expect("deleted", [row.agent_id for row in list_agents.sync(client=client).agents], [])


modules()
story(Client(base_url=URL))
print("ok")
