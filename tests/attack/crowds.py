"""Attacks the peace of others by very many tiny things of one owner: agents, sessions, assets, secrets, timers that are due at once, questions, mail,
revocations, pins, memories, forks, operations and streams, each made, listed, searched and deleted by the hundred while another owner works.
Expected: the other's task, write and list are served soon all the time, every list has pages, and deleting gives everything back."""

import http.client
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from venue import check

T = "crowds"
SETS = ["catalog.test=true", "worker.slots=8", "http.connections=128", "http.connections_per_address=128"]
N = 250
ECHO = {"model": {"provider": "scripted", "name": "echo", "maxTokens": 16}, "defaultTools": False, "tools": []}
EVIL = {"owner": "evil/eve"}
GOOD = {"owner": "good/gus"}


class Watch:
    """Asks for the good owner all the time and keeps how long each answer took."""

    def __init__(self, v):
        self.v, self.times, self.bad, self.on = v, [], [], True
        v.http("PUT", "/agents/e", ECHO, **GOOD)
        self.thread = threading.Thread(target=self.go, daemon=True)
        self.thread.start()

    def go(self):
        i = 0
        while self.on:
            i += 1
            for what, call in (("task", lambda: self.v.http("POST", "/agents/e/tasks?wait=20000", {"input": i}, timeout=25, **GOOD)), ("write", lambda: self.v.write("w/x", i, timeout=25, **GOOD)), ("list", lambda: self.v.http("GET", "/agents", timeout=25, **GOOD))):
                began = time.time()
                s, said = call()
                took = time.time() - began
                self.times.append((took, what))
                if s not in (200, 202) or what == "task" and said.get("status") != "COMPLETE":
                    self.bad.append((what, s, str(said)[:150]))
            time.sleep(0.2)

    def judge(self, name, most=8):
        times, self.times = self.times, []
        bad, self.bad = self.bad, []
        worst = max(times, default=(0, "none"))
        check(T, f"{name}: the other owner is served within {most} s", worst[0] < most, (worst, len(times)))
        check(T, f"{name}: none of his calls fails", not bad, bad[:3])


def attack(v):
    watch = Watch(v)
    try:
        for step in (values, agents, sessions, assets, secrets, timers, questions, mail, policies, memories, operations, streams):
            began = time.time()
            step(v)
            time.sleep(1)
            watch.judge(step.__name__)
            print(f"   {step.__name__}: {time.time() - began:.0f} s", flush=True)
    finally:
        watch.on = False
        watch.thread.join(30)
    s, said = v.http("GET", "/quota", **EVIL)
    check(T, "in the end one knows what the crowd keeps", s == 200 and said.get("documents"), (s, said))


def all_of(call, n=N, threads=6):
    """Makes `n` of something; how many were taken, and the first that wasn't."""
    with ThreadPoolExecutor(threads) as pool:
        got = list(pool.map(call, range(n)))
    bad = [x for x in got if not 200 <= x[0] < 300]
    return n - len(bad), bad[:2]


def paged(v, name, path, key="items", at_least=0, by="offset"):
    """Reads a list page by page: each within moments, no entry twice, no end that isn't told."""
    seen, cursor, began, pages = [], None, time.time(), 0
    while pages < 60:
        join = "&" if "?" in path else "?"
        s, said = v.http("GET", path + (f"{join}{by}={cursor}" if cursor is not None else ""), **EVIL)
        if s != 200:
            return check(T, f"{name}: the list is answered", False, (s, said))
        entries = said.get(key, said) if isinstance(said, dict) else said
        seen += [json.dumps(x, sort_keys=True) for x in entries] if isinstance(entries, list) else list(entries)
        pages += 1
        nxt = said.get("next") if isinstance(said, dict) else None
        if nxt is None or nxt == cursor:
            break
        cursor = nxt
    took = time.time() - began
    check(T, f"{name}: the list has pages and an end", took < 20 and pages < 60, (took, pages, len(seen)))
    check(T, f"{name}: nothing is there twice, and nothing is missing", len(seen) == len(set(seen)) and len(seen) >= at_least, (len(seen), len(set(seen)), at_least))


