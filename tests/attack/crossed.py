"""Attacks the queue by what was really said in it: every message of a scenario recorded and sent again, as it was, cut, changed and under other owners;
decisions and timers that nobody made; questions why work waits, about others' jobs and with answers sent elsewhere; tokens of external jobs at
other owners' jobs and behind every end; queues whose names are subjects. Expected: nothing happens twice or for another, and no answer goes astray."""

import asyncio
import json
import time

from venue import check

T = "crossed"
SETS = ["catalog.test=true"]
C = "canarycx"


def attack(v):
    asyncio.run(go(v))


def owners(v):
    if v.mode == "jwt":
        return {"token": v.issue("acme/ann")}, {"token": v.issue("acme/bob")}, "acme.ann", "acme.bob"
    return {"owner": "acme/ann"}, {"owner": "acme/bob"}, "acme.ann", "acme.bob"


async def http(v, *a, **k):
    return await asyncio.to_thread(v.http, *a, **k)


async def go(v):
    import nats
    ann, bob, a, b = owners(v)
    nc = await nats.connect(v.nats)
    js = nc.jetstream()
    recorded = []

    async def note(m):
        recorded.append((m.subject, m.data, dict(m.headers or {}), m.reply))
    listener = await nc.subscribe("trellis.>", cb=note)
    await replayed(v, nc, js, ann, bob, a, b, recorded)
    await listener.unsubscribe()
    await asked(v, nc, js, ann, bob, a, b)
    await external(v, nc, js, ann, bob, a, b)
    await queues(v, nc, ann)
    await nc.close()


async def end(v, job, who, seconds=10):
    for _ in range(seconds * 2):
        s, said = await http(v, "GET", f"/jobs/{job}?wait=2000", **who)
        if isinstance(said, dict) and said.get("status") in ("COMPLETE", "FAILED", "CANCELLED", "REJECTED"):
            return said
    return said


def append(body):
    said = [m for m in body["messages"] if m["role"] == "assistant"]
    return "done" if said and said[-1].get("tool_calls") else [("lattice_append", {"path": "w/cx", "value": 1})]


