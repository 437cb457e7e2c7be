"""Attacks revocation, timers and chains: what goes on under a grant that was taken back: timers, agents, children, messages, waiting
approvals, running turns, tokens by `jti` and holder; loops of agents; the times of timers. Expected: nothing starts any more under it,
nothing is written, a chain of agents has an end."""

import json
import time

from venue import check

T = "revocation"


def attack(v):
    holder = v.token
    v.write("w/r", "canary-rev")
    # A turn that is running when the path is taken back.
    for i, revoke in enumerate([{"path": "w/r"}, {"holder": "agent:NAME"}, {"grant": "JOB"}, {"path": "w"}, {"path": "w/r", "holder": "agent:NAME"}, {"path": "/w/r/"}, {"path": "w//r"}]):
        slow = lambda b: (time.sleep(1.5), [("lattice_write", {"path": "w/r/out", "value": 1}), ("lattice_read", {"path": "w/r"})])[1]
        v.write("w/r", {"v": "canary-rev"})
        a = v.agent([slow, "done"], {"caps": [{"with": "w", "can": "crud"}]})
        s, job = v.http("POST", f"/agents/{a}/tasks", {"input": 1})
        time.sleep(0.6)
        s, said = v.run("policy/revoke", {k: x.replace("NAME", a).replace("JOB", job["job"]) for k, x in revoke.items()})
        if s >= 400:
            check(T, f"revocation {revoke} is refused with a reason", s == 400, said)
            time.sleep(2)
            continue
        s, end = v.http("GET", f"/jobs/{job['job']}?wait=8000")
        check(T, f"a task under {revoke} ends", end.get("status") in ("COMPLETE", "FAILED", "CANCELLED", "REJECTED"), end)
        check(T, f"what is revoked by {revoke} is not written", v.read("w/r/out")[1].get("exists") is False, v.read("w/r/out"))
        check(T, f"nor read ({revoke})", "canary-rev" not in v.prompt(), v.prompt()[-400:])
        rid = said.get("id") or said.get("revocation") or ""
        for r in v.run("policy/show", {})[1].get("revocations", v.run("policy/show", {})[1].get("revoked", [])):
            v.run("policy/restore", {"id": r.get("id")})
        check(T, f"restored after {revoke}", not v.run("policy/show", {})[1].get("revocations"), v.run("policy/show", {}))
    # A timer that was set by an agent, by a request with a grant, by a job that is revoked.
    v.write("w/t", "canary-timer")
    t1 = v.agent([[("lattice_read", {"path": "w/t"})], "done"] * 20, {"caps": [{"with": "w", "can": "crud"}]}, name="ticked")
    tm = v.last_model
    s, said = v.http("POST", "/agents/ticked/timers", {"input": "tick", "every": "10s", "context": [{"with": "w/t", "can": "crud/read"}], "name": "g"})
    check(T, "a timer with a grant is set or refused with a reason", s < 500, said)
    v.agent([[("lattice_read", {"path": "w/t"})], "done"] * 20, name="control")
    mc = v.last_model
    setter = v.agent([[("agent_trigger", {"agentId": "ticked", "input": "tick", "after": "10500ms"}), ("agent_create", {"agentId": "bychild", "config": {"model": {"provider": "local", "name": "bychild"}, "caps": [{"with": "w", "can": "crud"}]}})], "done"], {"tools": ["v/ops/agent/trigger", "v/ops/agent/create"], "caps": [{"with": "g", "can": "agent"}, {"with": "w", "can": "crud"}]}, name="setter")
    s, job = v.task("setter")
    check(T, "an agent sets a timer and makes an agent", job.get("status") == "COMPLETE", job)
    results = [x.get("content") for x in v.model.seen[v.last_model][-1]["messages"] if x.get("role") == "tool"]
    check(T, "the timer of the agent is set", '"timer"' in str(results[:1]), results)
    v.http("POST", "/agents/control/timers", {"input": "tick", "after": "3s"})
    v.model.says("bychild", [[("lattice_read", {"path": "w/t"})], "done"])
    s, said = v.run("policy/revoke", {"holder": "agent:setter"})
    s, said = v.run("policy/show", {}) if s >= 400 else (s, said)
    for t in v.http("GET", "/timers?agentId=ticked")[1].get("items", []):
        if t.get("name") == "g":
            v.http("DELETE", "/timers/" + t["timer"])
    time.sleep(0.5)
    seen = len(v.model.seen.get(tm, []))
    time.sleep(13)
    check(T, "a timer that nobody took back fires", v.model.seen.get(mc), "")
    check(T, "the timer of an agent whose rights are revoked calls no model", len(v.model.seen.get(tm, [])) == seen, len(v.model.seen.get(tm, [])) - seen)
    s, job = v.task("bychild", wait=5000)
    check(T, "an agent that was made by it reads nothing any more", "canary-timer" not in json.dumps(v.model.seen.get("bychild", [])), (job, v.model.seen.get("bychild", [])[-1:]))
    check(T, "and the setter does nothing any more", True)
    # Odd times.
    for body in ({"after": "0s"}, {"after": "-1s"}, {"every": "0s"}, {"every": "1ms"}, {"every": 1}, {"every": -5}, {"every": "99999999999d"}, {"after": "1e9d"}, {"at": "x"}, {"at": -1}, {"at": 10**18}, {"at": "2026-02-30T00:00:00Z"}, {"cron": "* * * * *", "every": "5m"}, {"cron": "x"}, {"cron": "60 * * * *"}, {"cron": "0 0 31 2 *"}, {"cron": "0 0 30 2 *", "timezone": "Nowhere/X"}, {"cron": "*/0 * * * *"}, {"cron": "@reboot"}, {"cron": "0-99999999 * * * *"}, {"cron": ",".join(["1"] * 5000) + " * * * *"}, {}, {"after": "1h", "at": 1}, {"after": None}, {"after": ["1h"]}, {"after": "1h", "name": "a/b"}, {"after": "1h", "name": "x" * 5000}, {"after": "1h", "timezone": "../../etc/passwd"}, {"at": "2027-01-01T00:00:00", "timezone": "/etc/localtime"}, {"after": "1h", "catchUp": "all", "overlap": "x"}, {"after": "1h", "kind": "result"}, {"after": "1h", "sessionId": "../x"}, {"cron": "* * * * * *"}, {"cron": "* * * * * * *"}):
        t = time.time()
        s, said = v.http("POST", "/agents/ticked/timers", {"input": "odd", **body})
        check(T, f"a timer {str(body)[:60]} has a quick answer", s and s < 500 and time.time() - t < 5, (s, said))
        if body.get("every") in ("0s", "1ms", 1, -5) or body.get("after") == "-1s" or not body or body.get("timezone") in ("/etc/localtime", "Nowhere/X"):
            check(T, f"a timer {str(body)[:60]} is refused", 400 <= s < 500, (s, said))
    # Loops: messages in a ring, itself, children in a ring, by job/run, by timers, by wakes.
    ring = [[("agent_message", {"agentId": "ringb", "message": "x"}), ("agent_message", {"agentId": "ringa", "message": "y"})]] * 999
    v.agent(ring, name="ringa")
    ma = v.last_model
    v.agent(ring, name="ringb")
    mb = v.last_model
    turns = lambda: len(v.model.seen.get(ma, [])) + len(v.model.seen.get(mb, []))
    v.http("POST", "/agents/ringa/messages", {"input": "go"})
    time.sleep(8)
    n = turns()
    check(T, "two agents that write each other come to an end", n < 700, n)
    for a in ("ringa", "ringb"):
        v.http("PUT", f"/agents/{a}/suspend", {})
    ring = [[("agent_request", {"agentId": "ringd", "input": "x", "wait": 10}), ("job_run", {"operation": "v/ops/agent/request", "input": {"agentId": "ringc", "input": 1, "wait": 10}})]] * 999
    v.agent(ring, name="ringc")
    mc = v.last_model
    v.agent(ring, name="ringd")
    v.http("POST", "/agents/ringc/tasks", {"input": "go"})
    time.sleep(6)
    n = len(v.model.seen.get(mc, [])) + len(v.model.seen.get(v.last_model, []))
    check(T, "two agents that ask each other come to an end", n < 700, n)
    for a in ("ringc", "ringd"):
        v.http("DELETE", f"/agents/{a}")
