"""Attacks the memory of a venue that may have no more than a fixed amount (a cgroup's limit, as `MemoryMax` of systemd or the
memory limit of a container sets it): bodies that grow when they are decoded, many of them at once and half of them never whole,
lists and reads of large values by many callers, models that talk without end, prompts of everything an agent may load, streams
that nobody reads, floods of the queue. Expected: the process is alive at the end and stayed below the limit by itself."""

import http.client
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from venue import check, limit_memory, peak_memory

T = "memory"
# What each process of the venue may have.
LIMIT = 768 << 20
# As many values as one may hold, each with a name: what takes the most memory for its size.
NUMBERS = "{" + ",".join('"key %08d":0' % n for n in range(48_000)) + "}"
# More of them than one may hold.
TOO_MANY = "[" + "1," * 400_000 + "1]"


def attack(v):
    where = limit_memory(v, LIMIT)
    check(T, "each process has a limit that the kernel keeps", where, "no memory cgroup can be made here: root and a mounted cgroup are needed")
    for part in (half_bodies, too_many_values, large_bodies, large_mailbox, large_lists, large_reads, endless_models, large_prompts, deaf_watchers, queue_flood):
        before = peak_memory(v)
        began = time.time()
        part(v)
        alive = v.alive()
        after = peak_memory(v)
        name = part.__name__.replace("_", " ")
        print(f"   {name}: " + ", ".join(f"{k} {before.get(k, 0)} -> {after.get(k, 0)} MiB at most" for k in sorted(after)) + f", {time.time() - began:.0f} s", flush=True)
        check(T, f"alive after {name}", alive, v.log()[-500:])
        if not alive:
            return


def body(v, method, path, text, timeout=120):
    c = http.client.HTTPConnection("127.0.0.1", v.port, timeout=timeout)
    try:
        c.request(method, "/api/v1" + path, text, {"content-type": "application/json"})
        r = c.getresponse()
        said = r.read()
        return r.status, said
    except OSError as e:
        return 0, repr(e).encode()
    finally:
        c.close()


def many(number, call, threads=250):
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(call, range(number)))


def half_bodies(v):
    """As many connections as one address has, each with a body that lacks its last byte."""
    sockets = []
    for _ in range(250):
        try:
            s = socket.create_connection(("127.0.0.1", v.port), 5)
            s.settimeout(5)
            text = NUMBERS.encode()
            s.sendall(f"POST /api/v1/run HTTP/1.1\r\nHost: 127.0.0.1:{v.port}\r\nContent-Type: application/json\r\nContent-Length: {len(text) + 1}\r\n\r\n".encode() + text)
            sockets.append(s)
        except OSError:
            pass
    s, _ = v.http("GET", "/status")
    check(T, "others are answered beside half bodies", s == 200, s)
    for s in sockets:
        s.close()


def too_many_values(v):
    """Lists of short numbers, at each entrance."""
    v.agent(["ok"], name="counter")
    for name, method, path, text in (
        ("write", "POST", "/run", '{"operation": "v/ops/lattice/write", "input": {"path": "w/many", "value": %s}}' % TOO_MANY),
        ("task", "POST", "/agents/counter/tasks", '{"input": %s}' % TOO_MANY),
        ("message", "POST", "/agents/counter/messages", '{"input": %s}' % TOO_MANY),
        ("agent", "PUT", "/agents/counter2", '{"model": {"provider": "scripted", "name": "echo"}, "state": %s}' % TOO_MANY),
        ("asset", "POST", "/assets", '{"content": %s}' % TOO_MANY),
    ):
        said = many(60, lambda n: body(v, method, path, text), 60)
        check(T, f"60 times too many values at once ({name}) are refused with the reason", all(s[0] in (400, 413) and b"values in one" in s[1] for s in said), [s for s in said if s[0] != 400][:2] or said[0])
    # A model's call, an answer of a model.
    results, _, _ = v.calls([("lattice_write", '{"path": "w/many", "value": %s}' % TOO_MANY)])
    check(T, "a call with too many values is refused with the reason", results and "values in one" in results[0], results[:1])


def large_mailbox(v):
    """Messages that wait for an agent that rests, then all at once; a list of agents and of sessions meanwhile."""
    a = v.agent(["ok"], name="hoarder")
    v.http("PUT", f"/agents/{a}/suspend")
    said = many(120, lambda n: body(v, "POST", f"/agents/{a}/messages", '{"sessionId": "s%d", "input": %s}' % (n % 4, NUMBERS)), 16)
    check(T, "120 large messages are accepted", all(s[0] == 202 for s in said), sorted({s[0] for s in said}))
    said = many(64, lambda n: body(v, "GET", "/agents", None) if n % 2 else body(v, "GET", f"/agents/{a}/sessions", None), 64)
    check(T, "64 lists of agents and sessions at once are answered", all(s[0] in (200, 503) for s in said), sorted({s[0] for s in said}))
    v.http("PUT", f"/agents/{a}/resume")
    waits = [0]
    for _ in range(240):
        s, said = v.http("GET", f"/agents/{a}/sessions")
        waits = [x.get("messages", x.get("waiting", 0)) for x in said.get("sessions", [])] if isinstance(said, dict) else [0]
        if s == 200 and "messages" in json.dumps(said) and not any(waits):
            break
        time.sleep(0.5)
    check(T, "all of them are read in the end", not any(waits), said)


