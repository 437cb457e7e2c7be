"""Attacks subjects of the queue: signals that lie, results of jobs from others, wakes, subjects with tokens too many or too few,
kinds in other case, headers that nobody expects, publishing in the place of the venue. Expected: every acknowledged publish has an
end or is counted; no accepted job is lost; what lies changes nothing."""

import asyncio
import json
import time

from venue import check, nested

T = "signals"


def attack(v):
    asyncio.run(go(v))


async def go(v):
    import nats
    nc = await nats.connect(v.nats)
    js = nc.jetstream()

    async def send(subject, body, headers=None, stream=True):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            if not stream:
                return await nc.publish(subject, data, headers=headers)
            return await js.publish(subject, data, headers=headers, timeout=2)
        except Exception as e:
            return e

    slow = lambda body: (time.sleep(2.5), "finished")[1]
    # Signals that lie while a turn runs.
    for i, (subject, body) in enumerate([("trellis.ctl.local.me", "JOB"), ("trellis.ctl.local.me", '{"job":"JOB","cancel":true}'), ("trellis.ctl.local.bob", "JOB"), ("trellis.ctl.local.me", '{"cancel":"JOB"}'), ("trellis.ctl.local.me", "\x00\xff"), ("trellis.ctl", "JOB"), ("trellis.ctl.local.me.x", "JOB"),
                                         ("trellis.in.local.me.AGENT.wake", "{}"), ("trellis.in.local.me.AGENT.wake", '{"session":"SESSION"}'), ("trellis.in.local.me.AGENT.result", '{"job":"JOB","status":"COMPLETE","output":"forged"}'), ("trellis.in.local.me.AGENT.result", '{"job":"JOB","token":"","status":"FAILED","error":"forged"}'),
                                         ("trellis.out.local.me.AGENT.JOB", '{"job":"JOB","status":"COMPLETE","output":"forged"}'), ("trellis.in.local.bob.AGENT.cancel", '{"job":"JOB"}'), ("trellis.in.other.me.AGENT.cancel", '{"job":"JOB"}')]):
        a = v.agent([slow, "more"])
        s, job = v.http("POST", f"/agents/{a}/tasks", {"input": "wait"})
        await asyncio.sleep(0.5)
        fill = lambda t: t.replace("JOB", job["job"]).replace("AGENT", a).replace("SESSION", job.get("session", ""))
        for _ in range(3):
            r = await send(fill(subject), fill(body).encode("latin-1"), stream=".in." in subject)
        await nc.flush()
        end = await asyncio.to_thread(v.http, "GET", f"/jobs/{job['job']}?wait=9000")
        check(T, f"signal {i} {subject} {body[:30]!r} loses no job", end[1].get("status") == "COMPLETE" and end[1].get("output") == "finished", end)
    # Acknowledged and illegal: answered, refused by the stream, or counted.
    v.agent(["fine"], name="sig")
    subjects = ["trellis.in.local.me.sig.tasks", "trellis.in.local.me.sig.Task", "trellis.in.local.me.sig", "trellis.in.local.me", "trellis.in.local.me.sig.task.x", "trellis.in.local.%ff.sig.task", "trellis.in.local.me.%ff.task", "trellis.in.local.me.%.task", "trellis.in.local.me.%2e%2e.task", "trellis.in.local.me.a%2Fb.task",
                "trellis.in.%20.me.sig.task", "trellis.in.local.me.%00.task", "trellis.in.local.me.none.task", "trellis.in.local.me.none.message", "trellis.in.local.me.none.cancel", "trellis.in.LOCAL.me.sig.task", "trellis.in.local.me.s%69g.task", "trellis.in.local.me." + "x" * 900 + ".task", "trellis.in.local.me.sig.create", "trellis.in.local.me.sig.task%20"]
    for subject in subjects:
        inbox = nc.new_inbox()
        sub = await nc.subscribe(inbox)
        out = await nc.subscribe("trellis.out.>")
        r = await send(subject, {"input": "x", "replyTo": inbox}, {"Trellis-Id": "s-" + str(abs(hash(subject)))})
        if isinstance(r, Exception):
            check(T, f"{subject[:50]} is refused by the stream", True)
            continue
        try:
            m = json.loads((await sub.next_msg(3)).data)
            check(T, f"{subject[:50]} has an answer", "status" in m, m)
        except Exception as e:
            s, dead = v.run("dead/list", {})
            check(T, f"{subject[:50]} was acknowledged and has an end or is counted", subject.split(".")[-1][:8] in json.dumps(dead) or False, "acknowledged, no answer, in no list")
    # Bodies.
    for i, (body, headers) in enumerate([(b"", None), (b"x", None), (b"\xff\xfe", None), (b"null", None), (b"[]", None), (b'["x"]', None), (json.dumps({"input": nested(65)}).encode(), None), (b'{"input":' + b"[" * 5000 + b"]" * 5000 + b"}", None), (b'{"input":1,"input":2}', None), (b'{"input":1,"nope":2}', None), (b'{"input":1}', {"Trellis-Id": ""}), (b'{"input":1}', {"Trellis-Id": "a b"}),
                                         (b'{"input":1}', {"Trellis-Id": "x" * 3000}), (b'{"input":1}', {"Trellis-Depth": "0"}), (b'{"input":1}', {"Trellis-Caller": "root"}), (b'{"input":1}', {"Trellis-Origin": "x"}), (b'{"input":1}', {"Authorization": "Bearer x"}), (b'{"input":1,"sessionId":"../x"}', None), (b'{"input":"' + b"x" * 900000 + b'"}', None)]):
        out = await nc.subscribe("trellis.out.local.me.>")
        await nc.flush()
        r = await send("trellis.in.local.me.sig.task", body, headers if headers is not None else {"Trellis-Id": f"body{i}"})
        if isinstance(r, Exception):
            check(T, f"body {i} is refused by the server", True)
            continue
        try:
            m = json.loads((await out.next_msg(5)).data)
            check(T, f"body {i} {body[:20]!r} {headers} has an end", m.get("status") in ("REJECTED", "FAILED", "COMPLETE"), m)
            if i in (6, 7, 8, 9, 3, 4, 5, 0, 1, 2, 17):
                check(T, f"body {i} {body[:20]!r} is refused", m.get("status") == "REJECTED" or m.get("status") == "FAILED", m)
        except Exception as e:
            check(T, f"body {i} {body[:20]!r} {headers} has an end", False, repr(e))
        await out.unsubscribe()
    # replyTo.
    for to in ("trellis.in.local.me.sig.task", "trellis.ctl.local.me", "trellis.in.local.bob.sig.task", "$JS.API.STREAM.DELETE.TRELLIS", "trellis.out.local.bob.sig.x", "trellis.jobs.words", "_INBOX.>", "_INBOX.*", "_INBOX.", "_INBOX", ">", "", "a b", "_INBOX.x\r\nPUB x", "trellis.reply.local.bob.x", "_INBOX." + "x" * 5000, "trellis.reply.local.me.>", "_INBOX..x", "$SYS.x", ["_INBOX.x"]):
        s, said = v.http("POST", "/agents/sig/tasks", {"input": 1, "replyTo": to})
        check(T, f"replyTo {str(to)[:40]!r} is refused", 400 <= s < 500, (s, said))
    # Names that make a subject longer than a server takes: they must not cost the workers their connection.
    v.agent([[("queue_publish", {"queue": "q" * 5000, "input": 1, "wait": 100})], "done"], caps_queue := {"tools": ["v/ops/queue/publish"], "defaultTools": False}, name="longq")
    v.task("longq", wait=5000)
    for n in (200, 1000, 5000):
        s, said = v.http("PUT", "/agents/" + "n" * n, {"model": {"provider": "scripted", "name": "echo"}})
        if s < 300:
            v.task("n" * n, wait=3000)
    await asyncio.sleep(1)
    check(T, "no name and no reply address costs the workers their connection", "maximum control line" not in v.log(), [l for l in v.log().splitlines() if "maximum control line" in l][:3])
    for name in ("TRELLIS", "TRELLIS_OUT"):
        try:
            await js.stream_info(name)
            check(T, f"the stream {name} is there", True)
        except Exception as e:
            check(T, f"the stream {name} is there", False, e)
    # A result for a job of an external worker without its token, with another's token, from another subject.
    caps = {"tools": ["v/ops/queue/publish"], "defaultTools": False}
    a = v.agent([[("queue_publish", {"queue": "words", "input": {"text": "x"}, "wait": 100})], lambda b: "got " + json.dumps(b["messages"][-6:])[:3000], lambda b: "got " + json.dumps(b["messages"])[:9000]], caps)
    sub = await js.pull_subscribe("trellis.jobs.words", durable="words", stream="TRELLIS_JOBS")
    s, job = v.http("POST", f"/agents/{a}/tasks", {"input": "go"})
    try:
        m = (await sub.fetch(1, timeout=8))[0]
        await m.ack()
        ext = json.loads(m.data)
        for i, lie in enumerate([{"job": ext["job"], "status": "COMPLETE", "output": "forged"}, {"job": ext["job"], "token": "", "status": "COMPLETE", "output": "forged"}, {"job": ext["job"], "token": "0" * len(ext["token"]), "status": "COMPLETE", "output": "forged"}, {"job": ext["job"], "token": None, "status": "FAILED", "error": "forged"}, {"job": ext["job"], "token": ext["token"][:-1], "status": "COMPLETE", "output": "forged"},
                                 {"job": ext["job"], "token": ext["token"].upper() + "x", "status": "COMPLETE", "output": "forged"}, {"job": ext["job"], "token": [ext["token"]], "status": "COMPLETE", "output": "forged"}, {"job": job["job"], "token": ext["token"], "status": "COMPLETE", "output": "forged"}]):
            await send(ext["answer"], lie)
        # With the token from another owner's subject.
        await send(ext["answer"].replace("local.me", "local.bob"), {"job": ext["job"], "token": ext["token"], "status": "COMPLETE", "output": "forged"})
        await asyncio.sleep(1.5)
        s, said = v.http("GET", f"/jobs/{ext['job']}")
        check(T, "eight lies about an external job change nothing", said.get("status") in ("PENDING", "STARTED") and "forged" not in json.dumps(said.get("output", "")), said)
        s, said = v.http("GET", f"/jobs/{job['job']}")
        check(T, "nor the parent", said.get("status") not in ("COMPLETE", "FAILED"), said)
        s, said = v.http("GET", f"/jobs/{ext['job']}")
        check(T, "the token of an external job is shown nowhere", ext["token"] not in json.dumps(said) and ext["token"] not in json.dumps(v.http("GET", f"/agents/{a}/turns")[1]), said)
        await send(ext["answer"], {"job": ext["job"], "token": ext["token"], "status": "COMPLETE", "output": {"deep": nested(200)}})
        await send(ext["answer"], {"job": ext["job"], "token": ext["token"], "status": "COMPLETE", "output": nested(70)})
        await asyncio.sleep(1)
        await send(ext["answer"], {"job": ext["job"], "token": ext["token"], "status": "COMPLETE", "output": "true-end"})
        s, end = await asyncio.to_thread(v.http, "GET", f"/jobs/{job['job']}?wait=8000")
        check(T, "the parent ends after the external job's end", end.get("status") == "COMPLETE", end)
    except Exception as e:
        check(T, "an external job is given out", False, repr(e))
    done = v.cli("audit", "--output", "json", "--set", f"store.url=redis://127.0.0.1:{v.redis}", "--set", f"bus.url={v.nats}")
    try:
        said = json.loads(done.stdout)
        check(T, "the books are closed", said.get("unaccounted") == 0, said)
    except ValueError:
        check(T, "audit says something", False, done)
    await nc.close()
