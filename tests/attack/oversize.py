"""Attacks the sizes between the store and the queue: outputs, inputs, messages, values, results of children, timers, answers of people, jobs for external
workers and errors above and around `max_payload`, one and many, with the queue slow to read, and the completions that tell of them. Expected:
what is accepted ends and is whole, what doesn't fit is refused with a reason, no completion is lost, and no size of one owner holds up another."""

import asyncio
import json
import time

from venue import check

T = "oversize"
SIZES = (900_000, 1_000_000, 1_040_000, 1_048_576, 1_060_000, 1_900_000)


def attack(v):
    who = {"token": v.issue("acme/ann")} if v.mode == "jwt" else {}
    outputs(v, who)
    inputs(v, who)
    people(v, who)
    if v.nats:
        asyncio.run(completions(v, who))
        external(v, who)
    s, job = v.task(v.agent(["ok"], **who), **who)
    check(T, "after all of it a task is done", job.get("status") == "COMPLETE", job)
    s, said = v.http("GET", "/jobs?status=PENDING,STARTED&details=true", **who)
    check(T, "no job of all these hangs", not [x for x in said.get("items", []) if x.get("op", "").endswith("agent/request")], str(said)[:400])


def text(n, c="x"):
    return c * n


def outputs(v, who):
    """Outputs of tasks and children, of each size and kind."""
    for n in SIZES:
        for name, value in (("ascii", text(n)), ("control characters", text(n // 6, "\u0001")), ("wide", text(n // 4, "\U0001f600"))):
            if name != "ascii" and n not in (1_040_000, 1_900_000):
                continue
            v.write("w/big", value, **who)
            a = v.agent([[("complete_task", {"result": value})], "late"], **who)
            s, job = v.task(a, wait=40000, timeout=60, **who)
            end = v.http("GET", f"/jobs/{job.get('job')}?wait=40000", timeout=60, **who)[1]
            check(T, f"an output of {n} bytes ({name}) is whole, or its task fails with a reason", end.get("output") == value or end.get("status") == "FAILED" and end.get("error"), (end.get("status"), len(str(end.get("output"))), str(end.get("error"))[:200]))
            kid, said = a, v.last_model
            v.model.says(said, v.model.scripts[said])
            v.agent([[("agent_request", {"agentId": kid, "input": "x", "wait": 8000})], lambda b: f"{max(len(str(m.get('content'))) for m in b['messages'])}"], name="ospar", **who)
            s, job = v.task("ospar", wait=20000, timeout=60, **who)
            check(T, f"a parent whose child said {n} bytes ({name}) ends", job.get("status") == "COMPLETE", (s, str(job)[:300]))
    # Through outputPath, invoked operations, and a child that ends after its parent's turn.
    big = text(1_900_000)
    a = v.agent([[("complete_task", {"result": big})], "late"], **who)
    s, job = v.task(a, body={"outputPath": "w/osout"}, wait=40000, timeout=60, **who)
    check(T, "a large output is written to its path, whole", len(str(v.run("lattice/read", {"path": "w/osout", "maxSize": 4_000_000}, timeout=60, **who)[1].get("value"))) == len(big) or job.get("status") == "FAILED", str(job)[:200])
    v.agent([lambda b: (time.sleep(3), [("complete_task", {"result": big})])[1], "late"], name="oslate", **who)
    v.agent([[("agent_request", {"agentId": "oslate", "input": "x", "wait": 0})], [("lattice_read", {"path": "w/none"})], "gone on"], name="osearly", **who)
    s, job = v.task("osearly", wait=40000, timeout=60, **who)
    check(T, "a parent that doesn't wait for its large child ends", job.get("status") == "COMPLETE", str(job)[:300])
    s, said = v.http("POST", "/invoke", {"operation": "v/ops/json/merge", "input": {"values": [{"a": text(900_000)}, {"b": text(100_000)}]}, "wait": 8000}, timeout=60, **who)
    check(T, "an invoked operation with a large output ends", said.get("status") in ("COMPLETE", "FAILED") or s in (200, 202, 413), str(said)[:200])


def inputs(v, who):
    """Inputs and messages by HTTP and by agents."""
    for n in SIZES:
        a = v.agent([lambda b: str(len(json.dumps(b)))], **who)
        s, job = v.http("POST", f"/agents/{a}/tasks?wait=40000", {"input": text(n)}, timeout=60, **who)
        check(T, f"an input of {n} bytes is done, or refused with a reason", s < 300 and job.get("status") in ("COMPLETE", "FAILED") or s in (400, 413), (s, str(job)[:300]))
        if s < 300:
            got = v.http("GET", f"/jobs/{job.get('job')}", timeout=60, **who)[1].get("input")
            check(T, f"an input of {n} bytes is kept whole", got == text(n), len(str(got)))
        s, said = v.http("POST", f"/agents/{a}/messages", {"input": text(n), "sessionId": "m"}, timeout=60, **who)
        check(T, f"a message of {n} bytes is taken, or refused with a reason", s < 300 or s in (400, 413), (s, str(said)[:200]))
        for what, body in {"values": {"sessionContext": {"k": text(n)}}, "a schema": {"responseSchema": {"type": "string", "description": text(n)}}}.items():
            s, job = v.http("POST", f"/agents/{a}/tasks?wait=40000", {"input": "x", **body}, timeout=60, **who)
            check(T, f"{what} of {n} bytes: done, or refused with a reason", s < 300 and job.get("status") in ("COMPLETE", "FAILED") or s in (400, 413), (s, str(job)[:300]))
        s, said = v.http("POST", f"/agents/{a}/timers", {"input": text(n), "after": "1s", "sessionId": "t"}, timeout=60, **who)
        check(T, f"a timer of {n} bytes is set, or refused with a reason", s < 300 or s in (400, 413), (s, str(said)[:200]))
        if s < 300:
            end = {}
            for _ in range(50):
                end = (v.http("GET", f"/jobs?agent={a}&session=t&details=true", timeout=60, **who)[1].get("items") or [{}])[0]
                if end.get("status") in ("COMPLETE", "FAILED"):
                    break
                time.sleep(0.2)
            check(T, f"a timer of {n} bytes fires, and its task ends", end.get("status") in ("COMPLETE", "FAILED"), str(end)[:300])
    big = text(1_050_000)
    kid = v.agent(["ok"], name="oskid", **who)
    for what, call in {"a request": ("agent_request", {"agentId": "oskid", "input": big, "wait": 6000}), "a message": ("agent_message", {"agentId": "oskid", "message": big}), "an agent": ("agent_create", {"agentId": "osmade", "config": {"model": {"provider": "local", "name": "x"}, "systemPrompt": big}}), "a value": ("lattice_write", {"path": "w/osv", "value": big}), "an asset": ("asset_store", {"content": big}), "a timer": ("agent_trigger", {"agentId": "oskid", "after": "1s", "input": big})}.items():
        a = v.agent([[call, ("lattice_write", {"path": "w/osmark", "value": what})], "done"], {"tools": ["v/ops/agent/trigger"]}, **who)
        s, job = v.task(a, wait=40000, timeout=60, **who)
        results = [m["content"] for m in v.model.seen[v.last_model][-1]["messages"] if m["role"] == "tool"]
        check(T, f"{what} of 1 MB by an agent: the task ends, with a result of each call", job.get("status") == "COMPLETE" and results and (len(results) == 2 or "not" in results[-1]), (job, [r[:200] for r in results]))
        check(T, f"{what} of 1 MB by an agent: what comes behind it in the reply is done, or said not to be", v.read("w/osmark", **who)[1].get("value") == what or any("not" in r for r in results), [r[:300] for r in results])


def people(v, who):
    """Answers and endings from outside."""
    big = text(1_900_000)
    for what, act in {"complete": ("agent/complete-task", "result"), "fail": ("agent/fail-task", "error")}.items():
        a = v.agent([lambda b: (time.sleep(6), "late")[1]], **who)
        s, job = v.http("POST", f"/agents/{a}/tasks", {"input": 1}, **who)
        s, said = v.run(act[0], {"agentId": a, "taskId": job["job"], act[1]: big}, timeout=60, **who)
        end = v.http("GET", f"/jobs/{job['job']}?wait=40000", timeout=60, **who)[1]
        check(T, f"{what} with 1.9 MB: done whole, or refused and the task goes on", (s == 200) == (end.get("status") in ("COMPLETE", "FAILED") and (end.get("output") != "late")), (s, str(said)[:200], end.get("status"), str(end.get("output"))[:50]))
    a = v.agent([[("human_ask", {"title": "t", "asks": [{"id": "a", "type": "text", "prompt": "p"}]})], "done"], {"tools": ["v/ops/human/ask"]}, **who)
    s, job = v.http("POST", f"/agents/{a}/tasks", {"input": 1}, **who)
    w = {}
    for _ in range(60):
        w = next((x for x in v.http("GET", "/approvals", **who)[1].get("items", []) if x.get("job") == job.get("job")), {})
        if w:
            break
        time.sleep(0.1)
    s, said = v.http("POST", f"/approvals/{w.get('id')}", {"answers": {"a": big}}, timeout=60, **who)
    check(T, "an answer of 1.9 MB is taken, or refused with a reason", s == 200 or 400 <= s < 500, (s, str(said)[:200]))
    if s != 200:
        s, said = v.http("POST", f"/approvals/{w.get('id')}", {"answers": {"a": "short"}}, **who)
        check(T, "and a shorter one after it is", s == 200, (s, said))
    end = v.http("GET", f"/jobs/{job['job']}?wait=40000", timeout=60, **who)[1]
    check(T, "and the task ends", end.get("status") == "COMPLETE", str(end)[:300])


async def completions(v, who):
    """What the queue tells of outputs that don't fit."""
    import nats
    nc = await nats.connect(v.nats)
    owner = "acme.ann" if v.mode == "jwt" else "local.me"
    got = await nc.subscribe(f"trellis.out.{owner}.>")
    await nc.flush()
    for n in (*SIZES, 1_048_000, 1_048_300, 1_047_500):
        value = text(n)
        a = v.agent([[("complete_task", {"result": value})], "late"], **who)
        s, job = await asyncio.to_thread(v.task, a, "go", 40000, None, None, timeout=60, **who)
        said = None
        try:
            while said is None or said.get("job") != job.get("job"):
                said = json.loads((await got.next_msg(timeout=40)).data)
        except Exception as e:
            said = {"error": repr(e)}
        check(T, f"a completion of {n} bytes is told, whole or with what is left out", said.get("output") == value or (said.get("outputOmitted") or {}).get("bytes") == n + 2 or job.get("status") == "FAILED", str(said)[:300])
        if said.get("outputOmitted"):
            o = said["outputOmitted"]
            s, whole = await asyncio.to_thread(v.http, "GET", o.get("url", "/none"), root=True, timeout=60, **who)
            check(T, f"where a completion of {n} bytes says it lies, it lies", s == 200 and whole.get("output") == value, (s, o))
            s, whole = await asyncio.to_thread(v.run, "lattice/read", {"path": o.get("path", "w/none"), "maxSize": 4_000_000}, timeout=60, **who)
            check(T, f"and at its path ({n})", s == 200 and whole.get("value") == value, (s, str(whole)[:100]))
    await nc.close()


def external(v, who):
    """Jobs for external workers that don't fit, and what stands behind them."""
    for n in (1_000_000, 1_048_000, 1_060_000, 1_900_000):
        s, said = v.run("queue/publish", {"queue": "os", "input": text(n), "wait": 100}, timeout=60, **who)
        check(T, f"a job of {n} bytes for an external worker is given, or fails with a reason", s == 200 and said.get("status") in ("STARTED", "PENDING", "FAILED") or 400 <= s < 500, (s, str(said)[:300]))
        if said.get("status") == "FAILED":
            check(T, f"a job of {n} bytes: the failure is QUEUE_UNAVAILABLE", said.get("errorCode") == "QUEUE_UNAVAILABLE", said)
    a = v.agent([[("queue_publish", {"queue": "os", "input": text(1_050_000), "wait": 2000})], "done"], {"tools": ["v/ops/queue/publish"]}, **who)
    s, job = v.task(a, wait=40000, timeout=60, **who)
    check(T, "an agent that gives too large a job ends", job.get("status") == "COMPLETE", str(job)[:300])
