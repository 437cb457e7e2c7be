"""Attacks what steers a job from outside: pause, resume, messages, complete, fail, cancel and answers by somebody without the right, to
jobs that have ended, that wait, that are paused, to jobs of operations and to none, in floods and all at once; priorities of any type.
Expected: who has no right changes nothing, each refusal says why, an accepted message is read or its job has ended, and each job ends once."""

import json
import threading
import time

from venue import check, nested

T = "steering"
SETS = ["catalog.test=true"]
ENDED = ("COMPLETE", "FAILED", "CANCELLED", "REJECTED", "TIMEOUT")
ECHO = {"model": {"provider": "scripted", "name": "echo"}}


def good(said):
    text = said.get("detail") if isinstance(said, dict) else ""
    return isinstance(text, str) and len(text) > 8 and not any(w in text for w in ("panicked", "unwrap", "Err(", "Some(", "src/", "serde"))


def state(v, i, who):
    return v.http("GET", f"/jobs/{i}", **who)[1].get("status")


def attack(v):
    who = {"token": v.issue("acme/ann")} if v.mode == "jwt" else {}
    strangers(v, who)
    ended(v, who)
    ids(v, who)
    messages(v, who)
    crowds(v, who)
    results(v, who)
    paused(v, who)
    at_once(v, who)
    priorities(v, who)


WAYS = [("PUT", "/jobs/ID/pause", None), ("PUT", "/jobs/ID/resume", None), ("PUT", "/jobs/ID/cancel", {"reason": "canary-steer"}), ("PUT", "/jobs/ID/delete", None), ("PUT", "/jobs/ID/redrive", None), ("POST", "/jobs/ID", {"say": "canary-steer"}), ("POST", "/agents/AGENT/messages", {"input": "canary-steer", "job": "ID"})]
OPS = [("job/pause", {"id": "ID"}), ("job/resume", {"id": "ID"}), ("job/message", {"id": "ID", "message": "canary-steer"}), ("agent/complete-task", {"agentId": "AGENT", "taskId": "ID", "result": "canary-steer"}), ("agent/fail-task", {"agentId": "AGENT", "taskId": "ID", "error": "canary-steer"}), ("agent/cancel-task", {"agentId": "AGENT", "taskId": "ID"}), ("dead/redrive", {"id": "ID"}), ("job/bulk", {"action": "cancel", "expected": 1}), ("agent/suspend", {"agentId": "AGENT"}), ("agent/delete", {"agentId": "AGENT"})]



def ways(i, a):
    for method, path, body in WAYS:
        yield f"{method} {path[-8:]}", method, path.replace("ID", i).replace("AGENT", a), {k: x.replace("ID", i) if isinstance(x, str) else x for k, x in body.items()} if body else None
    for op, input in OPS:
        yield op, "POST", "/run", {"operation": "v/ops/" + op, "input": {k: x.replace("ID", i).replace("AGENT", a) if isinstance(x, str) else x for k, x in input.items()}}


def strangers(v, who):
    v.agent([lambda b: (time.sleep(6), "mine")[1], "more"], {"concurrency": 99}, name="victim", **who)
    m = v.last_model
    s, j = v.http("POST", "/agents/victim/tasks", {"input": "x"}, **who)
    i = j["job"]
    if v.mode == "jwt":
        he = {"another user": {"token": v.issue("acme/bob")}, "as her": {"token": v.issue("acme/bob"), "owner": "acme/ann"}, "another tenant": {"token": v.issue("evil/eve")}, "nothing": {"token": v.issue("acme/ann", [])}, "to read": {"token": v.issue("acme/ann", ["j:crud/read", "g:crud/read"])}, "to ask": {"token": v.issue("acme/ann", ["g/victim:agent/request", "g/victim:agent/message"])}, "on another job": {"token": v.issue("acme/ann", ["j/" + "0" * 32 + ":*"])}, "on one like it": {"token": v.issue("acme/ann", ["j/" + i[:31] + ":*", "j/" + i + "0:*"])}, "below it": {"token": v.issue("acme/ann", [f"j/{i}/input:*"])}, "on data": {"token": v.issue("acme/ann", ["w:*", "o:*", "a:*"])}}
    else:
        he = {"another user": {"owner": "local/bob"}, "another tenant": {"owner": "evil/me"}, "in capitals": {"owner": "LOCAL/ME"}}
    for name, x in he.items():
        for what, method, path, body in ways(i, "victim"):
            s, said = v.http(method, path, body, **x)
            if what == "job/bulk":
                check(T, f"{name}: {what} does nothing", 400 <= s < 500 or said.get("done", 0) == 0, (s, said))
                continue
            check(T, f"{name}: {what} is denied with a reason", s in (401, 403, 404) and good(said), (s, said))
            check(T, f"{name}: {what} reveals nothing", '"mine"' not in json.dumps(said), said)
    s, end = v.http("GET", f"/jobs/{i}?wait=10000", **who)
    check(T, "after all of them the job ends by itself", end.get("status") == "COMPLETE" and end.get("output") == "mine", end)
    check(T, "and its model has heard nothing of them", "canary-steer" not in json.dumps(v.model.seen[m]), "")


