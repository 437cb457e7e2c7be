"""Attacks caps that make tasks wait (`spend.reached = "wait"`): what waits at a cap is paused, cancelled, messaged, driven, deleted with
its session, waited for and searched, in a crowd, with a deadline, while other owners work. Expected: it holds nobody else up, says why it
waits and nothing of others, and can be ended at any time."""

import json
import threading
import time

from venue import check

T = "spend_waits"
SETS = ["catalog.test=true", "spend.reached=wait", "spend.owners=acme/ann:tokens=600, acme/bob:tokens=600", "worker.slots=4"]
ECHO = {"model": {"provider": "scripted", "name": "echo", "maxTokens": 16}, "defaultTools": False, "tools": []}


def good(said):
    text = said.get("detail") if isinstance(said, dict) else ""
    return isinstance(text, str) and len(text) > 8 and not any(w in text for w in ("panicked", "unwrap", "Err(", "Some(", "src/", "serde"))


def attack(v):
    as_ = lambda o: {"token": v.issue(o)} if v.mode == "jwt" else {"owner": o}
    ann, free = as_("acme/ann"), as_("acme/free")
    for he in (ann, free):
        v.http("PUT", "/agents/echo", {**ECHO, "concurrency": 64}, **he)
    ends = [v.http("POST", "/agents/echo/tasks?wait=3000", {"input": "x", "sessionId": f"u{i}"}, **ann)[1] for i in range(4)]
    check(T, "the first is done, and the last waits", ends[0].get("status") == "COMPLETE" and ends[-1].get("status") in ("PENDING", "STARTED"), ends)
    i = ends[-1]["job"]
    time.sleep(1.5)
    s, j = v.http("GET", f"/jobs/{i}", **ann)
    check(T, "what waits says why, and until when", "cap" in json.dumps(j.get("waiting")), j)
    jobs = [v.http("POST", "/agents/echo/tasks", {"input": "crowd", "sessionId": f"c{k}"}, **ann)[1]["job"] for k in range(60)]
    t = time.time()
    s, j = v.http("POST", "/agents/echo/tasks?wait=9000", {"input": "x"}, **free)
    check(T, "sixty that wait at a cap hold no slot of another owner", j.get("status") == "COMPLETE" and time.time() - t < 5, (j, time.time() - t))
    s, j = v.http("POST", "/invoke?wait=5000", {"operation": "v/ops/test/delay", "input": {"delay": 300}}, **ann)
    check(T, "an operation of the same owner, which costs nothing, runs", j.get("status") == "COMPLETE", j)
    n = (lambda x: x["spent"]["input"] + x["spent"]["output"])(v.http("GET", "/spend", **ann)[1])
    check(T, "no more than the cap is used", 0 < n <= 600, n)
    s, j = v.http("POST", "/agents/echo/tasks", {"input": "x", "sessionId": "dl", "budget": {"wallClock": 4}}, **ann)
    s, end = v.http("GET", f"/jobs/{j['job']}?wait=12000", timeout=20, **ann)
    check(T, "it waits no longer than its deadline", end.get("status") == "FAILED", end)
    for what, method, path, body, ok in (("a message", "POST", "", "hello", (202,)), ("a pause", "PUT", "/pause", None, (200,)), ("a resume", "PUT", "/resume", None, (200,)), ("a redrive", "PUT", "/redrive", None, (409,)), ("a deletion", "PUT", "/delete", None, (409,))):
        s, said = v.http(method, f"/jobs/{i}{path}", body, **ann)
        check(T, f"{what} of what waits at a cap has its answer", s in ok and (s < 300 or good(said)), (s, said))
    s, said = v.http("PUT", f"/jobs/{i}/cancel", {}, **ann)
    check(T, "it is cancelled at once", said.get("status") == "CANCELLED", said)
    s, said = v.run("agent/delete-session", {"agentId": "echo", "sessionId": "c0"}, timeout=20, **ann)
    s2, end = v.http("GET", f"/jobs/{jobs[0]}?wait=2000", **ann)
    check(T, "its session is deleted, and it with it", s == 200 and end.get("status") == "CANCELLED", (s, said, end))
    s, said = v.http("PUT", "/agents/echo/suspend", {}, **ann)
    s, said = v.http("PUT", "/agents/echo/resume", None, **ann)
    check(T, "an agent whose tasks wait is suspended and resumed", s == 200, (s, said))
    other = as_("acme/bob")
    s, said = v.http("GET", f"/jobs/{jobs[1]}", **other)
    check(T, "another owner is told nothing of it", s in (403, 404), (s, said))
    got = []
    threads = [threading.Thread(target=lambda: got.append(v.http("POST", "/agents/echo/tasks?wait=4000", {"input": "y"}, timeout=20, **free)[1].get("status"))) for _ in range(20)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    check(T, "beside what waits twenty of another owner are done", all(g == "COMPLETE" for g in got), got)
    n = v.http("POST", "/jobs", {"action": "cancel", "dryRun": True}, **ann)[1].get("matched")
    s, said = v.http("POST", "/jobs", {"action": "cancel", "expected": n, "limit": 100}, timeout=40, **ann)
    check(T, "all that waits is cancelled at once", s == 200 and said.get("done") == n >= 50, (s, said, n))
    v.http("DELETE", "/agents/echo", **ann)
    check(T, "then there is nothing that waits", v.http("POST", "/jobs", {"action": "cancel", "dryRun": True}, **ann)[1].get("matched") == 0)
