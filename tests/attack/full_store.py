"""Fills the store up to 80 % and beyond: Redis with a small `maxmemory`, the embedded one with `store.max_bytes`, and knocks at each entrance. Expected:
new work is answered 503 with `Retry-After` and a reason that says what to do; what was accepted ends, approvals are answered, paused jobs go on,
reading, cancelling and deleting work; messages in the queue wait there; after deletion work is taken again, and no accepted job is lost."""

import asyncio
import json
import os
import socket
import time

from venue import check

T = "full_store"
MIB = 1 << 20
# One owner alone fills it: his quota would keep him from that.
SETS = ("quota.bytes=0", f"store.max_bytes={320 * MIB}", "worker.audit=2s", "worker.lease=5s")


def redis(v, *words):
    """One command to the venue's Redis."""
    with socket.create_connection(("127.0.0.1", v.redis), 5) as s:
        s.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in (str(x).encode() for x in words)))
        s.settimeout(5)
        return s.recv(65536).decode(errors="replace")


def fill(v):
    s, said = v.http("GET", "/metrics", root=True)
    for line in str(said).splitlines():
        if line.startswith("trellis_store_fill_ratio"):
            return 100 * float(line.split()[-1])


def end(v, job, seconds=30):
    said = {}
    for _ in range(int(seconds / 2)):
        s, said = v.http("GET", f"/jobs/{job}?wait=2000")
        if isinstance(said, dict) and said.get("status") in ("COMPLETE", "FAILED", "CANCELLED", "REJECTED"):
            return said
    return said


