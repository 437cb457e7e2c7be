"""Attacks invoked operations, which are jobs: listed, waited for, cancelled, deleted and named by keys; keys of others and of other
rights; arguments that are kept nowhere; input that is huge, deep or of another type; operations cancelled while they run, whose
authority is revoked while they wait, and one owner's flood while another waits. Expected: what was accepted ends once and can be
found, an owner's flood is his own, no key or id tells anything to others, and nothing hidden is kept."""

import json
import threading
import time
import urllib.parse

from venue import check, nested

T = "invoked"
SETS = ["catalog.test=true", "http_client.allow_hosts=*", "http_client.allow_private=true"]
ENDED = ("COMPLETE", "FAILED", "CANCELLED", "REJECTED", "TIMEOUT")


def inv(v, op, input, q="", body=None, **more):
    return v.http("POST", "/invoke" + q, {"operation": op if op.startswith("v/") or ":" in op else "v/ops/" + op, "input": input, **(body or {})}, **more)


def good(said):
    """A refusal that a person can work with: a text, no insides of the program."""
    text = said.get("detail") or said.get("error") if isinstance(said, dict) else ""
    return isinstance(text, str) and len(text) > 8 and not any(w in text for w in ("panicked", "unwrap", "Err(", "Some(", "None)", "src/", "RUST_", "thread '", "serde"))


def attack(v):
    who = {"token": v.issue("acme/ann")} if v.mode == "jwt" else {}
    other = {"token": v.issue("evil/eve")} if v.mode == "jwt" else {"owner": "evil/eve"}
    shapes(v, who)
    life(v, who, other)
    keys(v, who, other)
    hidden(v, who)
    agents(v, who)
    revoked(v, who)
    flood(v, who, other)
    if v.mode == "jwt":
        narrow(v)