def values(v):
    took, bad = all_of(lambda i: v.write(f"w/t/{i}", i, **EVIL))
    check(T, "values: each is taken, or refused with a reason", took == N or bad[0][0] in (413, 429, 507), bad)
    s, said = v.write("w/wide", {f"k{i}": i for i in range(20000)}, **EVIL)
    check(T, "a map of twenty thousand keys has an answer", s < 500, (s, str(said)[:200]))
    for op, input in (("lattice/list", {"path": "w/wide"}), ("lattice/count", {"path": "w", "depth": 3}), ("schema/infer", {"path": "w/wide"}), ("lattice/inspect", {"path": "w"}), ("lattice/aggregate", {"path": "w/wide", "groupBy": "x"}), ("lattice/delete", {"path": "w/t"}), ("lattice/delete", {"path": "w/wide"})):
        began = time.time()
        s, said = v.run(op, input, **EVIL)
        check(T, f"{op} of very many has a quick answer", s < 500 and time.time() - began < 15, (s, time.time() - began, str(said)[:100]))


def agents(v):
    took, bad = all_of(lambda i: v.http("PUT", f"/agents/crowd{i}", ECHO, **EVIL))
    check(T, "agents: each is made", took == N, bad)
    paged(v, "agents", "/agents?limit=100", "agents", at_least=N, by="after")
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda i: v.http("PUT", f"/agents/crowd{i}/suspend", {}, **EVIL), range(100)))
        got = list(pool.map(lambda i: v.http("DELETE", f"/agents/crowd{i}?remove=true", **EVIL), range(N)))
    check(T, "agents: each is removed", all(s < 300 for s, _ in got), [x for x in got if x[0] >= 300][:2])


def sessions(v):
    v.http("PUT", "/agents/se", {**ECHO, "concurrency": 50}, **EVIL)
    took, bad = all_of(lambda i: v.http("POST", "/agents/se/tasks", {"input": i, "sessionId": f"s{i}"}, **EVIL))
    check(T, "sessions: each task is taken", took == N, bad)
    for _ in range(100):
        s, said = v.http("GET", "/jobs?agent=se&status=PENDING,STARTED&limit=5", **EVIL)
        if not said.get("items"):
            break
        time.sleep(0.5)
    paged(v, "sessions", "/agents/se/sessions?limit=100", "sessions", at_least=N, by="after")
    began = time.time()
    s, said = v.http("GET", "/agents/se", **EVIL)
    check(T, "an agent of very many sessions is read soon", s == 200 and time.time() - began < 5, time.time() - began)
    began = time.time()
    s, said = v.http("DELETE", "/agents/se?remove=true", timeout=60, **EVIL)
    check(T, "and removed", s < 300 and time.time() - began < 30, (s, time.time() - began, said))
    s, said = v.http("GET", "/agents/se/sessions", **EVIL)
    check(T, "nothing of it is left", s == 404 or not said.get("sessions"), (s, str(said)[:200]))


def assets(v):
    ids = []
    took, bad = all_of(lambda i: (lambda r: (ids.append(r[1] if isinstance(r[1], str) else r[1].get("id")), r)[1])(v.http("POST", "/assets", {"content": f"asset {i}"}, **EVIL)))
    check(T, "assets: each is taken", took == N, bad)
    paged(v, "assets", "/assets?limit=100", at_least=N)
    v.agent(["ok"], {"defaultTools": False, "tools": []}, name="att", **EVIL)
    began = time.time()
    s, said = v.http("POST", "/agents/att/tasks?wait=8000", {"input": {"text": "x", "attachments": [{"$asset": f"a/{i}" if not str(i).startswith("a/") else i} for i in ids]}}, **EVIL)
    check(T, "a task with all of them has an answer", s < 500 and time.time() - began < 12, (s, time.time() - began, str(said)[:200]))


def secrets(v):
    took, bad = all_of(lambda i: v.http("PUT", f"/secrets/CROWD{i}", {"value": f"crowdsecret-{i:06d}-abcdef", "hosts": ["a.example"]}, **EVIL))
    check(T, "secrets: each is taken, or refused with a reason", took == N or bad[0][0] in (400, 409, 413, 429, 507), bad)
    began = time.time()
    s, said = v.http("GET", "/secrets", **EVIL)
    check(T, "secrets are listed soon, without a value", s == 200 and time.time() - began < 5 and "crowdsecret-" not in json.dumps(said), time.time() - began)
    began = time.time()
    r, job, _ = v.calls([("http_post", {"url": "http://a.example/", "body": {f"k{i}": {"$secret": f"s/CROWD{i}"} for i in range(N)}})], {"tools": ["v/ops/http/post"]}, **EVIL)
    check(T, "a call with all of them has an answer, without a value", time.time() - began < 15 and "crowdsecret-" not in json.dumps(r), (time.time() - began, r[:1]))
    with ThreadPoolExecutor(6) as pool:
        got = list(pool.map(lambda i: v.http("DELETE", f"/secrets/CROWD{i}", **EVIL)[0], range(took)))
    check(T, "secrets: each is deleted", all(s < 300 for s in got), [s for s in got if s >= 300][:3])