def attack(v):
    if v.mode == "fleet":
        check(T, "Redis has a limit", "OK" in redis(v, "CONFIG", "SET", "maxmemory", 90 * MIB))
    v.agent(["fine"], name="fine")
    _, first = v.task("fine")
    # What is accepted before.
    ask = {"tools": [{"operation": "v/ops/lattice/append", "approval": "ask"}], "defaultTools": False}
    v.agent([[("lattice_append", {"path": "w/kept", "value": "approved"})], "done"], ask, name="asker")
    _, asked = v.http("POST", "/agents/asker/tasks", {"input": 1})
    told = lambda *replies, after=0: [lambda b: (time.sleep(after), replies[min(sum(1 for m in b["messages"] if m["role"] == "assistant" and m.get("tool_calls")), len(replies) - 1)])[1]]
    v.agent(told([("lattice_append", {"path": "w/kept", "value": "resumed"})], "done", after=0.5), name="pauser")
    _, paused = v.http("POST", "/agents/pauser/tasks", {"input": 1})
    time.sleep(0.2)
    v.http("PUT", f"/jobs/{paused['job']}/pause", {})
    v.agent([[("fail_task", {"error": "x"})]], name="failer")
    _, failed = v.task("failer")
    v.agent(["kid"], name="kid")
    release = []
    v.agent([lambda b: wait_for(release, b), "done", "done"], name="parent")
    _, parent = v.http("POST", "/agents/parent/tasks", {"input": 1})
    v.agent(["queued"], {"concurrency": 1}, name="rests")
    v.http("PUT", "/agents/rests/suspend", {})
    _, rests = v.http("POST", "/agents/rests/tasks", {"input": 1})
    _, toss = v.http("POST", "/agents/rests/tasks", {"input": "toss"})
    _, timer = v.http("POST", "/agents/fine/timers", {"input": "due", "after": "60s"})
    check(T, "all of it is accepted", all(x.get("job") for x in (asked, paused, failed, parent, rests, toss)) and timer.get("timer"), (asked, paused, parent, timer))
    # Writes of data fill it.
    n, status, said = 0, 200, {}
    text = os.urandom(440_000).hex()
    for _ in range(6):
        while n < 900 and status == 200 and (fill(v) or 0) < 86:
            status, said = v.write(f"w/fill/k{n}", text[n % 1000:] + str(n))
            n += 1
        time.sleep(2.5)
        if (fill(v) or 0) >= 83:
            break
    check(T, "data is taken up to 80 % and more", (fill(v) or 0) >= 80, (n, fill(v), status, said))
    print(f"   {n} writes, {fill(v)} %", flush=True)
    # Each entrance.
    task = {"input": 1}
    entrances = {
        "task": ("POST", "/agents/fine/tasks", task), "task that waits": ("POST", "/agents/fine/tasks?wait=2000", task), "message": ("POST", "/agents/fine/messages", task),
        "request": ("POST", "/run", {"operation": "v/ops/agent/request", "input": {"agentId": "fine", "input": 1}}), "message by operation": ("POST", "/run", {"operation": "v/ops/agent/message", "input": {"agentId": "fine", "message": 1}}),
        "chat": ("POST", "/run", {"operation": "v/ops/agent/chat", "input": {"agentId": "fine", "message": 1, "timeout": 2000}}), "request in job/run": ("POST", "/run", {"operation": "v/ops/job/run", "input": {"operation": "v/ops/agent/request", "input": {"agentId": "fine", "input": 1}}}),
        "invoke of a write": ("POST", "/invoke", {"operation": "v/ops/lattice/append", "input": {"path": "w/inv", "value": 1}}), "invoke of a request": ("POST", "/invoke", {"operation": "v/ops/agent/request", "input": {"agentId": "fine", "input": 1}}),
        "redrive": ("PUT", f"/jobs/{failed['job']}/redrive", {}), "redrive by operation": ("POST", "/run", {"operation": "v/ops/dead/redrive", "input": {"id": failed["job"]}}),
    }
    for name, (method, path, body) in entrances.items():
        s, said = v.http(method, path, body, timeout=20)
        check(T, f"{name} is answered 503", s == 503, (s, said))
        check(T, f"{name}: with Retry-After", v.headers.get("retry-after", "").isdigit(), v.headers)
        check(T, f"{name}: with a reason that names the store", any(w in json.dumps(said).lower() for w in ("full", "80", "memory", "store")) and "input" not in json.dumps(said)[:0], said)
    s, said = v.http("POST", "/jobs", {"action": "redrive", "agent": "failer", "status": ["FAILED"], "expected": 1})
    check(T, "a bulk redrive says that none is driven, and why", s == 503 or (s == 200 and said.get("done") == 0 and said.get("reasons")), (s, said))
    done = v.cli("submit", "fine", "x")
    check(T, "the command line says it, with exit code 8 or 1 and no trace", done.returncode in (1, 8) and b"panick" not in done.stderr and (b"full" in done.stderr or b"store" in done.stderr or b"memory" in done.stderr), (done.returncode, done.stderr.decode()[-400:]))
    # A submission that was accepted earlier, again: it is a duplicate, not new work.
    # Reading, changing, cancelling, deleting.
    for name, (method, path, body, want) in {"read": ("GET", "/values/read?path=w/kept", None, 200), "jobs": ("GET", "/jobs", None, 200), "job": ("GET", f"/jobs/{first['job']}", None, 200), "agents": ("GET", "/agents", None, 200), "turns": ("GET", "/agents/fine/turns", None, 200), "context": ("POST", "/agents/fine/context", {}, 200), "readyz": ("GET", "/../../readyz", None, None), "spend": ("GET", "/spend", None, 200), "approvals": ("GET", "/approvals", None, 200), "cancel": ("PUT", f"/jobs/{toss['job']}/cancel", {}, 200), "delete a job": ("PUT", f"/jobs/{first['job']}/delete", {}, 200), "suspend": ("PUT", "/agents/kid/suspend", {}, 200), "resume": ("PUT", "/agents/kid/resume", {}, 200), "revoke": ("POST", "/run", {"operation": "v/ops/policy/revoke", "input": {"path": "w/nothing"}}, 200), "delete a timer": ("DELETE", "/timers/none", None, None)}.items():
        s, said = v.http(method, path, body)
        check(T, f"{name} works meanwhile", s == want if want else s < 500, (s, str(said)[:300]))
    # What was accepted ends.
    w = next((a for a in v.http("GET", "/approvals")[1].get("items", []) if a.get("job") == asked["job"]), {})
    s, said = v.http("POST", f"/approvals/{w.get('id')}", {"approve": {}})
    check(T, "an approval is answered", s == 200, (s, said))
    s, said = v.http("PUT", f"/jobs/{paused['job']}/resume", {})
    check(T, "a paused job is resumed", s == 200, (s, said))
    v.http("PUT", "/agents/rests/resume", {})
    release.append(1)
    for name, job in (("approved", asked), ("paused", paused), ("queued", rests), ("with a child", parent)):
        e = end(v, job["job"])
        check(T, f"the job that was {name} ends well", e.get("status") == "COMPLETE", e)
    kept = v.read("w/kept")[1].get("value") or []
    check(T, "each of its appends is made once", sorted(kept) == ["approved", "parent", "resumed"], kept)
    kids = [j for j in v.http("GET", "/jobs?agent=kid&details=true&limit=50")[1].get("items", []) if isinstance(j, dict)]
    check(T, "the child of a running turn arrives and ends", len(kids) == 1 and end(v, kids[0]["id"]).get("status") == "COMPLETE", kids)
    # The queue: it waits there.
    if v.nats:
        asyncio.run(publish(v))
        time.sleep(3)
        s, said = v.http("GET", "/jobs?agent=fine&details=true&limit=50")
        check(T, "a submission in the queue is not worked on, and not refused", not [j for j in said.get("items", []) if isinstance(j, dict) and j.get("event") == "waits-there"], said)
    s, said = v.http("GET", "/timers?agentId=fine&all=true")
    mine = next((t for t in said.get("items", []) if t.get("timer") == timer.get("timer")), {})
    check(T, "the timer hasn't fired", mine.get("fired") == 0, mine)
    # To the brim: the server itself refuses; it says so, and what was kept can be read.
    if v.mode == "fleet":
        codes = []
        for i in range(60):
            s, said = v.write(f"w/fill/brim{i}", text)
            codes.append(s)
            if s >= 400:
                break
        check(T, "when the server refuses, a write is answered 503 or 507 with a reason", s in (503, 507) and said.get("detail"), (s, said))
        check(T, "and what is there can be read", v.read("w/kept")[0] == 200, v.read("w/kept"))
        s, said = v.run("lattice/delete", {"path": f"w/fill/k0"})
        check(T, "and deleted at the brim", s == 200, (s, said))
    # Deleted: it takes work again.
    began = time.time()
    s, said = v.run("lattice/delete", {"path": "w/fill"})
    if s != 200:
        for i in range(n):
            s, said = v.run("lattice/delete", {"path": f"w/fill/k{i}"})
    check(T, "deleting works", s == 200, (s, said))
    for _ in range(120):
        s, said = v.http("POST", "/agents/fine/tasks?wait=8000", {"input": "again"}, timeout=15)
        if s != 503:
            break
        time.sleep(1)
    check(T, "after the deletion work is taken again within two minutes", s == 202 and said.get("status") == "COMPLETE", (s, said, fill(v), time.time() - began))
    print(f"   takes work again after {time.time() - began:.0f} s at {fill(v)} %", flush=True)
    if v.nats:
        for _ in range(25):
            s, said = v.http("GET", "/jobs?agent=fine&details=true&limit=50")
            mine = [j for j in said.get("items", []) if isinstance(j, dict) and j.get("event") == "waits-there"]
            if mine and mine[0].get("status") == "COMPLETE":
                break
            time.sleep(1)
        check(T, "what waited in the queue is done then, once", len(mine) == 1 and mine[0].get("status") == "COMPLETE", mine)
    for _ in range(90):
        mine = next((t for t in v.http("GET", "/timers?agentId=fine&all=true")[1].get("items", []) if t.get("timer") == timer.get("timer")), {})
        if mine.get("fired"):
            break
        time.sleep(1)
    check(T, "and the timer has fired, once", mine.get("fired") == 1, mine)
    s, said = v.http("PUT", f"/jobs/{failed['job']}/redrive", {})
    check(T, "and the failed one is driven again", s in (200, 202), (s, said))


def wait_for(release, body):
    """The parent's model answers when the store is full."""
    for _ in range(600):
        if release:
            break
        time.sleep(0.2)
    return [("agent_request", {"agentId": "kid", "input": 1, "wait": 0}), ("lattice_append", {"path": "w/kept", "value": "parent"})]


async def publish(v):
    import nats
    nc = await nats.connect(v.nats)
    await nc.jetstream().publish("trellis.in.local.me.fine.task", b'{"input":"from the queue"}', headers={"Trellis-Id": "waits-there"})
    await nc.close()