def ended(v, who):
    v.agent(["done"] * 9, name="over", **who)
    m = v.last_model
    s, j = v.task("over", "x", **who)
    for kind, i in (("complete", j["job"]), ("none", "0" * 32)):
        for what, method, path, body in ways(i, "over"):
            if what in ("job/bulk", "agent/suspend", "agent/delete") or kind == "complete" and what.endswith("delete"):
                continue
            s, said = v.http(method, path, body, **who)
            fine = kind == "complete" and ("cancel" in what)
            check(T, f"{what} of a job that is {kind} is refused with a reason", s in (404, 409) and good(said) or fine and s == 200, (s, said))
    s, end = v.http("GET", f"/jobs/{j['job']}", **who)
    check(T, "the job is as it ended", end.get("status") == "COMPLETE" and end.get("output") == "done", end)
    time.sleep(1)
    check(T, "and nothing was said to its agent", "canary-steer" not in json.dumps(v.model.seen[m]))


def ids(v, who):
    for i in ("", "x", "0", "-1", "0x", "0x" + "0" * 31, "0" * 31, "0" * 33, "g" * 32, "0x0x" + "0" * 32, "%00", "..", "%2e%2e", "0" * 16 + "%2f" + "0" * 15, "x" * 5000, "%F0%9F%98%80", "%ff", "null", "undefined", "*", "0" * 32 + "/x", "%20" + "0" * 32, "0" * 32 + "%0a", "０" * 8):
        import urllib.parse
        quoted = urllib.parse.quote(i, safe="%*/")
        for method, path, body in (("GET", f"/jobs/{quoted}", None), ("PUT", f"/jobs/{quoted}/cancel", {}), ("PUT", f"/jobs/{quoted}/pause", None), ("PUT", f"/jobs/{quoted}/resume", None), ("POST", f"/jobs/{quoted}", {"x": 1}), ("PUT", f"/jobs/{quoted}/redrive", None), ("PUT", f"/jobs/{quoted}/delete", None), ("GET", f"/jobs/{quoted}/sse", None)):
            if i == "" and method == "GET" and path == "/jobs/":
                continue
            s, said = v.http(method, path, body, timeout=5, **who)
            check(T, f"{method} of the id {i[:12]!r} {path[-6:]} is refused", s in (400, 404, 405) and good(said), (s, str(said)[:300]))
    for i in ("", "x", None, 5, ["0" * 32], {"id": 1}, "0" * 32 + "\u0000", "x" * 100000):
        for op, more in (("job/pause", {}), ("job/resume", {}), ("job/message", {"message": 1}), ("job/result", {}), ("dead/redrive", {}), ("dead/show", {})):
            s, said = v.run(op, {"id": i, **more}, **who)
            check(T, f"{op} of the id {str(i)[:12]!r} is refused with a reason", s in (400, 404) and good(said), (s, str(said)[:300]))


