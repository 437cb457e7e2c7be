"""Attacks jobs through the queue and through dead workers: operations whose worker is killed while they run, wait, are cancelled or lose
their authority; and pauses, messages, cancellations and priorities that are published for jobs of others, with tokens of others or
none. Expected: what may run twice is run again, what may not is FAILED and says so, each accepted job ends, and a publication does no
more than its sender may."""

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor

from venue import check

T = "operation_crashes"
SETS = ["catalog.test=true", "worker.lease=5s", "http_client.allow_hosts=*", "http_client.allow_private=true"]
ENDED = ("COMPLETE", "FAILED", "CANCELLED", "REJECTED", "TIMEOUT")


def inv(v, op, input, q="", **more):
    return v.http("POST", "/invoke" + q, {"operation": "v/ops/" + op, "input": input}, **more)


def attack(v):
    who = {"token": v.issue("acme/ann")} if v.mode == "jwt" else {}
    killed(v, who)
    asyncio.run(published(v, who))


def killed(v, who):
    jobs = {}
    v.agent([[("lattice_read", {"path": "w/x"})], "fine"], name="asked", **who)
    for name, (op, input) in {"a delay": ("test/delay", {"delay": 7000, "x": "d"}), "what must not be repeated": ("test/once", {"delay": 7000, "x": "o"}), "one that is cancelled": ("test/delay", {"delay": 60000}), "one that never ends": ("test/never", {}), "a wait for another": ("job/result", {"id": "0" * 32, "wait": 5000})}.items():
        s, j = inv(v, op, input, headers={"Idempotency-Key": name.replace(" ", "-")}, **who)
        check(T, f"{name} is accepted, or done", s in (200, 201), (s, j))
        jobs[name] = j.get("id")
    narrow = v.issue("acme/ann", ["w/kk:crud"], jti="jti-crash") if v.mode == "jwt" else None
    if narrow:
        s, j = inv(v, "test/delay", {"delay": 8000}, token=narrow)
        jobs["one whose token is revoked"] = j.get("id")
    with ThreadPoolExecutor(10) as pool:
        many = list(pool.map(lambda n: inv(v, "test/delay", {"delay": 300, "n": n}, **who)[1].get("id"), range(40)))
    time.sleep(0.3)
    name, p = next(x for x in v.processes if x[0] == "worker")
    p.kill()
    p.wait()
    v.processes.remove((name, p))
    s, said = v.http("PUT", f"/jobs/{jobs['one that is cancelled']}/cancel", {}, **who)
    check(T, "without a worker an operation is cancelled", s == 200 and said.get("status") == "CANCELLED", (s, said))
    if narrow:
        v.run("policy/revoke", {"grant": "jti-crash"}, **who)
    s, late = inv(v, "test/echo", {"x": 1}, **who)
    s2, early = inv(v, "test/delay", {"delay": 10}, **who)
    check(T, "without a worker operations are accepted", s in (200, 201) and s2 == 201, (s, late, s2, early))
    for i in (jobs["a delay"], early["id"]):
        t = time.time()
        s, said = v.http("GET", f"/jobs/{i}?wait=700", **who)
        check(T, "a wait without a worker ends in its time", s == 200 and time.time() - t < 3, (s, said))
    s, said = v.http("GET", "/jobs?details=true", **who)
    check(T, "without a worker they are listed", s == 200 and jobs["a delay"] in json.dumps(said), str(said)[:200])
    v.start(p.args, "worker")
    ends = {}
    for name, i in jobs.items():
        if name == "one that never ends":
            continue
        s, ends[name] = v.http("GET", f"/jobs/{i}?wait=40000", timeout=60, **who)
    check(T, "what may run twice is run again", ends["a delay"].get("status") == "COMPLETE" and ends["a delay"].get("output", {}).get("x") == "d", ends["a delay"])
    once = ends["what must not be repeated"]
    check(T, "what must not be repeated is FAILED, and says that nobody knows", once.get("status") == "FAILED" and once.get("errorCode") == "OUTCOME_UNKNOWN" and once.get("error"), once)
    check(T, "what was cancelled stays so", ends["one that is cancelled"].get("status") == "CANCELLED", ends["one that is cancelled"])
    check(T, "a wait for another has its end", ends["a wait for another"].get("status") in ENDED, ends["a wait for another"])
    if narrow:
        x = ends["one whose token is revoked"]
        check(T, "what lost its authority meanwhile is not run again", x.get("status") == "FAILED", x)
    done = [v.http("GET", f"/jobs/{i}?wait=20000", timeout=40, **who)[1] for i in many + [early["id"], late["id"]]]
    check(T, "each of 42 that were accepted is complete", all(d.get("status") == "COMPLETE" for d in done), [d for d in done if d.get("status") != "COMPLETE"][:2])
    for name in ("a delay", "what must not be repeated"):
        op, input = ("test/delay", {"delay": 7000, "x": "d"}) if name == "a delay" else ("test/once", {"delay": 7000, "x": "o"})
        s, j = inv(v, op, input, "?wait=8000", headers={"Idempotency-Key": name.replace(" ", "-")}, **who)
        check(T, f"{name} again under its key is the same job, and not run again", s == 200 and j.get("id") == jobs[name] and j.get("status") == ends[name]["status"], (s, j))
    s, said = v.http("PUT", f"/jobs/{jobs['what must not be repeated']}/redrive", **who)
    check(T, "it isn't driven again", s in (400, 409), (s, said))
    # The worker is killed again and again: what can't end by itself still can be cancelled.
    for _ in range(2):
        name, p = next(x for x in v.processes if x[0] == "worker")
        p.kill()
        p.wait()
        v.processes.remove((name, p))
        v.start(p.args, "worker")
        time.sleep(6.5)
    s, said = v.http("PUT", f"/jobs/{jobs['one that never ends']}/cancel", {}, **who)
    s, end = v.http("GET", f"/jobs/{jobs['one that never ends']}?wait=5000", **who)
    check(T, "what never ends is cancelled, or dead", end.get("status") in ("CANCELLED", "FAILED"), end)
    s, j = v.task("asked", **who)
    check(T, "and agents are served", j.get("status") == "COMPLETE", j)