def timers(v):
    v.http("PUT", "/agents/ti", ECHO, **EVIL)
    at = int(time.time() * 1000) + 12000
    took, bad = all_of(lambda i: v.http("POST", "/agents/ti/timers", {"input": i, "after": f"{max(1, int((at - time.time() * 1000) / 1000))}s", "name": f"n{i}"}, **EVIL))
    check(T, "timers: each is set, or refused with a reason", took == N or bad[0][0] in (400, 409, 429, 507), bad)
    paged(v, "timers", "/timers?limit=100")
    time.sleep(max(0, at / 1000 - time.time()) + 2)
    for _ in range(80):
        items = v.http("GET", "/jobs?agent=ti&limit=500", **EVIL)[1].get("items", [])
        left = v.http("GET", "/jobs?agent=ti&status=PENDING,STARTED&limit=5", **EVIL)[1].get("items", [])
        if len(items) >= took and not left:
            break
        time.sleep(0.5)
    check(T, "timers that are due at once: each sends once", len(items) == min(took, 500), (len(items), took))
    took, bad = all_of(lambda i: v.http("POST", "/agents/ti/timers", {"input": i, "every": "1h", "name": f"h{i}"}, **EVIL), 100)
    s, said = v.http("DELETE", "/agents/ti?remove=true", timeout=60, **EVIL)
    left = v.http("GET", "/timers?limit=10", **EVIL)[1].get("items", [])
    check(T, "an agent with a hundred timers is removed with them", s < 300 and not left, (s, left[:1]))


def questions(v):
    v.agent([lambda b: "done" if any(m["role"] == "tool" for m in b["messages"]) else [("human_ask", {"title": "T", "asks": [{"id": f"a{i}", "type": "text", "prompt": "p"} for i in range(5)]})]], {"tools": ["v/ops/human/ask"], "concurrency": 50}, name="qu", **EVIL)
    n = 120
    took, bad = all_of(lambda i: v.http("POST", "/agents/qu/tasks", {"input": i, "sessionId": f"q{i}"}, **EVIL), n)
    for _ in range(60):
        s, said = v.http("GET", "/jobs?agent=qu&status=INPUT_REQUIRED&limit=200", **EVIL)
        if len(said.get("items", [])) >= took:
            break
        time.sleep(0.5)
    paged(v, "questions", "/approvals?limit=50", at_least=took)
    s, said = v.http("DELETE", "/agents/qu?remove=true", timeout=60, **EVIL)
    left = v.http("GET", "/approvals?limit=10", **EVIL)[1].get("items", [])
    check(T, "an agent with very many questions is removed with them", s < 300 and not left, (s, left[:1]))


def mail(v):
    v.http("PUT", "/agents/ma", ECHO, **EVIL)
    v.http("PUT", "/agents/ma/suspend", {}, **EVIL)
    took, bad = all_of(lambda i: v.http("POST", "/agents/ma/messages", {"input": i, "sessionId": "one"}, **EVIL))
    check(T, "mail: each is taken, or refused with a reason", took == N or bad[0][0] in (409, 429, 507), bad)
    took2, bad = all_of(lambda i: v.http("POST", "/agents/ma/tasks", {"input": i, "sessionId": "one"}, **EVIL))
    began = time.time()
    s, said = v.http("GET", "/agents/ma/sessions/one", **EVIL)
    check(T, "the session with very much mail is read soon", s == 200 and time.time() - began < 5, (s, time.time() - began))
    s, said = v.http("POST", "/jobs", {"action": "cancel", "agent": "ma", "dryRun": True}, **EVIL)
    matched = said.get("matched", 0)
    for _ in range(10):
        s, said = v.http("POST", "/jobs", {"action": "cancel", "agent": "ma", "dryRun": True}, **EVIL)
        if not said.get("matched"):
            break
        v.http("POST", "/jobs", {"action": "cancel", "agent": "ma", "expected": said["matched"]}, timeout=60, **EVIL)
    check(T, "very many tasks of one session are cancelled in bulk", not said.get("matched"), (matched, said))
    s, said = v.http("DELETE", "/agents/ma?remove=true", timeout=60, **EVIL)
    check(T, "and their agent removed", s < 300, (s, said))


