"""Drives a Trellis venue with the published Covia client: `covia_client.py URL`.

Expects a worker with the scripted model `echo`. Ends with status 0 and the line `ok` when everything was as it
should be.
"""

import sys

import covia
from covia import Grid
from covia.exceptions import JobFailedError, JobNotFoundError
from covia.status import JobStatus
from checks import expect, refused


def discovery(venue):
    status = venue.wait_until_ready(timeout=60, poll_interval=0.1)
    expect("status", status.status, "OK")
    expect("did document", venue.did_document().id, venue.did)
    names = [operation.name for operation in venue.list_operations()]
    for name in ("v/ops/covia/read", "v/ops/agent/request"):
        expect(f"{name} is listed", name in names, True)
        expect(f"{name} by name", venue.get_operation(name).name, name)
    expect("adapter", "v/ops/agent/chat" in venue.get_adapter_operations("agent"), True)
    expect("assets", venue.list_assets().items, [])
    expect("secrets", venue.list_secrets(), [])


def workspace(venue):
    tree = venue.workspace
    expect("first write", tree.write("w/orders/7", {"state": "open"}).existed, False)
    expect("second write", tree.write("w/orders/8", {"state": "done"}).existed, False)
    expect("read", tree.read("w/orders/7").value, {"state": "open"})
    expect("read of a gap", tree.read("w/orders/9").exists, False)
    expect("list", tree.list("w/orders").keys, ["7", "8"])
    expect("list of a gap", tree.list("w/none").exists, False)
    expect("list of the root", "w" in tree.list().keys, True)
    expect("append", tree.append("w/log", "first").newSize, 1)
    expect("slice", tree.slice("w/log").values, ["first"])
    expect("inspect", "open" in tree.inspect("w/orders", budget=500).result, True)
    expect("inspect of two", sorted(tree.inspect(["w/orders", "w/log"]).result), ["w/log", "w/orders"])
    expect("count", tree.count("w/orders").count, 2)
    expect("groups", {k: g.count for k, g in tree.aggregate("w/orders", group_by="state").groups.items()},
           {"open": 1, "done": 1})
    expect("copy", tree.copy("w/orders/7", "w/copies/7").existed, False)
    expect("delete", tree.delete("w/copies/7").deleted, True)
    expect("delete again", tree.delete("w/copies/7").deleted, False)
    refused("a path that is none", 400, lambda: tree.read("q/x"))


def agents(venue):
    config = {"model": {"provider": "scripted", "name": "echo"}, "defaultTools": False}
    created = venue.agents.create("echo", config=config)
    expect("created", (created.created, created.status), (True, "SLEEPING"))
    expect("created again", venue.agents.create("echo", config=config).created, False)
    expect("agents", [agent.agentId for agent in venue.agents.list().agents], ["echo"])
    expect("info", venue.agents.info("echo").tasks, 0)
    refused("an unknown agent", 404, lambda: venue.agents.info("nobody"))

    answer = venue.agents.request("echo", {"say": "hello"}, timeout=60)
    expect("request", answer.status, "COMPLETE")
    expect("its output", "hello" in str(answer.output), True)
    expect("message", venue.agents.message("echo", "for your information").delivered, True)
    chat = venue.agents.chat("echo", "and now?")
    expect("chat", "and now?" in str(chat.response), True)
    again = venue.agents.chat("echo", "and then?", session_id=chat.sessionId)
    expect("the same session", again.sessionId, chat.sessionId)
    expect("another session", venue.agents.chat("echo", "hello").sessionId != chat.sessionId, True)
    refused("an unknown session", 404, lambda: venue.agents.chat("echo", "x", session_id="nowhere"))
    refused("a request to nobody", 404, lambda: venue.agents.request("nobody", {}, timeout=1))
    return answer.id


def jobs(venue, request):
    record = venue.get_job(request)
    expect("job", record.status, JobStatus.COMPLETE)
    expect("its stream", [event.json["status"] for event in record.stream() if event.event == "job-update"], ["COMPLETE"])
    job = venue.invoke("v/ops/agent/request", {"agentId": "echo", "input": "again"})
    expect("result", "again" in str(job.result(timeout=60)), True)
    failed = venue.invoke("v/ops/agent/info", {"agentId": "nobody"})
    try:
        failed.result(timeout=60)
    except JobFailedError as error:
        expect("its error", "no agent `nobody`" in str(error), True)
    else:
        raise SystemExit("a failed operation: expected JobFailedError")
    expect("jobs", set(venue.list_jobs()) == {request, job.id, failed.id}, True)
    refused("cancel of an ended job", 409, lambda: venue.cancel_job(job.id, reason="too late"))
    refused("pause of an ended job", 409, lambda: venue.pause_job(job.id))
    refused("a message to an ended job", 409, lambda: venue.send_job_message(job.id, "more"))
    venue.delete_job(job.id)
    try:
        venue.get_job(job.id)
    except JobNotFoundError:
        pass
    else:
        raise SystemExit("a deleted job: expected JobNotFoundError")
    expect("jobs after the delete", set(venue.list_jobs()) == {request, failed.id}, True)


def main(url):
    with Grid.connect(url, headers={"X-Trellis-Owner": "acme/python"}) as venue:
        discovery(venue)
        workspace(venue)
        jobs(venue, agents(venue))
    print(f"ok covia {covia.__version__}")


main(sys.argv[1])