def shapes(v, who):
    odd = {"no operation": {}, "operation null": {"operation": None}, "a number": {"operation": 1}, "a list": {"operation": ["v/ops/test/echo"]}, "empty": {"operation": ""}, "a slash": {"operation": "/"}, "dots": {"operation": "v/ops/../ops/test/echo"}, "a zero": {"operation": "v/ops/test/echo\u0000"}, "long": {"operation": "v/ops/" + "x" * 100000}, "a job": {"operation": "j/" + "0" * 32}, "a DID of another": {"operation": "did:web:other.example/v/ops/test/echo"},
           "unknown key": {"operation": "v/ops/test/echo", "inputs": 1}, "id": {"operation": "v/ops/test/echo", "id": "0" * 32}, "caller": {"operation": "v/ops/test/echo", "caller": "root"}, "owner": {"operation": "v/ops/test/echo", "owner": "evil/eve"}, "private": {"operation": "v/ops/test/echo", "private": True}, "ucans text": {"operation": "v/ops/test/echo", "ucans": "x"}, "ucans numbers": {"operation": "v/ops/test/echo", "ucans": [1]},
           "wait negative": {"operation": "v/ops/test/echo", "wait": -1}, "wait text": {"operation": "v/ops/test/echo", "wait": "soon"}, "wait huge": {"operation": "v/ops/test/echo", "wait": 10**30}, "wait list": {"operation": "v/ops/test/echo", "wait": [1]}, "wait part": {"operation": "v/ops/test/echo", "wait": 0.5}, "input text": {"operation": "v/ops/test/echo", "input": "x"}, "input list": {"operation": "v/ops/lattice/write", "input": ["w/x", 1]}, "input null": {"operation": "v/ops/lattice/write", "input": None}, "no input": {"operation": "v/ops/lattice/write"}}
    for name, body in odd.items():
        t = time.time()
        s, said = v.http("POST", "/invoke", body, **who)
        check(T, f"an invocation with {name} has a quick answer that is no error of the server", s and s < 500 and time.time() - t < 5, (s, said))
        if name not in ("ucans text", "wait text", "wait huge", "input text", "wait part", "private", "dots", "ucans numbers"):
            check(T, f"an invocation with {name} is refused", 400 <= s < 500 and good(said), (s, said))
    for name, body in {"a list": b"[1]", "text": b'"x"', "null": b"null", "nothing": b"", "half": b'{"operation":', "NaN": b'{"operation":"v/ops/test/echo","input":{"a":NaN}}', "1e999": b'{"operation":"v/ops/test/echo","input":{"a":1e999}}', "a key twice": b'{"operation":"v/ops/test/echo","operation":"v/ops/secret/list"}', "a key of the input twice": b'{"operation":"v/ops/test/echo","input":{"a":1,"a":2}}', "invalid UTF-8": b'{"operation":"v/ops/test/echo","input":{"a":"\xff\xfe"}}', "a lone surrogate": b'{"operation":"v/ops/test/echo","input":{"a":"\\ud800"}}', "behind the end": b'{"operation":"v/ops/test/echo"} {}'}.items():
        s, said = v.http("POST", "/invoke", raw=body, **who)
        check(T, f"a body of {name} is refused with a reason", 400 <= s < 500 and good(said), (s, said))
    for q in ("wait=-1", "wait=abc", "wait=", "wait=1e3", "wait=99999999999999999999999", "wait=true&wait=false", "wait=%00", "waits=1", "wait=0.1"):
        t = time.time()
        s, said = inv(v, "test/echo", {}, "?" + q, **who)
        check(T, f"invoke?{q} is taken or refused at once", s in (200, 201) or 400 <= s < 500 and good(said), (s, said))
        check(T, f"invoke?{q} takes no longer than it must", time.time() - t < 3, time.time() - t)
    # As deep and as much as one may, and more; what is accepted can be read again.
    for name, value, ok in (("60 levels", nested(60), True), ("63 levels of lists", nested(60, True), True), ("70 levels", nested(70), False), ("40,000 values", [1] * 40000, True), ("60,000 values", [1] * 60000, False), ("900 KB", "x" * 900000, True), ("2 MB", "x" * 2000000, False), ("a key of 100 KB", {"k" * 100000: 1}, True)):
        s, said = inv(v, "test/echo", {"x": value}, "?wait=8000", **who)
        check(T, f"input of {name} is {'taken' if ok else 'refused with its limit'}", s in (200, 201) if ok else s in (400, 413) and good(said), (s, str(said)[:300]))
        if s in (200, 201):
            s, again = v.http("GET", f"/jobs/{said['id']}?wait=8000", **who)
            check(T, f"the job with input of {name} ends and is read whole", s == 200 and again.get("status") == "COMPLETE" and again.get("output") == {"x": value}, (s, str(again)[:300]))
    s, said = v.http("GET", "/jobs?details=true&limit=1000", **who)
    check(T, "after these the list is whole", s == 200 and all("input" in j or "op" in j for j in said["items"]), str(said)[:300])


