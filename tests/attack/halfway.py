"""Attacks what is between an agent's call and its effect: children of agents that are deleted, suspended, full, changed or replaced in the same turn,
agents that delete, suspend, overwrite or complete themselves, cancelled parents, results for those who are gone, values that the intake
refuses. Expected: every job that was accepted ends, whoever waits is told, and the books are closed."""

import json
import time

from venue import check

T = "halfway"
SETS = ("worker.audit=2s", "worker.lease=5s")
ENDS = ("COMPLETE", "FAILED", "CANCELLED", "REJECTED", "TIMEOUT")


def then(*replies):
    """A model that knows by the calls it is shown how far it is."""
    return [lambda b: replies[min(sum(1 for m in b["messages"] if m["role"] == "assistant" and m.get("tool_calls")), len(replies) - 1)]]


def end(v, job, seconds=15):
    said = {}
    for _ in range(seconds * 2):
        s, said = v.http("GET", f"/jobs/{job}?wait=1000")
        if isinstance(said, dict) and said.get("status") in ENDS:
            break
        if s == 404:
            return {"status": "gone"}
    return said


def attack(v):
    call = lambda op, **input: ("job_run", {"operation": "v/ops/" + op, "input": input})
    many = {f"w/l{n}": None for n in range(101)}
    ask = lambda kid, **more: ("agent_request", {"agentId": kid, "input": 1, "wait": 0, **more})
    slow = lambda b: (time.sleep(1.5), "kid")[1]
    # What happens to the child after it was asked, in the same reply of the parent's model.
    after = {
        "nothing": lambda k: [], "deleted": lambda k: [call("agent/delete", agentId=k)], "removed": lambda k: [call("agent/delete", agentId=k, remove=True)], "suspended": lambda k: [call("agent/suspend", agentId=k, reason="x")], "replaced": lambda k: [call("agent/delete", agentId=k, remove=True), call("agent/create", agentId=k, config={"model": {"provider": "local", "name": "replaced"}})],
        "overwritten": lambda k: [call("agent/create", agentId=k, overwrite=True, config={"model": {"provider": "local", "name": "replaced"}})], "without a model": lambda k: [call("agent/update", agentId=k, config={"model": {"provider": "nowhere", "name": "x"}})], "with entities": lambda k: [call("agent/update", agentId=k, config={"entityIdsRequired": True})], "busy, reject": lambda k: [call("agent/update", agentId=k, config={"busy": "reject"}), ask(k, sessionId="s"), ask(k, sessionId="s"), ask(k, sessionId="s")],
        "busy, replace": lambda k: [call("agent/update", agentId=k, config={"busy": "replace"}), ask(k, sessionId="s"), ask(k, sessionId="s"), ask(k, sessionId="s")], "a mailbox of one": lambda k: [call("agent/update", agentId=k, config={"mailbox": 1}), *[ask(k, sessionId="s") for _ in range(6)]], "asked thirty times": lambda k: [ask(k, sessionId="s") for _ in range(30)], "its session deleted": lambda k: [ask(k, sessionId="s"), call("agent/delete-session", agentId=k, sessionId="s")],
        "many loads": lambda k: [ask(k, loads=many)], "a long name of a session": lambda k: [ask(k, sessionId="s" * 128), ask(k, sessionId="s" * 129), ask(k, sessionId="é" * 100)], "a past": lambda k: [ask(k, budget={"wallClock": 1})], "no turns": lambda k: [ask(k, budget={"turns": 1}), ask(k, budget={"tokens": 1})], "a message too": lambda k: [("agent_message", {"agentId": k, "message": "x", "loads": many}), ("agent_message", {"agentId": k, "message": "x"})], "its maker revoked": lambda k: [call("policy/revoke", holder=f"agent:{k}")],
    }
    for name, what in after.items():
        kid = v.agent([slow])
        v.model.says("replaced", ["replaced"])
        parent = v.agent(then([ask(kid), *what(kid)], "parent done"), {"tools": ["v/ops/agent/delete", "v/ops/agent/suspend"]})
        model = v.last_model
        s, job = v.http("POST", f"/agents/{parent}/tasks", {"input": 1})
        if name in ("suspended", "without a model"):
            time.sleep(4)
            e = v.http("GET", f"/jobs/{job['job']}")[1]
            check(T, f"{name}: the parent's task ends, or waits for its child", e.get("status") in ("STARTED", "COMPLETE", "FAILED"), e)
            v.http("PATCH", f"/agents/{kid}", {"config": {"model": {"provider": "local", "name": "replaced"}}})
            v.http("PUT", f"/agents/{kid}/resume", {})
        e = end(v, job["job"])
        results = [m.get("content") for m in v.model.seen[model][-1]["messages"] if m["role"] == "tool"]
        check(T, f"{name}: the parent's task ends", e.get("status") == "COMPLETE", (e, [str(r)[:200] for r in results]))
        open_ = [j for j in v.http("GET", f"/jobs?agent={kid}&details=true&limit=100")[1].get("items", []) if isinstance(j, dict) and end(v, j["id"], 8).get("status") not in (*ENDS, "gone")]
        check(T, f"{name}: each child ends", not open_, open_[:2])
        told = json.dumps(v.model.seen[model][-1]["messages"])
        ids = [json.loads(r)["job"] for r in results if r and r.startswith("{") and "job" in json.loads(r)]
        check(T, f"{name}: of each child that was accepted its parent is told the end", all(told.count(i) >= 2 for i in ids), [i for i in ids if told.count(i) < 2])
        v.http("DELETE", f"/agents/{kid}?remove=true")
    # What an agent does to itself, to its session and to its task in its own turn.
    for name, calls in {"deletes itself": [call("agent/delete", agentId="SELF")], "removes itself": [call("agent/delete", agentId="SELF", remove=True)], "suspends itself": [call("agent/suspend", agentId="SELF")], "overwrites itself": [call("agent/create", agentId="SELF", overwrite=True, config={"model": {"provider": "local", "name": "replaced"}})], "changes its model": [call("agent/update", agentId="SELF", config={"model": {"provider": "local", "name": "replaced"}})], "cancels its task": [call("agent/cancel-task", agentId="SELF", taskId="JOB")], "completes its task from outside": [call("agent/complete-task", taskId="JOB", result="outside")], "fails its task from outside": [call("agent/fail-task", taskId="JOB", error="outside")], "pauses its task": [call("job/pause", id="JOB")], "deletes its session": [call("agent/delete-session", agentId="SELF", sessionId="s")], "compacts its session": [call("agent/compact-session", agentId="SELF", sessionId="s", summary="x")], "forks itself over itself": [call("agent/fork", agentId="SELF", to="SELF", overwrite=True)], "asks itself": [("agent_request", {"agentId": "SELF", "input": 1, "wait": 1000, "sessionId": "s"})], "writes its own session": [("agent_message", {"agentId": "SELF", "message": "x", "sessionId": "s"})],
                        "waits for its own job": [("job_result", {"id": "JOB", "wait": 10**9})], "messages its own job": [call("job/message", id="JOB", message="x")], "cancels all": [call("job/bulk", action="cancel", expected=1)], "revokes itself": [call("policy/revoke", holder="agent:SELF")], "redrives itself": [call("dead/redrive", id="JOB")], "approves itself": [call("approval/approve", id="JOB")]}.items():
        agent = v.agent([lambda b: b and [], "x"], {"limits": {"toolTimeout": 3}})
        model = v.last_model
        got = {}
        fill = lambda b: json.loads(json.dumps(calls).replace("SELF", agent).replace("JOB", got.get("job", "0" * 32)))
        v.model.says(model, [lambda b: (time.sleep(0.3), "done" if any(m["role"] == "tool" for m in b["messages"]) else [("lattice_append", {"path": "w/self", "value": name}), *((t, a) for t, a in fill(b))])[1]])
        s, got = v.http("POST", f"/agents/{agent}/tasks", {"input": 1, "sessionId": "s"})
        s, behind = v.http("POST", f"/agents/{agent}/tasks", {"input": 2, "sessionId": "s"})
        e = end(v, got["job"], 8)
        if e.get("status") in ("PAUSED", "PENDING", "STARTED") and name in ("pauses its task", "suspends itself"):
            v.http("PUT", f"/jobs/{got['job']}/resume", {})
            v.http("PUT", f"/agents/{agent}/resume", {})
            e = end(v, got["job"], 8)
        check(T, f"who {name}: the task ends", e.get("status") in (*ENDS, "gone"), e)
        check(T, f"who {name}: an end that is no success says why", e.get("status") in ("COMPLETE", "gone") or e.get("error"), e)
        if name == "pauses its task":
            time.sleep(1.5)
            for job in (got, behind):
                v.http("PUT", f"/jobs/{behind['job']}/resume", {})
        if isinstance(behind, dict) and behind.get("job"):
            e = end(v, behind["job"], 8)
            if e.get("status") in ("PAUSED", "PENDING") and name in ("pauses its task", "suspends itself"):
                v.http("PUT", f"/jobs/{behind['job']}/resume", {})
                v.http("PUT", f"/agents/{agent}/resume", {})
                e = end(v, behind["job"], 8)
            check(T, f"who {name}: the task behind it ends too", e.get("status") in (*ENDS, "gone"), e)
        count = (v.read("w/self")[1].get("value") or []).count(name)
        check(T, f"who {name}: its append is made once for each turn that counts", count <= 2, count)
        v.http("PUT", f"/agents/{agent}/suspend", {})
        for r in v.run("policy/show", {})[1].get("revocations", []):
            v.run("policy/restore", {"id": r["id"]})
    # A child that deletes the agent of its parent, with tasks behind it.
    for k in range(3):
        kid, parent = v.agent(["x"]), v.name("parent")
        v.model.says(v.last_model, [lambda b, p=parent: "done" if any(m["role"] == "tool" for m in b["messages"]) else [call("agent/delete", agentId=p, **({"remove": True} if p.endswith("1") else {}))]])
        v.agent(then([ask(kid)], "parent done"), name=parent)
        jobs = [x[1]["job"] for x in (v.http("POST", f"/agents/{parent}/tasks", {"input": i, "sessionId": "s"}) for i in range(4)) if x[0] == 202]
        ends = [end(v, j, 6).get("status") for j in jobs]
        check(T, "a child that deletes its parent's agent: each task that was accepted ends", all(e in (*ENDS, "gone") for e in ends), ends)
    # Cancelled while children, external jobs and questions are open: none is left.
    kid = v.agent([lambda b: (time.sleep(3), "late")[1]])
    parent = v.agent(then([ask(kid), ask(kid, sessionId="x"), call("agent/trigger", agentId=kid, input=1, after="1h")], [("agent_request", {"agentId": kid, "input": 2, "wait": 20000})], "done"))
    s, job = v.http("POST", f"/agents/{parent}/tasks", {"input": 1})
    time.sleep(1)
    v.http("PUT", f"/jobs/{job['job']}/cancel", {"reason": "enough"})
    check(T, "a cancelled parent ends", end(v, job["job"]).get("status") == "CANCELLED", v.http("GET", f"/jobs/{job['job']}"))
    open_ = [j for j in v.http("GET", f"/jobs?agent={kid}&details=true&limit=100")[1].get("items", []) if isinstance(j, dict) and end(v, j["id"], 8).get("status") not in ENDS]
    check(T, "and its children with it", not open_, open_)
    for _ in range(20):
        said = v.cli("audit", "--output", "json")
        books = json.loads(said.stdout) if said.stdout.strip().startswith(b"{") else {"said": said.stderr.decode()}
        if books.get("unaccounted") == 0:
            break
        time.sleep(2)
    check(T, "the books are closed", books.get("unaccounted") == 0, books)