def large_bodies(v):
    """All of one address' connections bring a body that takes ten times its size when it is decoded."""
    v.agent(["ok"], name="eater")
    v.http("PUT", "/agents/eater/suspend")
    for name, path, text in (
        ("writes", "/run", lambda n: '{"operation": "v/ops/lattice/write", "input": {"path": "w/mem/k%d", "value": %s}}' % (n % 20, NUMBERS)),
        ("tasks", "/agents/eater/tasks", lambda n: '{"input": %s, "session": "s%d"}' % (NUMBERS, n)),
        ("merges", "/run", lambda n: '{"operation": "v/ops/json/merge", "input": {"values": [%s, {}]}}' % NUMBERS),
        ("schemas", "/run", lambda n: '{"operation": "v/ops/schema/infer", "input": {"value": %s}}' % NUMBERS),
        ("agents", "/agents/eater2", lambda n: '{"model": {"provider": "scripted", "name": "echo"}, "state": %s}' % NUMBERS),
        ("assets", "/assets", lambda n: '{"content": %s, "name": "n%d"}' % (NUMBERS, n)),
    ):
        method = "PUT" if name == "agents" else "POST"
        said = many(120, lambda n: body(v, method, path, text(n)))
        lost = [s for s in said if s[0] == 0 or (s[0] >= 500 and s[0] != 503)]
        check(T, f"120 large {name} at once are each answered", not lost, (len(lost), lost[:2], sorted({s[0] for s in said})))


def large_lists(v):
    for query in ("details=true&limit=1000", "agent=eater&limit=1000", "q=nothing&limit=1000"):
        said = many(64, lambda n: body(v, "GET", "/jobs?" + query, None), 64)
        check(T, f"64 lists at once ({query}) are answered", all(s[0] in (200, 503, 429) for s in said), sorted({s[0] for s in said}))


def large_reads(v):
    for name, path, text in (
        ("reads", "/run", json.dumps({"operation": "v/ops/lattice/read", "input": {"path": "w/mem/k1"}})),
        ("reads of all", "/run", json.dumps({"operation": "v/ops/lattice/read", "input": {"path": "w/mem"}})),
        ("slices", "/run", json.dumps({"operation": "v/ops/lattice/slice", "input": {"path": "w/mem", "limit": 1000}})),
        ("copies", "/run", json.dumps({"operation": "v/ops/lattice/copy", "input": {"from": "w/mem/k1", "to": "w/copy"}})),
        ("edits", "/run", json.dumps({"operation": "v/ops/lattice/append", "input": {"path": "w/mem/k2", "value": 1}})),
    ):
        said = many(200, lambda n: body(v, "POST", path, text), 200)
        check(T, f"200 large {name} at once are answered", all(s[0] and (s[0] < 500 or s[0] == 503) for s in said), (sorted({s[0] for s in said}), [s for s in said if s[0] == 0 or s[0] >= 500][:2]))


def endless_models(v):
    """Sixteen models that talk without end."""
    for n in range(16):
        name = v.agent([lambda _: "word " * 3_000_000], name=f"talker{n}")
        v.task(name, wait=0)
    time.sleep(10)


def large_prompts(v):
    """Agents that load all of it, with tool results of the same, many at once."""
    v.run("lattice/delete", {"path": "w/mem"})
    for n in range(40):
        v.write(f"w/part/p{n}", "z" * 900_000)
    entries = [{"path": f"w/part/p{n}", "budget": 900_000} for n in range(40)]
    for n in range(16):
        a = v.agent([[("lattice_read", {"path": f"w/part/p{i}"}) for i in range(8)]] * 4 + ["done"],
                    {"context": [f"w/part/p{n}" for n in range(40)]}, name=f"reader{n}")
        v.task(a, wait=0)
    time.sleep(15)


def deaf_watchers(v):
    """Streams of a job and of an agent that nobody reads, while it talks."""
    a = v.agent(["word " * 100_000], name="speaker")
    sockets = []
    for n in range(150):
        s = socket.create_connection(("127.0.0.1", v.port), 5)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(f"GET /api/v1/agents/{a}/sse HTTP/1.1\r\nHost: 127.0.0.1:{v.port}\r\nAccept: text/event-stream\r\n\r\n".encode())
        sockets.append(s)
    for n in range(30):
        status, job = v.task(a, wait=0, body={"session": f"x{n}"})
        if n < 10 and isinstance(job, dict) and job.get("id"):
            for _ in range(8):
                s = socket.create_connection(("127.0.0.1", v.port), 5)
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                s.sendall(f"GET /api/v1/jobs/{job['id']}/sse HTTP/1.1\r\nHost: 127.0.0.1:{v.port}\r\n\r\n".encode())
                sockets.append(s)
    time.sleep(8)
    for s in sockets:
        s.close()


def queue_flood(v):
    """Large messages by the queue, faster than a worker takes them."""
    if not v.nats:
        return
    import asyncio

    import nats

    async def flood():
        nc = await nats.connect(v.nats)
        js = nc.jetstream()
        text = ('{"agent": "eater", "input": %s}' % NUMBERS).encode()
        for n in range(300):
            try:
                await js.publish("trellis.in.local.me.eater.task", text, headers={"Trellis-Id": f"flood{n}"}, timeout=20)
            except Exception as e:
                print("   publish:", repr(e)[:200])
                break
        await nc.close()

    asyncio.run(flood())
    time.sleep(20)