async def replayed(v, nc, js, ann, bob, a, b, recorded):
    """A scenario with each kind of message; then all of it is sent again."""
    for who in (ann, bob):
        await asyncio.to_thread(v.agent, [append], name="cx", **who)
        await asyncio.to_thread(v.agent, [[("agent_request", {"agentId": "cx", "input": C, "wait": 6000}), ("agent_message", {"agentId": "cx", "message": C})], "done"], name="cxboss", **who)
        await asyncio.to_thread(v.agent, [[("lattice_append", {"path": "w/cxasked", "value": 1})], "done"], {"tools": [{"operation": "v/ops/lattice/append", "approval": "ask"}], "defaultTools": False}, name="cxask", **who)
        await asyncio.to_thread(v.agent, [[("lattice_append", {"path": "w/cxwait", "value": 1})], "done"], {"tools": [{"operation": "v/ops/lattice/append", "approval": "ask"}], "defaultTools": False}, name="cxwait", **who)
    s, one = await http(v, "POST", "/agents/cx/tasks", {"input": C + "-http"}, **ann)
    head = {"Authorization": "Bearer " + ann["token"]} if "token" in ann else {}
    await js.publish(f"trellis.in.{a}.cx.task", json.dumps({"input": C + "-nats"}).encode(), headers={"Trellis-Id": "cx-1", **head})
    await js.publish(f"trellis.in.{a}.cx.message", json.dumps({"input": C + "-mail"}).encode(), headers={"Trellis-Id": "cx-2", **head})
    s, boss = await http(v, "POST", "/agents/cxboss/tasks", {"input": 1}, **ann)
    s, timer = await http(v, "POST", "/agents/cx/timers", {"input": C + "-tick", "after": "2s"}, **ann)
    s, asked = await http(v, "POST", "/agents/cxask/tasks", {"input": 1}, **ann)
    s, waiting = await http(v, "POST", "/agents/cxwait/tasks", {"input": 1}, **ann)
    s, theirs = await http(v, "POST", "/agents/cxwait/tasks", {"input": 1}, **bob)
    s, stopped = await http(v, "POST", "/agents/cxask/tasks", {"input": 2}, **ann)
    await asyncio.sleep(4)
    items = (await http(v, "GET", "/approvals?limit=100", **ann))[1].get("items", [])
    approval = {x["job"]: x["id"] for x in items}
    s, said = await http(v, "POST", f"/approvals/{approval.get(asked['job'])}", {"approve": {}}, **ann)
    check(T, "a call is approved", s < 300, (s, said))
    await js.publish(f"trellis.in.{a}.cxask.pause", json.dumps({"job": stopped["job"]}).encode(), headers={"Trellis-Id": "cx-3", **head})
    await asyncio.sleep(1)
    await js.publish(f"trellis.in.{a}.cxask.resume", json.dumps({"job": stopped["job"]}).encode(), headers={"Trellis-Id": "cx-4", **head})
    await js.publish(f"trellis.in.{a}.cxask.cancel", json.dumps({"job": stopped["job"]}).encode(), headers={"Trellis-Id": "cx-5", **head})
    for j in (one["job"], boss["job"], asked["job"], stopped["job"]):
        await end(v, j, ann)
    await asyncio.sleep(4)
    messages = list(recorded)
    kinds = sorted({m[0].rsplit(".", 1)[-1] if m[0].startswith("trellis.in.") else ".".join(m[0].split(".")[:2]) for m in messages})
    print("   recorded:", len(messages), kinds, flush=True)

    async def state():
        jobs = [(await http(v, "GET", "/jobs?limit=500", **w))[1] for w in (ann, bob)]
        counts = [len(x.get("items", [])) for x in jobs]
        lists = [(await asyncio.to_thread(v.read, p, **w))[1].get("value") for w in (ann, bob) for p in ("w/cx", "w/cxasked", "w/cxwait")]
        calls = {n: len(x) for n, x in v.model.seen.items() if "cx" in n}
        open_ = [(await http(v, "GET", f"/jobs/{j}", **w))[1].get("status") for j, w in ((waiting["job"], ann), (theirs["job"], bob))]
        return counts, lists, calls, open_

    before = await state()
    check(T, "what was said is done once before anything is sent again", before[1][0] and before[1][1] == [1] and before[3] == ["INPUT_REQUIRED"] * 2, before)

    async def same(what, wait=3):
        nonlocal before
        await asyncio.sleep(wait)
        after = await state()
        check(T, f"{what}: nothing is done again, nor for another", after == before, (before, after))
        before = after

    ours = [m for m in messages if not m[0].startswith("trellis.out.")]

    async def publish(subject, data, headers=None, reply=""):
        try:
            await nc.publish(subject, data, reply=reply or "", headers=headers or None)
        except Exception:
            pass

    for m in ours:
        await publish(*m[:3])
    await nc.flush()
    await same("all that was said, said again")
    for m in reversed(ours):
        await publish(*m[:3])
    await same("all of it backwards")
    for m in ours:
        await publish(m[0], m[1], {k: x for k, x in m[2].items() if k not in ("Trellis-Id",) and k.startswith("Nats")} if m[2] else None) if not m[0].endswith((".task", ".message")) else None
    await same("signals and results without their headers")
    if v.mode == "jwt":
        for m in ours:
            if m[0].startswith("trellis.in."):
                await publish(m[0].replace(a, b), m[1], m[2])
                await publish(m[0].replace(a, "evil.eve"), m[1], m[2])
        await same("all of it for other owners, with its headers")
        for m in ours:
            if m[0].startswith("trellis.in."):
                await publish(m[0], m[1].replace(b"acme/ann", b"acme/bob").replace(C.encode(), b"changed"), m[2])
        await asyncio.sleep(2)
        after = await state()
        check(T, "all of it with another text under its own headers: nothing is done for another", after[0][1] == before[0][1] and after[1] == before[1], (before, after))
        before = after
    for m in ours:
        if m[0].startswith("trellis.in.") and not m[0].endswith((".task", ".message")):
            await publish(m[0], m[1][: len(m[1]) // 2], m[2])
            await publish(m[0], b"", m[2])
            await publish(m[0], m[1].replace(one["job"].encode(), waiting["job"].encode()).replace(boss["job"].encode(), waiting["job"].encode()), m[2])
            await publish(m[0].replace(a, b), m[1].replace(asked["job"].encode(), theirs["job"].encode()), m[2])
    await same("results, signals and wakes that are cut, or name other jobs", 4)
    wid = approval.get(waiting["job"])
    bid = next((x["id"] for x in (await http(v, "GET", "/approvals?limit=100", **bob))[1].get("items", [])), "")
    tokens = [{}] if v.mode == "fleet" else [{}, {"Authorization": "Bearer " + bob["token"]}, {"Authorization": "Bearer " + v.issue("acme/ann", ["w:*"])}, {"Authorization": "Bearer " + v.issue("acme/ann", [])}, {"Authorization": "Bearer x"}]
    n = 0
    for head in tokens:
        for owner, id, job in ((a, wid, waiting["job"]), (b, bid, theirs["job"]), (b, wid, waiting["job"]), (a, bid, theirs["job"])):
            if v.mode == "fleet" and (owner, id) in ((a, wid), (b, bid)):
                continue
            for body in ({"id": id, "approve": {}}, {"approval": id, "approve": {}}, {"approval": id, "verdict": "approved"}, {"id": id, "approved": True}, {"job": job, "approval": id, "answer": {"approve": {}}}, {"approval": id, "decision": {"approve": {}}}, {"approval": id, "decision": "approve", "by": "acme/root"}, id, [id], {"approval": id, "sealed": True}):
                n += 1
                await publish(f"trellis.in.{owner}.cxwait.decide", json.dumps(body).encode(), {"Trellis-Id": f"cx-d{n}", **head})
                await publish(f"trellis.in.{owner}.cxwait.decide", json.dumps(body).encode(), head or None)
    await same(f"{n} decisions that nobody with the right has made", 4)
    for owner in (a, b):
        for kind in ("wake", "result", "decide", "pause", "resume", "cancel"):
            for body in ({}, {"session": "main"}, {"timer": timer.get("timer")}, {"job": one["job"]}, {"job": "0" * 32}):
                await publish(f"trellis.in.{owner}.cx.{kind}", json.dumps(body).encode(), {"Trellis-Id": f"venue:{kind}"})
    for body in (waiting["job"], json.dumps({"job": waiting["job"]}), theirs["job"], "*", ""):
        for owner in (a, b, "*", "acme.>"):
            await publish(f"trellis.ctl.{owner}", body.encode())
    await same("wakes, signals and hints of nobody")
    s, said = await http(v, "POST", f"/approvals/{wid}", {"approve": {}}, **ann)
    e = await end(v, waiting["job"], ann)
    check(T, "behind all of these the call that waits is approved and made once", e.get("status") == "COMPLETE" and (await asyncio.to_thread(v.read, "w/cxwait", **ann))[1].get("value") == [1], (s, said, e))


async def asked(v, nc, js, ann, bob, a, b):
    """`trellis.ask.<tenant>.<user>`: about others' jobs, as others, with an inbox that is no inbox of one's own."""
    await asyncio.to_thread(v.agent, [lambda _: (time.sleep(25), "x")[1]], {"concurrency": 1}, name="cxslow", **ann)
    ids = []
    for i in range(3):
        ids.append(f"cx-ask-{i}")
        await js.publish(f"trellis.in.{a}.cxslow.task", json.dumps({"input": C + "-ask", "sessionId": C + "-session"}).encode(), headers={"Trellis-Id": ids[-1], **({"Authorization": "Bearer " + ann["token"]} if "token" in ann else {})})
    await asyncio.sleep(1.5)
    jobs = (await http(v, "GET", "/jobs?agent=cxslow&limit=10", **ann))[1].get("items", [])
    names = ids + [j if isinstance(j, str) else j.get("id") for j in jobs]
    heard = []

    async def note(m):
        heard.append((m.subject, m.data))
    subs = [await nc.subscribe(s, cb=note) for s in (f"trellis.in.{b}.>", f"trellis.in.{a}.cxslow.>", "trellis.ctl.>", f"trellis.reply.{b}.>", "trellis.jobs.>", "$JS.API.STREAM.PURGE.>", "$JS.API.STREAM.DELETE.>", f"trellis.reply.{a}.>", "_INBOX.cx.>", "trellis.out.>")]
    heads = {"none": {}} if v.mode == "fleet" else {"none": {}, "bob's": {"Authorization": "Bearer " + bob["token"]}, "broken": {"Authorization": "Bearer x.y.z"}, "nothing granted": {"Authorization": "Bearer " + v.issue("acme/ann", [])}, "another agent's": {"Authorization": "Bearer " + v.issue("acme/ann", ["g/other:agent/request"])}}
    inbox = {a: "_INBOX.cx.ann" if v.mode == "fleet" else f"trellis.reply.{a}.x", b: "_INBOX.cx.bob" if v.mode == "fleet" else f"trellis.reply.{b}.x"}
    for name, head in heads.items():
        for owner in (a, b):
            if v.mode == "fleet" and owner == a:
                continue
            heard.clear()
            await nc.publish(f"trellis.ask.{owner}", b"never-sent", reply=inbox[owner], headers=head or None)
            await asyncio.sleep(0.5)
            nobody = [d for _, d in heard]
            for id in names:
                heard.clear()
                await nc.publish(f"trellis.ask.{owner}", str(id).encode(), reply=inbox[owner], headers=head or None)
                await asyncio.sleep(0.7)
                check(T, f"asked as {owner} with a token that is {name}: of ann's job {str(id)[:9]} is told what is told of one that isn't there", [d for _, d in heard] == nobody, (heard, nobody))
    head = {"Authorization": "Bearer " + ann["token"]} if "token" in ann else {}
    heard.clear()
    await nc.publish(f"trellis.ask.{a}", ids[0].encode(), reply=inbox[a], headers=head or None)
    await asyncio.sleep(1)
    check(T, "ann herself is told at her own inbox", any(s == inbox[a] for s, _ in heard), heard)
    for to in (f"trellis.in.{b}.cx.task", f"trellis.in.{a}.cxslow.task", f"trellis.in.{b}.cx.result", "trellis.ctl.acme.bob", f"trellis.reply.{b}.x", "trellis.jobs.words", "$JS.API.STREAM.PURGE.TRELLIS", "$JS.API.STREAM.DELETE.TRELLIS_OUT", f"trellis.out.{b}.cx.x", f"trellis.reply.{a}", f"trellis.reply.{a}.*", f"trellis.reply.{a}.>", *(["_INBOX.cx.other"] if v.mode == "jwt" else [])):
        for body in (ids[0].encode(), b"none", b"", b"\xff\xfe", b'{"job": 1}', b"x" * 100_000):
            heard.clear()
            try:
                await nc.publish(f"trellis.ask.{a}", body, reply=to, headers=head or None)
            except Exception:
                continue
            await asyncio.sleep(0.12)
            check(T, f"asked with the reply subject {to}, {len(body)} bytes: no answer goes there", not [h for h in heard if h[0] == to], heard[:2])
    for sub in subs:
        await sub.unsubscribe()
    s, said = await http(v, "GET", "/livez", root=True)
    check(T, "after these questions the venue is alive", s == 200, said)
    for id in names:
        if len(str(id)) == 32 or str(id).startswith("0x"):
            await http(v, "PUT", f"/jobs/{id}/cancel", {}, **ann)


async def external(v, nc, js, ann, bob, a, b):
    """Tokens of external jobs, used at others' jobs, under others' subjects and behind each end."""
    sub = await js.pull_subscribe("trellis.jobs.cxq", durable="cxq", stream="TRELLIS_JOBS")
    given = {}

    async def give(who, key, steps=None):
        name = v.name("cxe")
        await asyncio.to_thread(v.agent, steps or [[("queue_publish", {"queue": "cxq", "input": {"n": key}})], "waits", "end"], {"tools": ["v/ops/queue/publish"], "defaultTools": False}, name=name, **who)
        s, job = await http(v, "POST", f"/agents/{name}/tasks", {"input": 1, "sessionId": "s"}, **who)
        m = (await sub.fetch(1, timeout=10))[0]
        await m.ack()
        return job["job"], json.loads(m.data), name, who

    async def answer(subject, body, headers=None):
        await nc.publish(subject, json.dumps(body).encode(), headers=headers)

    async def status(x):
        return (await http(v, "GET", f"/jobs/{x[1]['job']}", **x[3]))[1]

    mine, his = await give(ann, "ann"), await give(bob, "bob")
    check(T, "external jobs of two owners have other tokens", mine[1]["token"] != his[1]["token"] and C not in mine[1]["token"], "")
    for name, (subject, job, token) in {"his token at mine": (mine[1]["answer"], mine[1]["job"], his[1]["token"]), "his token at mine, at his subject": (his[1]["answer"], mine[1]["job"], his[1]["token"]), "my token at mine, at his subject": (his[1]["answer"], mine[1]["job"], mine[1]["token"]), "my token at his, at my subject": (mine[1]["answer"], his[1]["job"], mine[1]["token"]), "my token at his, at his subject": (his[1]["answer"], his[1]["job"], mine[1]["token"]), "his job, no token": (his[1]["answer"], his[1]["job"], None), "his job, a list": (his[1]["answer"], his[1]["job"], [his[1]["token"]]), "his job, cut": (his[1]["answer"], his[1]["job"], his[1]["token"][:-1]), "his job, longer": (his[1]["answer"], his[1]["job"], his[1]["token"] + "0"), "his job, empty": (his[1]["answer"], his[1]["job"], ""), "his parent's job": (his[1]["answer"], his[0], his[1]["token"]), "my parent's job": (mine[1]["answer"], mine[0], mine[1]["token"])}.items():
        for state in ("STARTED", "COMPLETE", "FAILED"):
            await answer(subject, {"job": job, "token": token, "status": state, "output": C + "-forged", "error": C + "-forged", "progress": C + "-forged"})
        await asyncio.sleep(0.7)
        both = await status(mine), await status(his)
        check(T, f"external, {name}: neither job ends", all(x.get("status") in ("PENDING", "STARTED") for x in both), [x.get("status") for x in both])
        parents = [(await http(v, "GET", f"/jobs/{x[0]}", **x[3]))[1].get("status") for x in (mine, his)]
        check(T, f"external, {name}: neither parent ends", not {"COMPLETE", "FAILED"} & set(parents), parents)
    text = json.dumps([await status(mine), await status(his)])
    check(T, "external: of forged answers nothing is kept", C + "-forged" not in text, text[:500])
    ends = {
        "its task is cancelled": lambda x: http(v, "PUT", f"/jobs/{x[0]}/cancel", {}, **ann),
        "itself is cancelled": lambda x: http(v, "PUT", f"/jobs/{x[1]['job']}/cancel", {}, **ann),
        "its session is deleted": lambda x: http(v, "POST", "/run", {"operation": "v/ops/agent/delete-session", "input": {"agentId": x[2], "sessionId": "s"}}, **ann),
        "its agent is removed": lambda x: http(v, "DELETE", f"/agents/{x[2]}?remove=true", **ann),
        "its task is completed by hand": lambda x: http(v, "POST", "/run", {"operation": "v/ops/agent/complete-task", "input": {"agentId": x[2], "taskId": x[0], "result": 1}}, **ann),
    }
    for name, stop in ends.items():
        x = await give(ann, name)
        s, said = await stop(x)
        check(T, f"external: {name}", s < 300, (s, said))
        await asyncio.sleep(1)
        first = await status(x)
        for state in ("STARTED", "COMPLETE"):
            await answer(x[1]["answer"], {"job": x[1]["job"], "token": x[1]["token"], "status": state, "output": C + "-late"})
        await asyncio.sleep(1)
        after = await status(x)
        check(T, f"external, {name}: a late answer changes no end", after.get("status") == first.get("status") or first.get("status") in ("PENDING", "STARTED"), (first.get("status"), after.get("status")))
        seen = [b_ for n, bs in v.model.seen.items() if f"-{x[2]}-" in n for b_ in bs]
        check(T, f"external, {name}: a late answer reaches no model", C + "-late" not in json.dumps(seen), len(seen))
    for x in (mine, his):
        await answer(x[1]["answer"], {"job": x[1]["job"], "token": x[1]["token"], "status": "COMPLETE", "output": 1})
        e = await end(v, x[0], x[3])
        check(T, "external: the right answer still ends each", e.get("status") == "COMPLETE", e)


async def queues(v, nc, ann):
    """Names of queues that are subjects, patterns and paths."""
    heard = []

    async def note(m):
        heard.append(m.subject)
    subs = [await nc.subscribe(s, cb=note) for s in ("trellis.jobs.>", "trellis.ctl.>", "cxout.>", "trellis.in.acme.bob.>", "$JS.API.STREAM.PURGE.>")]
    for queue in ("*", ">", "a.b", "a.>", "..", ".", "a b", "a\tb", "a\r\nPUB cxout.x 2\r\nhi", "", "x" * 300, "$JS", "trellis.in.acme.bob.cx.task", "../in/acme/bob", "a/b", "ａ", "a\u200bb", "Words", "%2E", "%2e%3e", None, 7, ["a"], {"a": 1}, "_INBOX", "a\u0000b", "ünï"):
        heard.clear()
        r, job, name = await asyncio.to_thread(lambda: v.calls([("queue_publish", {"queue": queue, "input": {"x": C}, "startTimeout": 5})], {"tools": ["v/ops/queue/publish"], "defaultTools": False, "caps": [{"with": "queue/words", "can": "queue/publish"}, {"with": "queue/ünï", "can": "queue/publish"}, {"with": "queue/a", "can": "queue/publish"}]}, wait=4000, **ann))
        await asyncio.sleep(0.3)
        bad = [s for s in heard if s.count(".") != 2 or not s.startswith("trellis.jobs.")]
        check(T, f"a queue {str(queue)[:30]!r}: nothing leaves but to a queue of its name", not bad, bad)
        if queue not in ("ünï",):
            check(T, f"a queue {str(queue)[:30]!r}: what `caps` don't name gets nothing", not [s for s in heard if s.startswith("trellis.jobs.")], (heard, r))
        if job.get("job"):
            await http(v, "PUT", f"/jobs/{job['job']}/cancel", {}, **ann)
    for sub in subs:
        await sub.unsubscribe()
