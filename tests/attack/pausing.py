"""Attacks pausing: jobs that are paused while they wait, run, ask a person or are behind another; whatever else ends or moves them
meanwhile; ids and bodies that are none; many at once. Expected: no paused job runs, none is lost, and the audit accounts for each."""

import time

from venue import check

T = "pausing"


def attack(v):
    def slow(_):
        time.sleep(1)
        return "x"

    agent = v.agent([slow], {"concurrency": 1})

    def submit(who=agent, **more):
        return v.http("POST", f"/agents/{who}/tasks", {"input": "x", **more})[1].get("id")

    def status(job):
        return v.http("GET", f"/jobs/{job}")[1].get("status")

    def put(job, verb="pause", body=None):
        return v.http("PUT", f"/jobs/{job}/{verb}", {} if body is None else body)[0]

    def held(name, job, seconds=1.5):
        time.sleep(seconds)
        check(T, f"{name}: it stays paused", status(job) == "PAUSED", status(job))

    first, second, third = submit(), submit(), submit()
    check(T, "pausing a job that waits", put(second) == 200)
    check(T, "pausing it twice", put(second) == 200)
    check(T, "resuming one that isn't paused is refused", put(first, "resume") == 409 or status(first) == "COMPLETE")
    time.sleep(4)
    check(T, "those behind it run", status(first) == status(third) == "COMPLETE", (status(first), status(third)))
    check(T, "it does not run", status(second) == "PAUSED", status(second))
    check(T, "it takes messages", v.http("POST", f"/jobs/{second}", {"message": "hello"})[0] == 202)
    held("after a message", second)
    check(T, "triggering its agent", v.run("agent/trigger", {"agentId": agent})[0] == 200)
    held("after a trigger", second)
    v.http("PUT", f"/agents/{agent}/suspend", {"reason": "r"})
    v.http("PUT", f"/agents/{agent}/resume", {})
    held("after its agent was resumed", second)
    check(T, "it can't be deleted", put(second, "delete") == 409, status(second))
    check(T, "it can't be driven again", put(second, "redrive") == 409, status(second))
    check(T, "it can be cancelled", put(second, "cancel") == 200 and status(second) == "CANCELLED", status(second))
    check(T, "what is cancelled can't be resumed", put(second, "resume") == 409)
    check(T, "what has ended can't be paused", put(first) == 409)

    # Ends from outside.
    for operation, given, ends in [("agent/complete-task", {"result": 5}, "COMPLETE"), ("agent/fail-task", {"error": "no"}, "FAILED")]:
        job = submit()
        put(job)
        v.run(operation, {"agentId": agent, "taskId": job, **given})
        check(T, f"{operation} ends a paused job", status(job) == ends, status(job))
    busy = submit()
    job = submit(budget={"wallClock": 2})
    put(job)
    time.sleep(6)
    check(T, "its time runs out while it is paused", status(job) == "FAILED", status(job))
    check(T, "the one before it is done", status(busy) == "COMPLETE", status(busy))

    # The same id again, its session, its agent.
    busy = submit()
    s, made = v.http("POST", f"/agents/{agent}/tasks", {"input": "q"}, headers={"Idempotency-Key": "pausing-1"})
    put(made["id"])
    s, again = v.http("POST", f"/agents/{agent}/tasks", {"input": "q"}, headers={"Idempotency-Key": "pausing-1"})
    check(T, "the same id is the same paused job", again.get("id") == made["id"] and status(made["id"]) == "PAUSED", again)
    put(made["id"], "resume")
    time.sleep(3.5)
    check(T, "a resumed job runs once", status(made["id"]) == "COMPLETE", status(made["id"]))
    busy = submit(sessionId="taken")
    behind = submit(sessionId="taken")
    put(behind)
    v.run("agent/delete-session", {"agentId": agent, "sessionId": "taken"})
    time.sleep(1)
    check(T, "a deleted session ends its paused job", status(behind) == "CANCELLED", (status(busy), status(behind)))
    other = v.agent([slow, slow], {"concurrency": 1})
    submit(other)
    job = submit(other)
    put(job)
    v.http("DELETE", f"/agents/{other}")
    time.sleep(1)
    check(T, "a deleted agent ends its paused job", status(job) == "CANCELLED", status(job))

    # A person is asked, and a child runs.
    asks = v.agent([[("human_ask", {"title": "t", "asks": [{"id": "a", "type": "text", "prompt": "p"}]})], "answered"], {"tools": ["v/ops/human/ask"]})
    job = submit(asks)
    time.sleep(1)
    check(T, "a job that asks can be paused", put(job) == 200, status(job))
    waiting = [a for a in v.http("GET", "/approvals")[1].get("items", []) if a.get("job") == job]
    if waiting:
        check(T, "it can be answered while it is paused", v.http("POST", f"/approvals/{waiting[0]['id']}", {"answers": {"a": "x"}})[0] < 500)
    held("after the answer", job)
    put(job, "resume")
    time.sleep(2)
    check(T, "it goes on from the answer", status(job) in ("COMPLETE", "INPUT_REQUIRED"), status(job))

    # Ids and bodies that are none.
    for bad in ("0" * 32, "x", "%00", "..", "venue:x", first + "%20", first.upper() + "0", "0x", "%2e%2e%2fagents"):
        check(T, f"no job: {bad[:12]}", put(bad) in (400, 404), put(bad))
    for body in ([], "x", {"x": 1}, {"reason": "r\n[forged]"}, {"job": first}):
        check(T, f"no body: {body}", put(first, body=body) in (400, 409), put(first, body=body))
    for given in ({}, {"id": [first]}, {"id": 5}, {"id": first, "x": 1}, {"job": first}, {"id": "j/" + first + "/x"}):
        check(T, f"no arguments: {list(given)}", v.run("job/pause", given)[0] in (400, 404, 409), given)

    # Many at once.
    jobs = [submit() for _ in range(6)]
    s, dry = v.run("job/bulk", {"action": "pause", "agent": agent, "dryRun": True})
    s, done = v.run("job/bulk", {"action": "pause", "agent": agent, "expected": dry.get("matched", 0) + 1})
    check(T, "with another number nothing is paused", s == 409, (s, done))
    s, done = v.run("job/bulk", {"action": "pause", "agent": agent, "expected": dry.get("matched")})
    check(T, "many are paused", s in (200, 409), (s, done))
    for action in ("resume", "cancel"):
        s, dry = v.run("job/bulk", {"action": action, "agent": agent, "dryRun": True})
        v.run("job/bulk", {"action": action, "agent": agent, "expected": dry.get("matched")})
    time.sleep(2)
    check(T, "all of them end", all(status(j) in ("COMPLETE", "CANCELLED") for j in jobs), [status(j) for j in jobs])
    s, audit = v.run("venue/audit", {})
    check(T, "the audit accounts for each", audit.get("unaccounted") == 0 and audit.get("damaged") == 0, audit)