async def published(v, who):
    import nats
    nc = await nats.connect(v.nats)
    js = nc.jetstream()
    base = "trellis.in.acme.ann." if v.mode == "jwt" else "trellis.in.local.me."
    n = 0

    async def send(subject, body, token=None, **headers):
        nonlocal n
        n += 1
        h = {"Trellis-Id": f"pub-{n}", **headers, **({"Authorization": "Bearer " + token} if token else {})}
        try:
            await js.publish(subject, body if isinstance(body, bytes) else json.dumps(body).encode(), headers=h, timeout=2)
        except Exception:
            pass

    v.agent([lambda b: (time.sleep(5), [("lattice_read", {"path": "w/x"})])[1]] + ["done"] * 9, {"concurrency": 9}, name="pubd", **who)
    m = v.last_model
    s, j = v.http("POST", "/agents/pubd/tasks", {"input": "x"}, **who)
    i = j["job"]
    senders = [("no token", base, None), ("the subject of another", "trellis.in.acme.bob.", None), ("another tenant", "trellis.in.evil.eve.", None)] if v.mode == "jwt" else [("another user", "trellis.in.local.bob.", None), ("another tenant", "trellis.in.evil.eve.", None), ("in capitals", "trellis.in.LOCAL.ME.", None)]
    if v.mode == "jwt":
        senders += [("bob on his own", "trellis.in.acme.bob.", v.issue("acme/bob")), ("bob on hers", base, v.issue("acme/bob")), ("eve on hers", base, v.issue("evil/eve")), ("a token for nothing", base, v.issue("acme/ann", [])), ("a token to read", base, v.issue("acme/ann", ["j:crud/read", "g:crud/read"])), ("a token for another job", base, v.issue("acme/ann", ["j/" + "0" * 32 + ":*"]))]
    for name, subject, token in senders:
        for kind, body in (("pause", {"job": i}), ("cancel", {"job": i}), ("message", {"input": "canary-pub", "job": i}), ("resume", {"job": i}), ("pause", {"job": "0x" + i.upper()}), ("pause", i)):
            await send(f"{subject}pubd.{kind}", body, token)
    await asyncio.sleep(2)
    state = v.http("GET", f"/jobs/{i}", **who)[1]
    check(T, "publications of others pause and cancel nothing", state.get("status") == "STARTED", state)
    end = v.http("GET", f"/jobs/{i}?wait=12000", timeout=20, **who)[1]
    check(T, "and the job ends by itself", end.get("status") == "COMPLETE", end)
    check(T, "and its model has heard nothing of them", "canary-pub" not in json.dumps(v.model.seen[m]), "")
    s, said = v.http("GET", "/jobs?q=canary-pub", **who)
    check(T, "nor is there a job of them", not said.get("items"), said)
    # Her own, well and badly formed.
    mine = who.get("token")
    v.agent([lambda b: (time.sleep(5), [("lattice_read", {"path": "w/x"})])[1]] + ["done"] * 9, {"concurrency": 9}, name="pubd", **who)
    s, j = v.http("POST", "/agents/pubd/tasks", {"input": "y"}, **who)
    for body in (b"", b"null", b"[]", b"{}", b'{"job":5}', b'{"job":"x"}', b'{"job":null}', b"\xff\xfe", b'{"job":"' + b"0" * 32 + b'"}', b'{"job":"' + j["job"].encode() + b'","status":"COMPLETE"}' if False else b'{"jobs":[]}'):
        for kind in ("pause", "resume", "cancel"):
            await send(f"{base}pubd.{kind}", body, mine)
    await asyncio.sleep(1)
    check(T, "malformed signals change nothing", v.http("GET", f"/jobs/{j['job']}", **who)[1].get("status") == "STARTED", v.http("GET", f"/jobs/{j['job']}", **who))
    await send(f"{base}pubd.pause", {"job": j["job"]}, mine)
    for _ in range(40):
        if v.http("GET", f"/jobs/{j['job']}", **who)[1].get("status") == "PAUSED":
            break
        await asyncio.sleep(0.2)
    check(T, "her own pause is heard", v.http("GET", f"/jobs/{j['job']}", **who)[1].get("status") == "PAUSED", v.http("GET", f"/jobs/{j['job']}", **who))
    await send(f"{base}pubd.resume", {"job": j["job"]}, mine)
    end = v.http("GET", f"/jobs/{j['job']}?wait=12000", timeout=20, **who)[1]
    check(T, "and her own resume", end.get("status") == "COMPLETE", end)
    # Priorities over the queue.
    before = len(v.http("GET", "/jobs?agent=pubd&limit=1000", **who)[1]["items"])
    for p in (2, -5, "1", 0.5, [], 10**30):
        inbox = "trellis.reply." + base.split(".", 2)[2] + f"p{n}"
        sub = await nc.subscribe(inbox)
        await send(f"{base}pubd.task", {"input": "prio", "priority": p, "replyTo": inbox}, mine)
        try:
            said = json.loads((await sub.next_msg(4)).data)
        except Exception as e:
            said = repr(e)
        check(T, f"the priority {p!r} over the queue is refused with a reason", isinstance(said, dict) and said.get("status") in ("REJECTED", "FAILED") and "priority" in json.dumps(said), said)
    await nc.close()