def policies(v):
    took, bad = all_of(lambda i: v.run("policy/revoke", {"path": f"w/p{i}"}, **EVIL), 200)
    check(T, "revocations: each is taken", took == 200, bad)
    began = time.time()
    r, job, _ = v.calls([("lattice_write", {"path": f"w/ok{i}", "value": 1}) for i in range(40)], **EVIL)
    check(T, "a turn of forty calls under two hundred revocations is done soon", time.time() - began < 10 and len(r) == 40, (time.time() - began, len(r)))
    shown = v.run("policy/show", {}, **EVIL)[1].get("revocations", [])
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda r: v.run("policy/restore", {"id": r["id"]}, **EVIL), shown))
    check(T, "all of them are restored", not v.run("policy/show", {}, **EVIL)[1].get("revocations"), len(shown))


def memories(v):
    res = {"resources": {"memory": {"mode": "read-write"}, "files": {"mode": "read-write"}}}
    calls = [[("memory_write", {"content": f"m{k}-{i}", "topics": [f"t{k}-{i}"]}) for i in range(50)] + [("files_write", {"path": f"f{k}-{i}.txt", "content": "x"}) for i in range(50)] for k in range(3)]
    v.agent([*calls, "done"], res, name="me", **EVIL)
    began = time.time()
    s, said = v.task("me", 1, 30000, body={"context": ["app/user/u1"]}, timeout=40, **EVIL)
    check(T, "three hundred memories and files are written by one task", said.get("status") == "COMPLETE" and time.time() - began < 25, (time.time() - began, said.get("status")))
    v.agent([[("memory_search", {"query": "m"}), ("memory_read", {}), ("files_list", {})], "done"], res, name="me", **EVIL)
    began = time.time()
    s, said = v.task("me", 1, 15000, body={"context": ["app/user/u1"]}, **EVIL)
    check(T, "and searched soon", said.get("status") == "COMPLETE" and time.time() - began < 8, (time.time() - began, said.get("status")))
    check(T, "the prompt is bounded", len(v.prompt()) < 600_000, len(v.prompt()))
    s, said = v.run("resource/purge", {"namespace": "app/user/u1", "recursive": True}, timeout=60, **EVIL)
    check(T, "and erased", s == 200, (s, said))


def operations(v):
    took, bad = all_of(lambda i: v.http("POST", "/invoke", {"operation": "v/ops/test/delay", "input": {"delay": 100}}, **EVIL), N, 12)
    check(T, "operations: each is taken, or told to come again", took == N or bad[0][0] in (429, 503, 507), bad)
    took, bad = all_of(lambda i: v.http("POST", "/invoke", {"operation": "v/ops/lattice/append", "input": {"path": "w/ap", "value": i}}, **EVIL), N, 12)
    check(T, "appends: each is taken, or told to come again", took == N or bad[0][0] in (429, 503, 507), bad)
    n = -1
    for _ in range(80):
        value = v.read("w/ap", **EVIL)[1].get("value") or []
        if len(value) >= took and len(value) == n:
            break
        n = len(value)
        time.sleep(0.5)
    check(T, "each append that was taken is made once", len(value) == took and len(set(value)) == took, (len(value), took))


def streams(v):
    v.agent([lambda _: (time.sleep(6), "x")[1]], name="st", **EVIL)
    s, job = v.http("POST", "/agents/st/tasks", {"input": 1}, **EVIL)
    connections = []
    for i in range(100):
        c = http.client.HTTPConnection("127.0.0.1", v.port, timeout=10)
        try:
            c.request("GET", f"/api/v1/jobs/{job['job']}/sse", None, {"X-Trellis-Owner": "evil/eve"})
            connections.append(c)
        except OSError:
            pass
    time.sleep(3)
    states = []
    for c in connections:
        try:
            r = c.getresponse()
            states.append(r.status)
        except OSError:
            states.append(0)
    check(T, "a hundred streams of one owner: some are answered, others are told to come again", set(states) <= {200, 429, 503, 0} and 200 in states, {s: states.count(s) for s in set(states)})
    for c in connections:
        c.close()
