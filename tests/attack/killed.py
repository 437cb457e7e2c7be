"""Kills the processes of a venue with SIGKILL, each time in the middle of something: operations that were invoked, agents with children, paused
jobs, approvals and questions, compactions, redrives of many, timers that are due, deletions, and starts it again. Expected: every job that was
accepted ends or waits as before, appends are made exactly once, what was answered stays, and the books are closed."""

import asyncio
import json
import signal
import threading
import time
from collections import Counter

from venue import check, wait_port

T = "killed"
SETS = ("worker.lease=3s", "worker.audit=2s", "retry.first=100ms")
ENDS = ("COMPLETE", "FAILED", "CANCELLED", "REJECTED", "TIMEOUT")


def kill(v, *names, rest=0.3, stop_only=False):
    """Kills the processes of these names and starts them again, as they were."""
    names = names or (("up",) if v.mode == "up" else ("worker", "serve"))
    gone = [(n, p) for n, p in v.processes if n in names]
    for n, p in gone:
        p.send_signal(signal.SIGKILL)
    for n, p in gone:
        p.wait()
        v.processes.remove((n, p))
    if stop_only:
        return gone
    time.sleep(rest)
    start(v, gone)


def start(v, gone):
    for n, p in gone:
        v.start(p.args, n)
    if any(n in ("up", "serve") for n, _ in gone):
        wait_port(v.port)
    for _ in range(150):
        if v.http("GET", "/readyz", root=True)[0] == 200:
            return
        time.sleep(0.1)


def end(v, job, seconds=40):
    for _ in range(int(seconds * 2)):
        s, said = v.http("GET", f"/jobs/{job}?wait=3000", timeout=8)
        if isinstance(said, dict) and said.get("status") in ENDS:
            return said
        time.sleep(0.3)
    return said


def then(*replies, after=0):
    """A model that knows by the results it is shown how far it is, so that a turn that runs again says the same again."""
    def say(body):
        time.sleep(after)
        told = sum(1 for m in body["messages"] if m["role"] == "assistant" and m.get("tool_calls"))
        return replies[min(told, len(replies) - 1)]
    return [say]


def flood(number, call, threads=8):
    """Calls in parallel until all are made; what was answered."""
    got, rest, lock = [], list(range(number)), threading.Lock()

    def go():
        while True:
            with lock:
                if not rest:
                    return
                i = rest.pop(0)
            answer = call(i)
            with lock:
                got.append((i, answer))
    ts = [threading.Thread(target=go) for _ in range(threads)]
    [t.start() for t in ts]
    return ts, got


def audit(v, what):
    args = ["audit", "--output", "json"]
    if v.mode != "up":
        args += ["--set", f"store.url=redis://127.0.0.1:{v.redis}", "--set", f"bus.url={v.nats}"]
    for _ in range(15):
        done = v.cli(*args)
        try:
            said = json.loads(done.stdout)
            if said.get("unaccounted") == 0:
                break
        except ValueError:
            said = done
        time.sleep(2)
    check(T, f"{what}: the books are closed", isinstance(said, dict) and said.get("unaccounted") == 0, said)


def attack(v):
    both = [()] if v.mode == "up" else [("worker",), ("serve",), ("worker", "serve")]
    for which in both:
        name = "+".join(which) or "up"
        for part in (invokes, appends, children, paused, waiting, compaction, sessions, redrives, timers, deletes):
            try:
                part(v, which, f"{name}, {part.__name__}")
            except Exception as e:
                check(T, f"{name}, {part.__name__}: runs to its end", False, repr(e))
                if not v.alive():
                    return
        audit(v, name)
    if v.mode != "up":
        for server in ("redis", "nats"):
            servers(v, server)


