"""Attacks a venue whose queue has partitions: one id in each of them at once, subjects of partitions that aren't there or hold other owners, signals
and results in the wrong one, floods of one, other spellings of an owner. Expected: one id is one job, whatever partition it comes through, a
subject gives no right that its token doesn't, and a flood of one owner holds up no owner of another partition."""

import asyncio
import json
import time

from venue import check

T = "partitions"
SETS = ["catalog.test=true", "bus.partitions=3"]
C = "canarypt"


def attack(v):
    asyncio.run(go(v))


async def http(v, *a, **k):
    return await asyncio.to_thread(v.http, *a, **k)


async def go(v):
    import nats
    jwt = v.mode == "jwt"
    ann = {"token": v.issue("acme/ann")} if jwt else {"owner": "acme/ann"}
    bob = {"token": v.issue("acme/bob")} if jwt else {"owner": "acme/bob"}
    head = {"Authorization": "Bearer " + ann["token"]} if jwt else {}
    his = {"Authorization": "Bearer " + bob["token"]} if jwt else {}
    nc = await nats.connect(v.nats)
    js = nc.jetstream()

    async def send(subject, body, id, headers):
        try:
            await js.publish(subject, json.dumps(body).encode(), headers={"Trellis-Id": id, **headers}, timeout=2)
            return True
        except Exception:
            return False

    append = lambda b: "done" if [m for m in b["messages"] if m["role"] == "assistant"][-1:] and [m for m in b["messages"] if m["role"] == "assistant"][-1].get("tool_calls") else [("lattice_append", {"path": "w/pt", "value": 1})]
    for who in (ann, bob):
        await asyncio.to_thread(v.agent, [append], {"concurrency": 4}, name="pt", **who)

    async def jobs(who):
        return (await http(v, "GET", "/jobs?agent=pt&limit=500&details=true", **who))[1].get("items", [])

    async def settled(who, n, seconds=15):
        for _ in range(seconds * 2):
            items = await jobs(who)
            if len(items) >= n and all(j.get("status") in ("COMPLETE", "FAILED", "CANCELLED", "REJECTED") for j in items):
                return items
            await asyncio.sleep(0.5)
        return await jobs(who)

    places = ["trellis.in.acme.ann.pt.task"] + [f"trellis.part.{n}.acme.ann.pt.task" for n in range(3)]
    taken = 0
    for i in range(6):
        got = await asyncio.gather(*(send(p, {"input": f"{C}-{i}"}, f"pt-{i}", head) for p in places))
        taken += any(got)
        check(T, f"id {i}: the subjects of partitions that are there are taken", sum(got) == 4, got)
    items = await settled(ann, taken)
    check(T, "one id in every partition at once is one job", len(items) == taken and all(j.get("status") == "COMPLETE" for j in items), (len(items), taken))
    value = (await asyncio.to_thread(v.read, "w/pt", **ann))[1].get("value")
    check(T, "and is done once", len(value or []) == taken, value)
    for i in range(3):
        await asyncio.gather(*(send(p, {"input": f"{C}-other-{n}"}, f"pt-x{i}", head) for n, p in enumerate(places)))
    items = [j for j in await settled(ann, taken + 3) if str(j.get("event", "")).startswith("pt-x")]
    check(T, "of four other tasks under one id, one is done", len(items) == 3 and len([j for j in items if j.get("status") == "COMPLETE"]) == 3, [(j.get("event"), j.get("status")) for j in items])
    before = len(await jobs(ann)), len(await jobs(bob))
    odd = [f"trellis.part.{n}.acme.ann.pt.task" for n in ("3", "99", "-1", "x", "00", "0x0", "", "*", "1e0", "+1", "18446744073709551616")] + ["trellis.part.0.acme.ann.pt", "trellis.part.0.acme.ann.pt.task.x", "trellis.part.acme.ann.pt.task", "trellis.part.0.0.acme.ann.pt.task", "trellis.part.0.ac%6De.ann.pt.task", "trellis.part.0.acme.ann.pt.Task", "trellis.part.0.acme.ann.%70t.task"]
    acks = {}
    for i, subject in enumerate(odd):
        acks[subject] = await send(subject, {"input": C + "-odd"}, f"pt-odd{i}", head)
    await asyncio.sleep(4)
    items = await settled(ann, before[0])
    dead = json.dumps((await asyncio.to_thread(v.run, "dead/list", {}, **ann))[1])
    for i, (subject, ack) in enumerate(acks.items()):
        job = next((j for j in items if j.get("event") == f"pt-odd{i}"), None)
        check(T, f"{subject[:44]}: what is acknowledged has an end or is kept", not ack or job and job.get("status") or f"pt-odd{i}" in dead or subject.startswith("trellis.part.0.ac%6D") or "%70" in subject, (ack, job, dead[:200]))
    s, audit = await asyncio.to_thread(v.run, "venue/audit", {}, **({"token": v.issue("acme/root")} if jwt else {}))
    check(T, "the audit misses nothing", s == 200 and not audit.get("unaccounted") and not audit.get("lost"), audit)
    if jwt:
        before = len(await jobs(ann)), len(await jobs(bob))
        for name, heads in {"none": {}, "bob's": his, "nothing granted": {"Authorization": "Bearer " + v.issue("acme/ann", [])}}.items():
            for p in places:
                await send(p, {"input": C + "-lie"}, f"pt-lie-{name}", heads)
                for kind, body in (("message", {"input": C + "-lie"}), ("cancel", {"job": "0" * 32}), ("wake", {}), ("decide", {}), ("result", {"job": "0" * 32, "status": "COMPLETE", "output": 1})):
                    await send(p.replace(".task", "." + kind), body, f"pt-lie-{name}-{kind}", heads)
        await asyncio.sleep(3)
        done = [j for j in await jobs(ann) if C + "-lie" in json.dumps(j.get("input")) and j.get("status") == "COMPLETE"]
        check(T, "a partition's subject does nothing without ann's token", not done and C + "-lie" not in json.dumps([b["messages"] for n, bs in v.model.seen.items() if "-pt-" in n for b in bs]), done[:1])
    # Signals for a job of hers through each partition, by her and by bob.
    await asyncio.to_thread(v.agent, [lambda _: (time.sleep(6), "slow")[1]], name="ptslow", **ann)
    for n in range(3):
        job = (await http(v, "POST", "/agents/ptslow/tasks", {"input": n}, **ann))[1]["job"]
        await asyncio.sleep(0.7)
        if jwt:
            await send(f"trellis.part.{n}.acme.ann.ptslow.cancel", {"job": job}, f"pt-c{n}", his)
            await asyncio.sleep(1)
            check(T, f"partition {n}: bob's token cancels nothing", (await http(v, "GET", f"/jobs/{job}", **ann))[1].get("status") in ("STARTED", "PENDING"), job)
        await send(f"trellis.part.{n}.acme.bob.ptslow.cancel", {"job": job}, f"pt-cb{n}", his)
        await asyncio.sleep(1)
        check(T, f"partition {n}: bob's subject cancels nothing", (await http(v, "GET", f"/jobs/{job}", **ann))[1].get("status") in ("STARTED", "PENDING"), job)
        await send(f"trellis.part.{n}.acme.ann.ptslow.cancel", {"job": job}, f"pt-cc{n}", head)
        said = (await http(v, "GET", f"/jobs/{job}?wait=4000", **ann))[1]
        check(T, f"partition {n}: her own cancels", said.get("status") == "CANCELLED", said)
    # A flood of one partition.
    body = json.dumps({"input": "flood"}).encode()
    for i in range(1500):
        await nc.publish(f"trellis.part.{i % 3}.acme.bob.none.message", body, headers={"Trellis-Id": f"pt-f{i}", **his})
    await nc.flush()
    began = time.time()
    s, said = await http(v, "POST", "/agents/pt/tasks?wait=20000", {"input": "behind"}, timeout=30, **ann)
    check(T, "behind a flood for an agent that isn't there ann's task is done soon", said.get("status") == "COMPLETE" and time.time() - began < 15, (time.time() - began, said))
    await nc.close()
