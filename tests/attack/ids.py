"""Attacks ids and dedupe: a producer takes ids that the venue makes, repeats another's id with another task, agent or authority, in
parallel, over HTTP and NATS, under `run` and `invoke`. Expected: ids of the venue are refused, the same request is the same job,
anything else is a conflict that says nothing of the first one."""

import asyncio
import json
import threading

from venue import check

T = "ids"


def attack(v):
    v.agent(["one"], name="ida")
    v.agent(["two"], name="idb")
    v.write("w/i", {"secret": "canary-ids"})
    reserved = ["venue:x", "venue:", "VENUE:x", "Venue:call-1", "venue\u200b:x", "venue%3Ax", " venue:x", "venue:\tx", "venue :x", "vеnue:x"]
    for key in reserved:
        try:
            s, said = v.http("POST", "/agents/ida/tasks", {"input": 1}, headers={"Idempotency-Key": key})
        except (UnicodeEncodeError, ValueError):
            continue
        if key.strip().startswith("venue:"):
            check(T, f"the key {key!r} of a task is refused", 400 <= s < 500, (s, said))
            for path, body in (("/agents/ida/messages", {"input": 1}), ("/agents/ida/timers", {"input": 1, "after": "1h"}), ("/run", {"operation": "v/ops/agent/request", "input": {"agentId": "ida", "input": 1}}), ("/invoke", {"operation": "v/ops/lattice/read", "input": {"path": "w/i"}}), ("/run", {"operation": "v/ops/agent/chat", "input": {"agentId": "ida", "message": "x"}})):
                s, said = v.http("POST", path, body, headers={"Idempotency-Key": key})
                check(T, f"the key {key!r} at {path} is refused", 400 <= s < 500, (s, said))
        else:
            check(T, f"the key {key!r} is no error of the server", s < 500, (s, said))
    for key in ("", " ", "a b", "a/b", "x" * 129, "x" * 5000, "\x7f", "ä", "../x", "a\tb", "*", ">", "a.b.c", "$JS", "{x}", "%00", "-", "0" * 128):
        try:
            s, said = v.http("POST", "/agents/ida/tasks", {"input": 1}, headers={"Idempotency-Key": key})
        except (UnicodeEncodeError, ValueError):
            continue
        check(T, f"the key {key[:20]!r} is no error of the server", s < 500, (s, said))
    for s_, name in (("call-", "call"), ("timer-", "timer"), ("answer-", "answer"), ("job-", "job"), ("wake-", "wake"), ("redrive-", "redrive"), ("child-", "child")):
        s, said = v.http("POST", "/agents/ida/tasks?wait=4000", {"input": name}, headers={"Idempotency-Key": s_ + "0" * 64})
        check(T, f"an old name of the venue's ids, {name}, is just a name", s in (200, 202) and said.get("duplicate") is False, (s, said))
    # The same id with something else.
    base = {"input": {"a": 1}, "context": [{"with": "w/i", "can": "crud/read"}], "sessionContext": {"k": 1}, "budget": {"turns": 5}, "contextIds": ["b1"]}
    s, first = v.http("POST", "/agents/ida/tasks", base, headers={"Idempotency-Key": "same"})
    check(T, "a first request is accepted", s == 202, (s, first))
    s, again = v.http("POST", "/agents/ida/tasks", base, headers={"Idempotency-Key": "same"})
    check(T, "the same again is a duplicate", again.get("job") == first.get("job") and again.get("duplicate") is True, (s, again))
    s, again = v.http("POST", "/agents/ida/tasks", dict(reversed(list(base.items()))), headers={"Idempotency-Key": "same"})
    check(T, "the same in another order of keys is a duplicate", again.get("job") == first.get("job"), (s, again))
    changes = {"other input": {**base, "input": {"a": 2}}, "no grant": {k: x for k, x in base.items() if k != "context"}, "wider grant": {**base, "context": [{"with": "w", "can": "crud"}]}, "empty grant": {**base, "context": []}, "other values": {**base, "sessionContext": {"k": 2}},
               "other budget": {**base, "budget": {"turns": 50}}, "no budget": {k: x for k, x in base.items() if k != "budget"}, "other buckets": {**base, "contextIds": ["b2"]}, "other session": {**base, "sessionId": "s9"}, "a schema": {**base, "responseSchema": {"type": "object"}}, "a reply address": {**base, "replyTo": "_INBOX.x"}}
    for name, body in changes.items():
        s, said = v.http("POST", "/agents/ida/tasks", body, headers={"Idempotency-Key": "same"})
        check(T, f"the same id with {name} is a conflict", s == 409, (s, said))
        check(T, f"the conflict with {name} says nothing of the first", first.get("job") not in json.dumps(said), said)
    for path, body in (("/agents/idb/tasks", base), ("/agents/ida/messages", {"input": {"a": 1}}), ("/run", {"operation": "v/ops/agent/request", "input": {"agentId": "idb", "input": 1}}), ("/run", {"operation": "v/ops/agent/message", "input": {"agentId": "ida", "message": 1}}), ("/invoke", {"operation": "v/ops/agent/request", "input": {"agentId": "idb", "input": 1}})):
        s, said = v.http("POST", path, body, headers={"Idempotency-Key": "same"})
        check(T, f"the same id at {path} {body.get('operation', '')} is no answer of the first", s == 409 or (s < 300 and first.get("job") not in json.dumps(said)), (s, said))
        check(T, f"and {path} never gives the first job's output", "one" not in json.dumps(said.get("output", "")), said)
    s, said = v.http("POST", "/agents/ida/tasks", base, headers={"Idempotency-Key": "same"}, owner="local/bob")
    check(T, "another owner's same id is another matter", s in (404, 409) or (s == 202 and said.get("job") != first.get("job")), (s, said))
    # invoke: who asks again with another operation.
    s, one = v.http("POST", "/invoke", {"operation": "v/ops/lattice/read", "input": {"path": "w/i"}, "wait": 3000}, headers={"Idempotency-Key": "inv"})
    s, two = v.http("POST", "/invoke", {"operation": "v/ops/lattice/read", "input": {"path": "w/other"}, "wait": 3000}, headers={"Idempotency-Key": "inv"})
    check(T, "invoke with another input under the same id is no cached answer", s == 409 and "canary" not in json.dumps(two), (s, two))
    s, two = v.http("POST", "/invoke", {"operation": "v/ops/lattice/write", "input": {"path": "w/i2", "value": 1}, "wait": 3000}, headers={"Idempotency-Key": "inv"})
    check(T, "invoke with another operation under the same id is a conflict", s == 409, (s, two))
    # Twenty at once.
    got = []
    def go():
        got.append(v.http("POST", "/agents/ida/tasks", {"input": "race"}, headers={"Idempotency-Key": "race"}))
    threads = [threading.Thread(target=go) for _ in range(20)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    jobs = {x[1].get("job") for x in got if x[0] < 300}
    check(T, "twenty at once under one id are one job", len(jobs) == 1 and all(x[0] < 300 for x in got), [x for x in got if x[0] >= 300][:2])
    got.clear()
    def go2(i):
        got.append(v.http("POST", "/agents/ida/tasks", {"input": i}, headers={"Idempotency-Key": "race2"}))
    threads = [threading.Thread(target=go2, args=(i,)) for i in range(20)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    check(T, "twenty different ones at once under one id: one is accepted", sum(x[0] < 300 for x in got) == 1 and all(x[0] in (200, 202, 409) for x in got), sorted(x[0] for x in got))
    # Children and jobs by guessed names: a call of the agent whose id a producer computes.
    s, said = v.http("GET", "/jobs?limit=200")
    check(T, "no job of the venue has a producer's id that starts with venue:", "canary-ids" not in json.dumps(said.get("items", []) if isinstance(said, dict) else []), "")
    if v.nats:
        asyncio.run(over_nats(v))


async def over_nats(v):
    import nats
    nc = await nats.connect(v.nats)
    js = nc.jetstream()
    async def send(subject, body, headers):
        try:
            return await js.publish(subject, body if isinstance(body, bytes) else json.dumps(body).encode(), headers=headers, timeout=3)
        except Exception as e:
            return e
    base = "trellis.in.local.me."
    out = await nc.subscribe("trellis.out.local.me.>")
    # The id of an HTTP request, again over NATS with something else: never its output.
    s, first = v.http("POST", "/agents/ida/tasks?wait=4000", {"input": "over http"}, headers={"Idempotency-Key": "cross"})
    inbox = nc.new_inbox()
    sub = await nc.subscribe(inbox)
    await send(base + "ida.task", {"input": "other", "replyTo": inbox}, {"Trellis-Id": "cross"})
    try:
        m = await sub.next_msg(5)
        said = json.loads(m.data)
        check(T, "another task under an id of HTTP is answered with a conflict over NATS", "CONFLICT" in json.dumps(said) and first.get("job") not in json.dumps({k: x for k, x in said.items() if k != "id"}), said)
    except Exception as e:
        check(T, "another task under an id of HTTP is answered over NATS", False, repr(e))
    for key in ("venue:x", "venue:call-1", " venue:x", "venue:" + "0" * 64):
        inbox = nc.new_inbox()
        sub = await nc.subscribe(inbox)
        before = len(v.http("GET", "/jobs?limit=200")[1].get("items", []))
        await send(base + "ida.task", {"input": "venue", "replyTo": inbox}, {"Trellis-Id": key})
        try:
            said = json.loads((await sub.next_msg(5)).data)
            check(T, f"the id {key[:12]!r} over NATS is refused", said.get("status") in ("REJECTED", "FAILED"), said)
        except Exception as e:
            check(T, f"the id {key[:12]!r} over NATS is answered", False, repr(e))
    # Nats-Msg-Id as a way around; and duplicates in bulk.
    for headers in ({"Trellis-Id": "bulk"}, {"Trellis-Id": "bulk", "Nats-Msg-Id": "x1"}, {"Trellis-Id": "bulk", "Nats-Msg-Id": "x2"}, {"trellis-id": "bulk"}):
        await send(base + "ida.task", {"input": "bulk"}, headers)
    await asyncio.sleep(1.5)
    s, said = v.http("GET", "/jobs?limit=200&details=true")
    items = [j for j in said.get("items", []) if isinstance(j, dict) and j.get("event") == "bulk"]
    check(T, "the same id with other Nats-Msg-Ids is one job", len(items) <= 1, items)
    s, one = v.http("POST", "/agents/ida/tasks", {"input": "bulk"}, headers={"Idempotency-Key": "bulk"})
    check(T, "and over HTTP it is a duplicate", one.get("duplicate") is True, one)
    await nc.close()