def invokes(v, which, what):
    """Operations that were accepted; the process dies in between."""
    path = "w/inv" + v.name()
    ts, got = flood(150, lambda i: v.http("POST", "/invoke", {"operation": "v/ops/lattice/append", "input": {"path": path, "value": i}}, headers={"Idempotency-Key": f"{path[2:]}-{i}"}, timeout=20))
    time.sleep(0.4)
    kill(v, *which)
    [t.join() for t in ts]
    accepted = {i: a[1]["id"] for i, a in got if 200 <= a[0] < 300 and isinstance(a[1], dict) and a[1].get("id")}
    check(T, f"{what}: answers are 2xx, 503 or a broken connection", all(a[0] == 0 or 200 <= a[0] < 300 or a[0] in (429, 503) for _, a in got), [a for _, a in got if a[0] and a[0] >= 400 and a[0] != 503][:2])
    ends = {i: end(v, j) for i, j in accepted.items()}
    check(T, f"{what}: each accepted one ends", all(e.get("status") in ENDS for e in ends.values()), [e for e in ends.values() if e.get("status") not in ENDS][:2])
    value = v.read(path)[1].get("value") or []
    counts = Counter(value)
    check(T, f"{what}: none is made twice", not counts or max(counts.values()) == 1, counts.most_common(3))
    check(T, f"{what}: each that is complete is made", all(counts[i] == 1 for i, e in ends.items() if e.get("status") == "COMPLETE"), [i for i, e in ends.items() if e.get("status") == "COMPLETE" and counts[i] != 1][:5])
    check(T, f"{what}: each that failed says so as the guide does", all(e.get("errorCode") == "OUTCOME_UNKNOWN" for e in ends.values() if e.get("status") == "FAILED"), [e for e in ends.values() if e.get("status") == "FAILED"][:2])
    # Whoever was not answered asks again under his id: one effect.
    for i, a in got:
        if not 200 <= a[0] < 300:
            s, said = v.http("POST", "/invoke", {"operation": "v/ops/lattice/append", "input": {"path": path, "value": i}, "wait": 4000}, headers={"Idempotency-Key": f"{path[2:]}-{i}"})
            check(T, f"{what}: asked again it is answered", 200 <= s < 300, (s, said))
    time.sleep(1)
    counts = Counter(v.read(path)[1].get("value") or [])
    check(T, f"{what}: asked again, none is made twice", not counts or max(counts.values()) == 1, counts.most_common(3))


def appends(v, which, what):
    """Thirty tasks, each with an append in its turn; killed twice."""
    path = "w/app" + v.name()
    jobs = []
    for i in range(30):
        a = v.agent(then([("lattice_append", {"path": path, "value": i})], "done", after=0.3 + i * 0.03))
        s, job = v.http("POST", f"/agents/{a}/tasks", {"input": i})
        jobs.append(job.get("job"))
    check(T, f"{what}: all are accepted", all(jobs), jobs.count(None))
    for _ in range(2):
        time.sleep(0.7)
        kill(v, *which)
    ends = [end(v, j) for j in jobs]
    check(T, f"{what}: each task is complete", all(e.get("status") == "COMPLETE" for e in ends), [e for e in ends if e.get("status") != "COMPLETE"][:2])
    value = v.read(path)[1].get("value") or []
    check(T, f"{what}: each append once", sorted(value) == list(range(30)), sorted(value))


def children(v, which, what):
    path = "w/kid" + v.name()
    kid = v.agent(then([("lattice_append", {"path": path, "value": "kid"})], "from the kid", after=1))
    grand = v.agent(then([("agent_request", {"agentId": kid, "input": 1, "wait": 0})], "grand done"))
    parent = v.agent(then([("lattice_append", {"path": path, "value": "parent"}), ("agent_request", {"agentId": grand, "input": 1, "wait": 0}), ("agent_message", {"agentId": v.agent(["heard"]), "message": "hello"})], "parent done"))
    s, job = v.http("POST", f"/agents/{parent}/tasks", {"input": 1})
    time.sleep(0.8)
    kill(v, *which)
    e = end(v, job["job"])
    check(T, f"{what}: the parent is complete", e.get("status") == "COMPLETE", e)
    s, said = v.http("GET", "/jobs?limit=200&details=true")
    for name in (grand, kid):
        mine = [j for j in said.get("items", []) if j.get("agent") == name]
        check(T, f"{what}: {name} has one job, and it ends", len(mine) == 1 and end(v, mine[0]["id"]).get("status") == "COMPLETE", mine)
    value = sorted(v.read(path)[1].get("value") or [])
    check(T, f"{what}: each append once", value == ["kid", "parent"], value)