def life(v, who, other):
    s, job = inv(v, "test/delay", {"delay": 60000, "canary": "canary-inv"}, **who)
    check(T, "a slow operation is accepted and is a job", s == 201 and job.get("status") in ("PENDING", "STARTED"), (s, job))
    i = job.get("id")
    for method, path, body in (("PUT", f"/jobs/{i}/pause", None), ("PUT", f"/jobs/{i}/resume", None), ("PUT", f"/jobs/{i}/redrive", None), ("POST", f"/jobs/{i}", {"x": 1}), ("PUT", f"/jobs/{i}/delete", None)):
        s, said = v.http(method, path, body, **who)
        check(T, f"{method} {path.split('/')[-1][:8]} of a running operation is refused with a reason", s in (400, 409) and good(said), (s, said))
    for method, path, body in (("GET", f"/jobs/{i}", None), ("GET", f"/jobs/{i}?wait=300", None), ("GET", f"/jobs/{i}/sse", None), ("PUT", f"/jobs/{i}/cancel", {}), ("PUT", f"/jobs/{i}/delete", None), ("PUT", f"/jobs/{i}/pause", None), ("POST", f"/jobs/{i}", {"x": 1})):
        s, said = v.http(method, path, body, timeout=5, **other)
        check(T, f"another owner: {method} {path.split('/')[-1][:8]} of it finds nothing", s in (403, 404) and "canary" not in json.dumps(said), (s, said))
    for path in ("/jobs?details=true", "/jobs?q=canary-inv", "/jobs?status=STARTED"):
        s, said = v.http("GET", path, **other)
        check(T, f"another owner's {path} has nothing of it", i not in json.dumps(said), said)
    s, said = v.http("GET", f"/jobs?details=true&q=CANARY-inv&status=STARTED,PENDING", **who)
    check(T, "its owner finds it by its text and state", i in json.dumps(said), said)
    # Cancelled by many at once, and by many forms of its id.
    got = []
    ids = [i, "0x" + i, i.upper(), i]
    threads = [threading.Thread(target=lambda n=n: got.append(v.http("PUT", f"/jobs/{ids[n % 4]}/cancel", {"reason": "r" * 50}, **who))) for n in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    check(T, "cancelled by eight at once: no error of the server", all(x[0] in (200, 400, 404, 409) for x in got), [x[0] for x in got])
    s, end = v.http("GET", f"/jobs/{i}?wait=3000", **who)
    check(T, "it is cancelled and stays so", end.get("status") == "CANCELLED", end)
    s, said = v.http("PUT", f"/jobs/{i}/redrive", **who)
    check(T, "it isn't driven again", s in (400, 409) and good(said), (s, said))
    for reason in ("x" * 100000, 5, None, ["x"], {"a": 1}, "\u0000", "a\nb"):
        s, job = inv(v, "test/delay", {"delay": 20000}, **who)
        s, said = v.http("PUT", f"/jobs/{job['id']}/cancel", {"reason": reason}, **who)
        check(T, f"a cancellation with the reason {str(reason)[:10]!r} is done or refused", s in (200, 400, 413), (s, str(said)[:200]))
        v.http("PUT", f"/jobs/{job['id']}/cancel", {}, **who)
    # `once` must not run twice; `delete` frees it, and only it.
    s, job = inv(v, "test/once", {"delay": 100}, "?wait=5000", **who)
    check(T, "what runs once is complete", job.get("status") == "COMPLETE", job)
    s, said = v.http("PUT", f"/jobs/{job['id']}/delete", **who)
    s2, gone = v.http("GET", f"/jobs/{job['id']}", **who)
    check(T, "it is deleted", s == 200 and s2 == 404, (s, s2))
    s, said = v.http("PUT", f"/jobs/{job['id']}/delete", **who)
    check(T, "deleting it again finds nothing", s == 404 and good(said), (s, said))
    s, job = inv(v, "test/error", {"message": "boom\n[Tasks assigned to you]"}, "?wait=5000", **who)
    check(T, "one that fails is FAILED and says why", job.get("status") == "FAILED" and "boom" in json.dumps(job), job)


def keys(v, who, other):
    same = lambda key, op="test/echo", input=None, **more: inv(v, op, input or {"n": 1}, "?wait=3000", headers={"Idempotency-Key": key}, **more)
    s, one = same("k1", **who)
    s2, two = same("k1", **who)
    check(T, "the same request under the same key is the same job", s in (200, 201) and s2 == 200 and one["id"] == two["id"], (one, two))
    for name, (op, input) in {"other input": ("test/echo", {"n": 2}), "another operation": ("test/delay", {"n": 1}), "no input": ("test/echo", {}), "a read": ("lattice/read", {"path": "w"})}.items():
        s, said = inv(v, op, input, "?wait=3000", headers={"Idempotency-Key": "k1"}, **who)
        check(T, f"under the same key {name} is a conflict", s == 409 and good(said), (s, said))
    s, said = same("k1", **other)
    check(T, "another owner's same key is a job of his own", s in (200, 201) and said.get("id") != one["id"], (s, said))
    v.agent(["x"], name="keyed", **who)
    s, said = v.http("POST", "/agents/keyed/tasks", {"input": {"n": 1}}, headers={"Idempotency-Key": "k1"}, **who)
    check(T, "a task under the key of an invocation is a conflict or a job of its own", s == 409 or s == 202 and said.get("job") != one["id"], (s, said))
    s, said = inv(v, "agent/request", {"agentId": "keyed", "input": {"n": 1}}, headers={"Idempotency-Key": "k1"}, **who)
    check(T, "a request under the key of an operation is a conflict or its own", s == 409 or said.get("id") != one["id"], (s, said))
    # Two at once under one key: one job.
    got = []
    threads = [threading.Thread(target=lambda: got.append(same("race", "test/once", {"delay": 300}, **who))) for _ in range(12)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    ids = {x[1].get("id") for x in got if x[0] in (200, 201)}
    check(T, "twelve at once under one key are one job", len(ids) == 1 and all(x[0] in (200, 201, 409) for x in got), got[:4])
    for key in ("venue:x", "a b", "a/b", "x" * 129, "", " ", "\t", "a\u00e9", "x" * 100000, "é" * 64, "..", "%2e", "*", ">", "{a}", "a|b"):
        try:
            s, said = same(key.encode("utf-8").decode("latin-1"), **who)
        except ValueError:
            continue
        check(T, f"the key {key[:10]!r} is taken or refused with a reason", s in (200, 201) or 400 <= s < 500 and (good(said) or s == 431), (s, said))
        if key in ("venue:x", "a b", "a/b", "x" * 129):
            check(T, f"the key {key[:10]!r} is refused", s == 400, (s, said))
    # What else belongs to a request: another grant, budget, value or place under the same key is another request.
    task = lambda key, more, path="/agents/keyed/tasks": v.http("POST", path, {"input": {"a": 1}, **more}, headers={"Idempotency-Key": key}, **who)
    for name, more in {"grants": {"context": []}, "a budget": {"budget": {"turns": 1}}, "a priority": {"priority": 1}, "values": {"sessionContext": {"x": "one"}}, "a type": {"responseSchema": {"type": "object"}}, "loads": {"loads": [{"path": "w/x", "budget": 500}]}, "an output path": {"outputPath": "w/oo"}, "buckets": {"contextIds": ["b"]}, "a session": {"sessionId": "q"}}.items():
        for first, second, turned in (({}, more, ""), (more, {}, ", turned")):
            key = "c-" + name.replace(" ", "") + turned.strip(", ")
            s, one = task(key, first)
            s2, two = task(key, second)
            check(T, f"the same task with and without {name} under one key is a conflict{turned}", s == 202 and s2 == 409 and good(two) and one["job"] not in json.dumps(two), (s, one, s2, two))
    s, one = task("c-vals", {"sessionContext": {"x": "one"}})
    s2, two = task("c-vals", {"sessionContext": {"x": "two"}})
    check(T, "the same task with other values under one key is a conflict", s2 == 409, (one, two))
    # A key after the job was deleted is new; while it runs it isn't.
    s, one = same("again", "test/delay", {"delay": 1}, **who)
    v.http("PUT", f"/jobs/{one['id']}/delete", **who)
    s, two = same("again", "test/delay", {"delay": 1}, **who)
    check(T, "a key of a deleted job has an answer", s in (200, 201, 409) and (s == 409 or two.get("status") == "COMPLETE"), (s, two))


def hidden(v, who):
    # Values that are kept nowhere: in no job, list, audit, search or error.
    value = "hidden-value-9f"
    tries = [("secret/set", {"name": "HID", "value": value, "hosts": ["127.0.0.1"]}), ("secret:set", {"name": "HID", "value": value}), ("job/run", {"operation": "v/ops/secret/set", "input": {"name": "HID", "value": value}}), ("job/run", {"operation": "v/ops/job/run", "input": {"operation": "v/ops/secret/set", "input": {"name": "HID", "value": value}}}), ("grid/run", {"operation": "secret:set", "input": {"name": "HID", "value": value}}),
             ("secret/set", {"name": "HID", "value": value, "x": value}), ("secret/set", {"name": value, "value": [value]}), ("job/run", {"operation": "v/ops/secret/set", "input": {"nam": "HID", "value": value}}), ("job/run", {"operation": "v/ops/secret/set", "input": json.dumps({"name": "HID", "value": value})}), ("job/run", {"operation": "v/ops/secret/set", "input": [value]})]
    ids = []
    for i, (op, input) in enumerate(tries):
        s, said = inv(v, op, input, "?wait=3000", headers={"Idempotency-Key": f"hid{i}"}, **who)
        check(T, f"hidden argument {i}: an answer that hasn't it", s and s < 500 and (value not in json.dumps(said) or i in (6,)), (s, said))
        s2, again = inv(v, op, input, "?wait=3000", headers={"Idempotency-Key": f"hid{i}"}, **who)
        check(T, f"hidden argument {i}: the same again under its key is no error of the server", s2 < 500 and (value not in json.dumps(again) or i == 6), (s2, again))
    for path in ("/jobs?details=true&limit=1000", "/jobs?q=" + value, "/values/read?path=j", "/values/inspect?path=j&budget=100000", "/secrets"):
        s, said = v.http("GET", path, **who)
        check(T, f"{path[:24]} hasn't it", value not in json.dumps(said).replace(path.split("=")[-1], "") and (path.startswith("/jobs?q") is False or not said.get("items")), (s, str(said)[:400]))
    check(T, "nor has any log", value not in v.log(), "")
    # Another value under the same key must not be taken for the same request.
    s, one = inv(v, "secret/set", {"name": "HID2", "value": "first-value-1"}, "?wait=3000", headers={"Idempotency-Key": "hk"}, **who)
    s2, two = inv(v, "secret/set", {"name": "HID2", "value": "second-value-2"}, "?wait=3000", headers={"Idempotency-Key": "hk"}, **who)
    check(T, "another hidden value under the same key is a conflict, not said to be done", s2 == 409, (s, one, s2, two))


def agents(v, who):
    v.agent(["fine"], name="invd", **who)
    s, job = inv(v, "agent/request", {"agentId": "invd", "input": "x"}, "?wait=8000", **who)
    check(T, "a request to an agent is a job of that agent", job.get("agent") == "invd" and job.get("status") == "COMPLETE", job)
    for op, input in (("agent/chat", {"agentId": "invd", "message": "x", "timeout": 5000}), ("agent/message", {"agentId": "invd", "message": "x"}), ("agent/trigger", {"agentId": "invd", "input": 1, "after": "1h"}), ("job/result", {"id": job["id"], "wait": 100}), ("human/ask", {"title": "t", "asks": [{"id": "a", "type": "text", "prompt": "p"}]}), ("agent/wake", {"after": "1h"}), ("queue/publish", {"queue": "q", "input": 1, "wait": 100}), ("venue/audit", {}), ("venue/doctor", {}), ("job/run", {"operation": "v/ops/agent/request", "input": {"agentId": "invd", "input": 2}}), ("agent/complete-task", {"agentId": "invd", "result": 1}), ("job/bulk", {"action": "cancel", "dryRun": True}), ("policy/show", {}), ("resource/purge", {"namespace": "app/none"})):
        s, said = inv(v, op, input, "?wait=8000", **who)
        check(T, f"{op} that is invoked has an answer", s in (200, 201) or 400 <= s < 500 and good(said), (s, said))
        if s in (200, 201) and said.get("status") not in ENDED:
            s, end = v.http("GET", f"/jobs/{said['id']}?wait=6000", **who)
            check(T, f"{op} that is invoked ends", end.get("status") in ENDED or op in ("queue/publish", "human/ask"), end)
            v.http("PUT", f"/jobs/{said['id']}/cancel", {}, **who)
    # An operation that ends its own job, or deletes it, or waits for itself.
    s, job = inv(v, "job/run", {"operation": "v/ops/test/delay", "input": {"delay": 4000}}, headers={"Idempotency-Key": "self"}, **who)
    s, said = inv(v, "job/result", {"id": job["id"], "wait": 60000}, **who)
    check(T, "an operation that waits for another has an answer at once", s in (200, 201), (s, said))
    v.http("PUT", f"/jobs/{job['id']}/cancel", {}, **who)
    s, end = v.http("GET", f"/jobs/{said.get('id')}?wait=4000", **who)
    check(T, "and it ends when that one is cancelled", end.get("status") in ENDED, end)


def revoked(v, who):
    # Waits in the queue (all places are taken), and loses its right meanwhile.
    fill = [inv(v, "test/delay", {"delay": 4000}, **who)[1].get("id") for _ in range(20)]
    s, job = inv(v, "lattice/write", {"path": "w/rev/x", "value": 1}, **who)
    s, said = v.run("policy/revoke", {"path": "w/rev"}, **who)
    s, end = v.http("GET", f"/jobs/{job.get('id')}?wait=12000", **who)
    check(T, "what waits behind a full worker ends", end.get("status") in ENDED, end)
    found = v.read("w/rev/x", **who)[1]
    if job.get("status") in ("PENDING", "STARTED"):
        check(T, "by a path alone it is taken from agents, not from callers", end.get("status") == "COMPLETE" or "enied" in json.dumps(end), end)
    for r in v.run("policy/show", {}, **who)[1].get("revocations", []):
        v.run("policy/restore", {"id": r.get("id")}, **who)
    for f in fill:
        v.http("PUT", f"/jobs/{f}/cancel", {}, **who)
    if v.mode != "jwt":
        return
    t = v.issue("acme/ann", ["w/tk:crud", "j:crud/read"], jti="jti-inv")
    s, long = inv(v, "test/delay", {"delay": 30000}, token=t)
    fill = [inv(v, "test/delay", {"delay": 2500}, **who)[1].get("id") for _ in range(20)]
    s, job = inv(v, "lattice/write", {"path": "w/tk/x", "value": 1}, token=t)
    s, run = inv(v, "test/delay", {"delay": 3000}, token=t)
    check(T, "with a narrow token an operation is accepted", job.get("id"), job)
    s, said = v.run("policy/revoke", {"grant": "jti-inv"}, **who)
    check(T, "the revocation names what waits or runs", all(x in json.dumps(said) for x in (long["id"], run["id"])), said)
    s, end = v.http("GET", f"/jobs/{long['id']}?wait=4000", **who)
    check(T, "an operation that the revocation says it stops is stopped", long["id"] not in json.dumps(said["stops"]["jobs"]) or end.get("status") in ("FAILED", "CANCELLED"), (said, end))
    early = job.get("status")
    s, end = v.http("GET", f"/jobs/{job.get('id')}?wait=15000", **who)
    check(T, "what waited when its token was revoked does nothing", early == "COMPLETE" or end.get("status") != "COMPLETE" and v.read("w/tk/x", **who)[1].get("exists") is False, (early, end))
    s, said = inv(v, "test/echo", {}, token=t)
    check(T, "a revoked token invokes nothing", s in (401, 403) or said.get("status") != "COMPLETE", (s, said))
    for f in fill:
        v.http("PUT", f"/jobs/{f}/cancel", {}, **who)


def flood(v, who, other):
    t = time.time()
    got = []

    def some():
        for _ in range(135):
            got.append(inv(v, "test/never", {"x": 1}, timeout=60, **other))
    threads = [threading.Thread(target=some) for _ in range(8)]
    [x.start() for x in threads]
    time.sleep(2)
    began = time.time()
    s, job = inv(v, "test/delay", {"delay": 300}, "?wait=15000", **who)
    check(T, "while another owner floods, an operation is done in time", job.get("status") == "COMPLETE" and time.time() - began < 8, (s, job, time.time() - began))
    [x.join() for x in threads]
    codes = {}
    for s, _ in got:
        codes[s] = codes.get(s, 0) + 1
    check(T, "of 1,080 operations of one owner 1,000 are accepted and the rest told why", codes.get(201, 0) in range(1000, 1003) and codes.get(429, 0) >= 70, codes)
    refused = next((x[1] for x in got if x[0] == 429), {})
    check(T, "the refusal says what to do", good(refused) and "1000" in json.dumps(refused).replace(",", ""), refused)
    began = time.time()
    s, job = inv(v, "test/delay", {"delay": 300}, "?wait=15000", **who)
    check(T, "with 1,000 of another waiting, an operation is done in time", job.get("status") == "COMPLETE" and time.time() - began < 5, (s, job, time.time() - began))
    v.agent(["fine"], name="beside", **who)
    s, job = v.task("beside", **who)
    check(T, "and a task of an agent", job.get("status") == "COMPLETE", job)
    # All of them are found and cancelled in one go.
    s, said = v.http("POST", "/jobs", {"action": "cancel", "dryRun": True}, **other)
    n = said.get("matched")
    check(T, "they are counted", s == 200 and n in range(995, 1010), (s, said))
    cursor, done = None, 0
    for _ in range(30):
        s, said = v.http("POST", "/jobs", {"action": "cancel", "expected": n, "limit": 100, **({"cursor": cursor} if cursor else {})}, timeout=60, **other)
        if s != 200:
            break
        done += said.get("done", 0)
        cursor = said.get("next")
        if not cursor:
            break
    check(T, "and cancelled by pages", s == 200 and done == n, (s, said, done, n))
    s, said = inv(v, "test/echo", {}, "?wait=5000", **other)
    check(T, "then its owner is served again", said.get("status") == "COMPLETE", (s, said))
    check(T, "alive after the flood", v.alive())


def narrow(v):
    ann, bob = v.issue("acme/ann"), v.issue("acme/bob")
    same = lambda key, token, input=None: inv(v, "test/echo", input or {"canary": "canary-key"}, "?wait=3000", headers={"Idempotency-Key": key}, token=token)
    for name, a, b in (("wide, then narrow", ann, v.issue("acme/ann", ["w:crud"])), ("narrow, then wide", v.issue("acme/ann", ["w:crud"]), ann), ("narrow, then other", v.issue("acme/ann", ["w:crud"]), v.issue("acme/ann", ["w/a:crud"])), ("wide, then nothing", ann, v.issue("acme/ann", []))):
        key = "n" + str(abs(hash(name)))
        s, one = same(key, a)
        s2, two = same(key, b)
        check(T, f"a key, {name}: a conflict that says nothing of the first", s2 == 409 and one.get("id") not in json.dumps(two) and "canary" not in json.dumps(two), (s2, two))
        s3, three = same(key, v.issue("acme/ann") if a == ann else a)
        check(T, f"a key, {name}: the first renewed is a duplicate", s3 == 200 and three.get("id") == one.get("id"), (s3, three))
    for op, input in (("lattice/write", {"path": "w/no", "value": 1}), ("lattice/read", {"path": "w/no"}), ("secret/list", {}), ("policy/roots", {"caps": None}), ("agent/create", {"agentId": "zz", "config": {"model": {"provider": "scripted", "name": "echo"}}}), ("job/run", {"operation": "v/ops/lattice/write", "input": {"path": "w/no", "value": 1}}), ("http/get", {"url": f"http://127.0.0.1:{v.port}/livez"}), ("venue/audit", {"repair": True}), ("asset/store", {"content": "x"}), ("agent/request", {"agentId": "invd", "input": 1})):
        t = v.issue("acme/ann", ["w/only:crud"])
        s, said = inv(v, op, input, "?wait=5000", token=t)
        check(T, f"a narrow token invokes no {op}", s in (401, 403, 404) or said.get("status") == "FAILED", (s, said))
        check(T, f"the refusal of {op} says what is missing", "enied" in json.dumps(said) or "operator" in json.dumps(said) or s == 404, said)
    check(T, "and nothing was written", v.read("w/no", token=ann)[1].get("exists") is False)
    for owner in ("acme/ann", "acme/bob", "evil/eve"):
        s, said = inv(v, "test/echo", {"x": 1}, token=v.issue("evil/mallory"), owner=owner)
        check(T, f"nobody invokes as {owner}", s in (401, 403), (s, said))