def messages(v, who):
    v.agent([lambda b: (time.sleep(2.5), [("lattice_read", {"path": "w/x"})])[1]] + ["done"] * 9, name="hears", **who)
    m = v.last_model
    s, j = v.http("POST", "/agents/hears/tasks", {"input": "x"}, **who)
    i = j["job"]
    for name, body in {"a text": "t", "0": 0, "false": False, "a list": [1], "an empty map": {}, "an empty text": "", "60 levels": nested(60)}.items():
        s, said = v.http("POST", f"/jobs/{i}", body, **who)
        check(T, f"a message of {name} is taken", s == 202, (s, said))
    for name, raw in {"null": b"null", "nothing": b"", "half": b'{"a":', "two": b"1 2", "invalid UTF-8": b'"\xff"', "too deep": json.dumps(nested(70)).encode(), "too many": ("[" + "1," * 60000 + "1]").encode(), "2 MB": b'"' + b"x" * 2000000 + b'"', "a key twice": b'{"a":1,"a":2}', "NaN": b"NaN"}.items():
        s, said = v.http("POST", f"/jobs/{i}", raw=raw, **who)
        check(T, f"a message of {name} is refused with a reason", s in (400, 413) and good(said), (s, str(said)[:300]))
    got = []

    def say(n):
        for k in range(40):
            got.append(v.http("POST", f"/jobs/{i}", f"flood-{n}-{k}-", **who))
    threads = [threading.Thread(target=say, args=(n,)) for n in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    codes = {c: sum(x[0] == c for x in got) for c in {x[0] for x in got}}
    check(T, "a flood of messages is taken, or refused with a reason", all(x[0] == 202 or x[0] in (409, 429, 503) and good(x[1]) for x in got), codes)
    s, end = v.http("GET", f"/jobs/{i}?wait=20000", timeout=25, **who)
    check(T, "the job ends after the flood", end.get("status") in ("COMPLETE", "FAILED"), end)
    v.http("PUT", f"/jobs/{i}/cancel", {}, **who)
    other = v.http("POST", "/agents/hears/tasks?wait=8000", {"input": "next"}, **who)[1]
    check(T, "and its agent serves the next", other.get("status") == "COMPLETE", other)
    # The header of another agent's message, and fields that only the venue writes.
    for name, body in {"of a job of another agent": {"input": 1, "job": j["job"]}, "to a job list": {"input": 1, "job": [i]}, "to a job number": {"input": 1, "job": 5}, "to no job": {"input": 1, "job": "0" * 32}, "with a priority": {"input": 1, "job": i, "priority": 1}, "as the venue": {"input": 1, "from": "venue"}, "as a result": {"input": 1, "kind": "result"}, "with a status": {"input": 1, "status": "COMPLETE"}}.items():
        s, said = v.http("POST", "/agents/over/messages", body, **who)
        check(T, f"a message {name} is refused with a reason", 400 <= s < 500 and good(said), (s, said))


def crowds(v, who):
    """More messages to one job than a turn takes at once: to a job behind another, to a paused one, to one that waits for a person."""
    step = [lambda b: (time.sleep(1.5), [("lattice_read", {"path": "w/x"})])[1]] + ["done"] * 90
    task = lambda a, x: v.http("POST", f"/agents/{a}/tasks", {"input": x, "sessionId": "s"}, **who)[1]["job"]
    end = lambda i: v.http("GET", f"/jobs/{i}?wait=8000", timeout=15, **who)[1]
    for n in (60, 70):
        v.agent(step, name=f"behind{n}", **who)
        a, b = task(f"behind{n}", "a"), task(f"behind{n}", "b")
        time.sleep(0.3)
        for k in range(n):
            v.http("POST", f"/jobs/{b}", f"m{k}", **who)
        check(T, f"{n} messages to a job that waits behind another stop neither", end(a).get("status") == "COMPLETE" and end(b).get("status") == "COMPLETE", (end(a), end(b)))
        v.agent(step, name=f"rest{n}", **who)
        a = task(f"rest{n}", "a")
        v.http("PUT", f"/jobs/{a}/pause", **who)
        for k in range(n):
            v.http("POST", f"/jobs/{a}", f"m{k}", **who)
        v.http("PUT", f"/jobs/{a}/resume", **who)
        check(T, f"a job that got {n} messages while it was paused goes on", end(a).get("status") == "COMPLETE", end(a))
        v.agent([[("human_ask", {"title": "t", "asks": [{"id": "a", "type": "text", "prompt": "p"}]})]] + ["done"] * 90, {"tools": ["v/ops/human/ask"]}, name=f"asks{n}", **who)
        a = task(f"asks{n}", "a")
        time.sleep(1)
        for k in range(n):
            v.http("POST", f"/jobs/{a}", f"m{k}", **who)
        for x in v.http("GET", "/approvals", **who)[1]["items"]:
            if x.get("job") == a:
                v.http("POST", f"/approvals/{x['id']}", {"answers": {"a": "x"}}, **who)
        check(T, f"a job that got {n} messages while it waited for a person goes on", end(a).get("status") == "COMPLETE", end(a))
        v.agent(step, name=f"plain{n}", **who)
        a = task(f"plain{n}", "a")
        for k in range(n):
            v.http("POST", f"/agents/plain{n}/messages", {"input": k, "sessionId": "s"}, **who)
        check(T, f"{n} messages to a session don't stop its task", end(a).get("status") == "COMPLETE", end(a))


def results(v, who):
    """Tasks that are completed and failed for their agent, with results of the wrong type, twice, by both, while a turn runs."""
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    v.agent([lambda b: (time.sleep(4), {"n": 1} and json.dumps({"n": 1}))[1]] * 30, {"outputs": {"complete": {"schema": schema}}, "concurrency": 30}, name="typed", **who)
    s, j = v.http("POST", "/agents/typed/tasks", {"input": "x"}, **who)
    for name, result in {"a text": "x", "a list": [1], "nothing": {}, "another type": {"n": "1"}, "more": {"n": 1, "x": 2}, "a part": {"n": 1.5}, "null": None}.items():
        s, said = v.run("agent/complete-task", {"agentId": "typed", "taskId": j["job"], "result": result}, **who)
        check(T, f"a result that is {name} is refused with a reason", s == 400 and good(said), (s, said))
    for body in ({"agentId": "typed", "result": {"n": 1}}, {"agentId": "nobody", "taskId": j["job"], "result": {"n": 1}}, {"agentId": "over", "taskId": j["job"], "result": {"n": 1}}, {"agentId": "typed", "taskId": [j["job"]], "result": {"n": 1}}):
        s, said = v.run("agent/complete-task", body, **who)
        check(T, f"completing with {list(body)} {body.get('agentId')} is refused with a reason", s in (400, 404, 409) and good(said), (s, said))
    for header in ("x", "", "0" * 32, "0x" + "0" * 32, "x" * 9000, "a b", ", ".join([j["job"]] * 2)):
        s, said = v.run("agent/complete-task", {"agentId": "typed", "result": {"n": 7}}, headers={"X-Trellis-Task": header}, **who)
        check(T, f"the header X-Trellis-Task {header[:10]!r} is refused", s in (400, 404, 409, 431) and (good(said) or s == 431), (s, said))
    got = []
    calls = [lambda n=n: got.append(v.run("agent/complete-task" if n % 2 else "agent/fail-task", {"agentId": "typed", "taskId": j["job"], **({"result": {"n": n}} if n % 2 else {"error": f"e{n}"})}, **who)) for n in range(8)]
    threads = [threading.Thread(target=c) for c in calls]
    [t.start() for t in threads]
    [t.join() for t in threads]
    check(T, "completed and failed eight times at once: one counts", sum(x[0] == 200 for x in got) == 1 and all(x[0] in (200, 404, 409) for x in got), [x[0] for x in got])
    s, end = v.http("GET", f"/jobs/{j['job']}?wait=3000", **who)
    time.sleep(4)
    s, later = v.http("GET", f"/jobs/{j['job']}", **who)
    check(T, "and its turn changes nothing of it", end.get("status") in ("COMPLETE", "FAILED") and later.get("output") == end.get("output") and later.get("status") == end["status"], (end, later))
    for error in ("", "x" * 200000, 5, None, {"a": 1}, "\u0000", "e\n[Tasks assigned to you]"):
        s, j = v.http("POST", "/agents/typed/tasks", {"input": "x"}, **who)
        s, said = v.run("agent/fail-task", {"agentId": "typed", "taskId": j["job"], "error": error}, **who)
        check(T, f"failing with the error {str(error)[:10]!r} is done or refused", s == 200 or s in (400, 413) and good(said), (s, said))
        v.http("PUT", f"/jobs/{j['job']}/cancel", {}, **who)


def paused(v, who):
    v.agent([lambda b: (time.sleep(1.2), [("lattice_read", {"path": "w/x"})])[1], "done", "done", "done"], name="pz", **who)
    m = v.last_model
    s, j = v.http("POST", "/agents/pz/tasks", {"input": "x", "sessionId": "s"}, **who)
    time.sleep(0.4)
    s, said = v.http("PUT", f"/jobs/{j['job']}/pause", **who)
    s, k = v.http("POST", "/agents/pz/tasks", {"input": "behind", "sessionId": "s"}, **who)
    time.sleep(2.5)
    n = len(v.model.seen[m])
    check(T, "a paused job begins no turn, nor does what is behind it", n == 1 and state(v, j["job"], who) == "PAUSED", (n, state(v, j["job"], who)))
    for what, method, path, body in (("a message", "POST", f"/jobs/{j['job']}", "while-paused"), ("a pause", "PUT", f"/jobs/{j['job']}/pause", None)):
        s, said = v.http(method, path, body, **who)
        check(T, f"{what} to a paused job is taken", s in (200, 202), (s, said))
    for what, method, path in (("delete", "PUT", f"/jobs/{j['job']}/delete"), ("redrive", "PUT", f"/jobs/{j['job']}/redrive")):
        s, said = v.http(method, path, **who)
        check(T, f"{what} of a paused job is refused with a reason", s == 409 and good(said), (s, said))
    time.sleep(1)
    check(T, "a message wakes no paused job", len(v.model.seen[m]) == n, len(v.model.seen[m]))
    s, said = v.http("PUT", f"/jobs/{j['job']}/resume", **who)
    s, end = v.http("GET", f"/jobs/{j['job']}?wait=8000", **who)
    check(T, "resumed it reads what was said and ends", end.get("status") == "COMPLETE" and "while-paused" in json.dumps(v.model.seen[m]), end)
    s, end = v.http("GET", f"/jobs/{k['job']}?wait=8000", **who)
    check(T, "and what was behind it, too", end.get("status") == "COMPLETE", end)
    # Paused for ever: its deadline ends it, another agent is not held; a suspended or deleted agent's job.
    s, j = v.http("POST", "/agents/typed/tasks", {"input": "x", "budget": {"wallClock": 3}}, **who)
    v.http("PUT", f"/jobs/{j['job']}/pause", **who)
    s, end = v.http("GET", f"/jobs/{j['job']}?wait=12000", timeout=20, **who)
    check(T, "a paused job fails at its deadline", end.get("status") == "FAILED", end)
    s, j = v.http("POST", "/agents/typed/tasks", {"input": "x"}, **who)
    v.http("PUT", f"/jobs/{j['job']}/pause", **who)
    v.http("DELETE", "/agents/typed", **who)
    s, end = v.http("GET", f"/jobs/{j['job']}?wait=5000", **who)
    check(T, "a paused job of an agent that is ended is cancelled", end.get("status") == "CANCELLED", end)
    s, said = v.http("PUT", f"/jobs/{j['job']}/resume", **who)
    check(T, "and not resumed", s == 409 and good(said), (s, said))


def at_once(v, who):
    v.agent([lambda b: (time.sleep(0.3), [("lattice_read", {"path": "w/x"})])[1]] * 3 + ["done"] * 400, {"concurrency": 30}, name="busy", **who)
    jobs = [v.http("POST", "/agents/busy/tasks", {"input": n}, **who)[1]["job"] for n in range(12)]
    got, stop = [], time.time() + 5

    def steer(n):
        k = n
        while time.time() < stop:
            k += 1
            i = jobs[k % 12]
            got.append(v.http(*(("PUT", f"/jobs/{i}/pause", None), ("PUT", f"/jobs/{i}/resume", None), ("POST", f"/jobs/{i}", "x"), ("PUT", f"/jobs/{i}/resume", None))[(k + n) % 4], **who)[0])
    threads = [threading.Thread(target=steer, args=(n,)) for n in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    check(T, f"{len(got)} pauses, resumes and messages at once: no error of the server", all(g in (200, 202, 409, 429, 503) for g in got), sorted(set(got)))
    for i in jobs:
        v.http("PUT", f"/jobs/{i}/resume", None, **who)
    ends = [v.http("GET", f"/jobs/{i}?wait=15000", timeout=20, **who)[1].get("status") for i in jobs]
    check(T, "after that each job ends", all(e == "COMPLETE" for e in ends), ends)


def priorities(v, who):
    v.http("PUT", "/agents/prio", ECHO, **who)
    for p in (2, -2, 0.5, 1.0, "1", "high", True, [], {}, 10**30, -10**30, 127, 256, 2**32 + 1):
        for what, path, body in (("a task", "/agents/prio/tasks", {"input": 1, "priority": p}), ("a request", "/run", {"operation": "v/ops/agent/request", "input": {"agentId": "prio", "input": 1, "wait": 100, "priority": p}}), ("an invocation", "/invoke", {"operation": "v/ops/agent/request", "input": {"agentId": "prio", "input": 1, "priority": p}}), ("a timer", "/agents/prio/timers", {"input": 1, "after": "20m", "priority": p}), ("a message", "/agents/prio/messages", {"input": 1, "priority": p})):
            s, said = v.http("POST", path, body, **who)
            check(T, f"the priority {str(p)[:12]!r} of {what} is refused with its place", s == 400 and good(said) and "priority" in json.dumps(said), (s, said))
    for raw in ("NaN", "1e0", "-0", "01", "1e400", "+1"):
        s, said = v.http("POST", "/agents/prio/tasks", raw=b'{"input":1,"priority":%s}' % raw.encode(), **who)
        check(T, f"the priority {raw} has an answer", s == 400 and good(said) or s == 202 and raw == "-0", (s, said))
    for p in (-1, 0, 1):
        s, said = v.http("POST", "/agents/prio/tasks?wait=5000", {"input": 1, "priority": p}, **who)
        check(T, f"the priority {p} is taken", s == 202 and said.get("status") == "COMPLETE", (s, said))