def paused(v, which, what):
    a = v.agent(then([("lattice_read", {"path": "w"})], "done", after=0.8))
    m = v.last_model
    s, job = v.http("POST", f"/agents/{a}/tasks", {"input": 1})
    time.sleep(0.2)
    s, said = v.http("PUT", f"/jobs/{job['job']}/pause", {})
    check(T, f"{what}: a job is paused", s in (200, 202), (s, said))
    s, behind = v.http("POST", f"/agents/{a}/tasks", {"input": 2, "sessionId": job["session"]})
    kill(v, *which)
    time.sleep(5)
    s, now = v.http("GET", f"/jobs/{job['job']}")
    check(T, f"{what}: it is paused after the restart", now.get("status") == "PAUSED", now)
    calls = len(v.model.seen[m])
    time.sleep(2)
    check(T, f"{what}: and no turn begins for it", len(v.model.seen[m]) == calls and calls <= 2, (calls, len(v.model.seen[m])))
    check(T, f"{what}: what is behind it waits", v.http("GET", f"/jobs/{behind['job']}")[1].get("status") == "PENDING", v.http("GET", f"/jobs/{behind['job']}")[1])
    gone = kill(v, *which, stop_only=True)
    start(v, gone)
    s, said = v.http("PUT", f"/jobs/{job['job']}/resume", {})
    check(T, f"{what}: it is resumed", s in (200, 202), (s, said))
    e = end(v, job["job"])
    check(T, f"{what}: and ends", e.get("status") == "COMPLETE", e)
    check(T, f"{what}: and what is behind it too", end(v, behind["job"]).get("status") == "COMPLETE")


def waiting(v, which, what):
    path = "w/wait" + v.name()
    a = v.agent(then([("lattice_append", {"path": path, "value": 1})], "done"), {"tools": [{"operation": "v/ops/lattice/append", "approval": "ask"}], "defaultTools": False})
    q = v.agent(then([("human_ask", {"title": "t", "asks": [{"id": "a", "type": "text", "prompt": "p"}]})], "done"), {"tools": ["v/ops/human/ask"], "defaultTools": False})
    jobs = [v.http("POST", f"/agents/{x}/tasks", {"input": 1})[1]["job"] for x in (a, a, q)]
    find = lambda j: next((x for x in v.http("GET", "/approvals?limit=200")[1].get("items", []) if x.get("job") == j), {})
    for _ in range(60):
        if all(find(j) for j in jobs):
            break
        time.sleep(0.1)
    before = [find(j) for j in jobs]
    kill(v, *which)
    time.sleep(4)
    check(T, f"{what}: all still wait", all(v.http("GET", f"/jobs/{j}")[1].get("status") == "INPUT_REQUIRED" for j in jobs), [v.http("GET", f"/jobs/{j}")[1].get("status") for j in jobs])
    check(T, f"{what}: and what is asked is the same", [find(j) for j in jobs] == before and all(before), before)
    s1, said = v.http("POST", f"/approvals/{before[0].get('id')}", {"approve": {}})
    s2, said = v.http("POST", f"/approvals/{before[1].get('id')}", {"reject": {"reason": "no"}})
    s3, said = v.http("POST", f"/approvals/{before[2].get('id')}", {"answers": {"a": "x"}})
    kill(v, *which)
    check(T, f"{what}: answers are taken", (s1, s2, s3) == (200, 200, 200), (s1, s2, s3, said))
    ends = [end(v, j) for j in jobs]
    check(T, f"{what}: killed behind the answers, each ends", all(e.get("status") == "COMPLETE" for e in ends), ends)
    check(T, f"{what}: what was approved is done once, what was rejected not", v.read(path)[1].get("value") == [1], v.read(path)[1])
    s, said = v.http("POST", f"/approvals/{before[0].get('id')}", {"reject": {"reason": "late"}})
    check(T, f"{what}: an answer counts once", 400 <= s < 500, (s, said))


def then_compact(path):
    def say(b):
        text = json.dumps(b["messages"])
        time.sleep(0.4)
        if "what was so far" in text:
            return "done" if '\\"value\\": 2' in text or '"value": 2' in text or '\\"value\\":2' in text else [("lattice_append", {"path": path, "value": 2})]
        return [("compact", {"summary": "what was so far"})] if any(m["role"] == "tool" for m in b["messages"]) else [("lattice_append", {"path": path, "value": 1})]
    return say


def compaction(v, which, what):
    path = "w/comp" + v.name()
    a = v.agent([then_compact(path)], {"loop": "goalTree", "tools": ["subgoal", "compact"]})
    s, job = v.http("POST", f"/agents/{a}/tasks", {"input": 1})
    time.sleep(0.9)
    kill(v, *which)
    e = end(v, job["job"])
    check(T, f"{what}: the task ends", e.get("status") == "COMPLETE", e)
    check(T, f"{what}: each append once, in order", v.read(path)[1].get("value") == [1, 2], v.read(path)[1])
    s, said = v.http("GET", f"/agents/{a}/sessions/{job['session']}")
    check(T, f"{what}: the session can be read", s == 200, (s, said))


def sessions(v, which, what):
    """Forty compactions of sessions from outside; each was answered or has no effect."""
    a = v.agent(["ok"])
    names = [f"s{i}" for i in range(20)]
    for n in names:
        v.task(a, "one", body={"sessionId": n}, wait=4000)
    ts, got = flood(20, lambda i: v.run("agent/compact-session", {"agentId": a, "sessionId": names[i], "summary": f"sum-{i}"}, timeout=20), 4)
    time.sleep(0.15)
    kill(v, *which)
    [t.join() for t in ts]
    for i, (s, said) in sorted(got):
        if s == 200:
            s2, now = v.run("agent/context", {"agentId": a, "sessionId": names[i]})
            check(T, f"{what}: what was answered stays", f"sum-{i}" in json.dumps(now), (s2, str(now)[-300:]))
        s2, said = v.task(a, "more", body={"sessionId": names[i]}, wait=8000)
        check(T, f"{what}: the session goes on", said.get("status") == "COMPLETE", (s2, said))


def redrives(v, which, what):
    a = v.agent([[("fail_task", {"error": "no"})]])
    jobs = [v.http("POST", f"/agents/{a}/tasks", {"input": i})[1]["job"] for i in range(40)]
    check(T, f"{what}: forty fail", all(end(v, j).get("status") == "FAILED" for j in jobs))
    v.model.says(v.last_model, ["fine"])
    got = []
    t = threading.Thread(target=lambda: got.append(v.http("POST", "/jobs", {"action": "redrive", "agent": a, "status": ["FAILED"], "expected": 40, "limit": 100}, timeout=20)))
    t.start()
    time.sleep(0.06)
    kill(v, *which)
    t.join()
    s, said = v.http("POST", "/jobs", {"action": "redrive", "agent": a, "status": ["FAILED"], "dryRun": True})
    check(T, f"{what}: it is told how many are left", s == 200, (s, said))
    left = next((said[k] for k in ("total", "count", "jobs", "matched", "expected") if isinstance(said.get(k), int)), None)
    s, said = v.http("POST", "/jobs", {"action": "redrive", "agent": a, "status": ["FAILED"], "expected": left, "limit": 100})
    check(T, f"{what}: asked again it goes on", s == 200, (s, said, got))
    for j in jobs:
        v.http("PUT", f"/jobs/{j}/redrive", {})
    time.sleep(3)
    items = v.http("GET", f"/jobs?agent={a}&limit=200&details=true")[1].get("items", [])
    of = Counter(j.get("redriveOf") for j in items if j.get("redriveOf"))
    check(T, f"{what}: each is driven again exactly once", len(of) == 40 and set(of.values()) == {1}, (len(of), of.most_common(2), got))
    check(T, f"{what}: and is complete", all(end(v, j["id"]).get("status") == "COMPLETE" for j in items if j.get("redriveOf")))


def timers(v, which, what):
    a = v.agent(["tick"])
    m = v.last_model
    s, said = v.http("POST", f"/agents/{a}/timers", {"input": "due", "after": "2s"})
    check(T, f"{what}: a timer is set", s in (200, 201, 202), (s, said))
    gone = kill(v, *which, stop_only=True)
    time.sleep(3.5)
    start(v, gone)
    for _ in range(40):
        if v.model.seen[m]:
            break
        time.sleep(0.3)
    time.sleep(3)
    check(T, f"{what}: a timer that was due in the downtime fires once", len(v.model.seen[m]) == 1, len(v.model.seen[m]))


def deletes(v, which, what):
    """Agents and sessions are deleted in the middle of it: gone or there, never half."""
    made = [v.agent(["ok"]) for _ in range(12)]
    for a in made:
        v.task(a, wait=4000)
    ts, got = flood(12, lambda i: v.http("DELETE", f"/agents/{made[i]}?remove=true", timeout=20), 4)
    time.sleep(0.08)
    kill(v, *which)
    [t.join() for t in ts]
    listed = {x.get("agentId") or x.get("id") or x.get("name") if isinstance(x, dict) else x for x in v.http("GET", "/agents?limit=1000&includeTerminated=true")[1].get("agents", [])}
    for i, (s, said) in sorted(got):
        now = v.http("GET", f"/agents/{made[i]}")[0]
        check(T, f"{what}: what was removed stays so", s != 200 or now == 404, (s, now))
        check(T, f"{what}: the list and the agent agree", (made[i] in listed) == (now == 200), (made[i], now))
        if now == 200:
            s2, job = v.task(made[i], wait=8000)
            check(T, f"{what}: an agent that is there works, or says that it is ended", job.get("status") == "COMPLETE" or 400 <= s2 < 500, (s2, job))


def servers(v, server):
    """The store or the queue is killed while tasks run and come; on the same port, with the same files, it comes back."""
    path = "w/srv" + v.name()
    jobs, told = [], []
    agents = [v.agent(then([("lattice_append", {"path": path, "value": i})], "done", after=0.2)) for i in range(40)]
    for i, a in enumerate(agents):
        s, job = v.http("POST", f"/agents/{a}/tasks", {"input": i}, timeout=30)
        told.append(s)
        if s == 202:
            jobs.append((i, job["job"]))
        if i == 15:
            gone = kill(v, server, stop_only=True)
            threading.Timer(2.0, lambda: start(v, gone)).start()
    check(T, f"{server} killed: submissions are accepted, or refused with 503", all(s in (202, 503) for s in told), Counter(told))
    ends = [(i, end(v, j, 60)) for i, j in jobs]
    check(T, f"{server} killed: each accepted task is complete", all(e.get("status") == "COMPLETE" for _, e in ends), [e for _, e in ends if e.get("status") != "COMPLETE"][:2])
    value = Counter(v.read(path)[1].get("value") or [])
    check(T, f"{server} killed: each append of an accepted task once", all(value[i] == 1 for i, _ in jobs) and max(value.values(), default=1) == 1, value)
    audit(v, server + " killed")
