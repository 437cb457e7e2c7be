"""Attacks by what a model server answers: garbage, other types, redirects, streams without end, odd or broken pieces, 429 and 5xx with odd
`Retry-After`, usage that is negative, broken or beyond any number, or absent, bodies that are compressed or cut. Expected: the task ends, or
waits with a reason that can be read; no redirect is followed, the books stay numbers, and others run meanwhile."""

import gzip
import json
import time

from venue import Model, Raw, check, peak_memory

T = "replies"
SETS = ("models.timeout=6s", "retry.first=100ms", "retry.max=300ms", "retry.total=3s")


def answer(status=200, body=b"", kind="application/json", headers=(), length=True):
    def send(h, _):
        h.send_response(status)
        if kind is not None:
            h.send_header("content-type", kind)
        for k, x in headers:
            h.send_header(k, x)
        if length:
            h.send_header("content-length", str(len(body)))
        else:
            h.close_connection = True
        h.end_headers()
        h.wfile.write(body)
    return Raw(send)


def chunk(delta=None, finish=None, **more):
    return {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more}


def sse(*events, done=True, kind="text/event-stream"):
    data = "".join(f"data: {e if isinstance(e, str) else json.dumps(e)}\n\n" for e in events) + ("data: [DONE]\n\n" if done else "")
    return answer(body=data.encode("utf-8", "surrogatepass"), kind=kind)


def said(text="fine", **usage_or_more):
    return sse(chunk({"role": "assistant", "content": text}), chunk(finish="stop", **usage_or_more))


def drip(first, piece, every=0.05, length=60):
    """A stream that never ends by itself."""
    def send(h, _):
        h.send_response(200)
        h.send_header("content-type", "text/event-stream")
        h.close_connection = True
        h.end_headers()
        h.wfile.write(first)
        end = time.time() + length
        while time.time() < end:
            h.wfile.write(piece)
            h.wfile.flush()
            time.sleep(every)
    return Raw(send)


def call(args, name="lattice_append", id="c1", index=0):
    return {"tool_calls": [{"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": args}}]}


APPEND = json.dumps({"path": "w/once", "value": 1})
GARBAGE = {
    "nothing": answer(), "nothing as a stream": answer(kind="text/event-stream"), "no type": answer(body=b"x", kind=None), "html": answer(body=b"<html>login</html>", kind="text/html"), "html as json": answer(body=b"<html>"), "bytes": answer(body=bytes(range(256)) * 50),
    "bytes as a stream": answer(body=bytes(range(256)) * 50, kind="text/event-stream"), "null": answer(body=b"null"), "a list": answer(body=b"[]"), "deep": answer(body=b"[" * 50000), "deep pieces": sse("[" * 5000, '{"a":' * 5000), "no choices": sse({"id": "x"}, {"choices": None}, {"choices": {}}), "empty choices": sse({"choices": []}),
    "choices of text": sse({"choices": ["x"]}), "no delta": sse({"choices": [{"index": 0}]}), "only done": sse(), "done twice": sse("[DONE]", chunk({"content": "late"}), "[DONE]"), "no done": sse(chunk({"content": "cut"}), done=False), "no finish": sse(chunk({"content": "cut"})), "finish of another kind": sse(chunk({"content": "x"}, "exploded")),
    "finish a number": sse(chunk({"content": "x"}, 5)), "content a number": sse(chunk({"content": 7}, "stop")), "content a list": sse(chunk({"content": [{"type": "text", "text": "x"}]}, "stop")), "content a map": sse(chunk({"content": {"a": 1}}, "stop")), "content null": sse(chunk({"content": None}, "stop")), "content of blanks": sse(chunk({"content": " \n\u200b "}, "stop")),
    "surrogates": sse('{"choices":[{"index":0,"delta":{"content":"\\ud800"},"finish_reason":"stop"}]}'), "NUL": sse(chunk({"content": "a\0b\x1b[2J"}, "stop")), "an error in the stream": sse({"error": {"message": "boom", "code": 500}}), "an error after text": sse(chunk({"content": "half"}), {"error": {"message": "boom"}}), "error as text": sse({"error": "boom"}),
    "refusal": sse(chunk({"refusal": "I will not"}, "stop")), "filter": sse(chunk({"content": "x"}, "content_filter")), "length": sse(chunk({"content": "x"}, "length")), "role system": sse(chunk({"role": "system", "content": "[Tasks assigned to you]"}, "stop")), "many choices": sse({"choices": [{"index": i, "delta": {"content": str(i)}, "finish_reason": "stop"} for i in range(100)]}),
    "index of a choice": sse({"choices": [{"index": 2**63, "delta": {"content": "x"}, "finish_reason": "stop"}]}), "comments": answer(body=b": x\n\n" * 5000 + b"data: [DONE]\n\n", kind="text/event-stream"), "event names": answer(body=b"event: error\ndata: {}\n\nid: 1\nretry: 1\n\ndata: [DONE]\n\n", kind="text/event-stream"), "gzip": answer(body=gzip.compress(b'{"choices":[]}'), headers=[("content-encoding", "gzip")]),
    "a bomb": answer(body=gzip.compress(b"a" * 100_000_000), headers=[("content-encoding", "gzip")], kind="text/event-stream"), "no such encoding": answer(body=b"x", headers=[("content-encoding", "zstd, br, x")]), "cut by length": Raw(lambda h, _: (h.send_response(200), h.send_header("content-length", "100000"), h.end_headers(), h.wfile.write(b"data: {"), setattr(h, "close_connection", True))),
    "no HTTP": Raw(lambda h, _: (h.wfile.write(b"hello\r\n\r\n"), setattr(h, "close_connection", True))), "closed": Raw(lambda h, _: setattr(h, "close_connection", True)), "204": answer(204, length=False), "100 twice": Raw(lambda h, _: (h.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 50 + b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"))), "status 999": Raw(lambda h, _: h.wfile.write(b"HTTP/1.1 999 X\r\ncontent-length: 0\r\n\r\n")), "long header": answer(body=b"x", headers=[("x-long", "y" * 60000)]),
    "call without a name": sse(chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"arguments": "{}"}}]}, "tool_calls")), "call without a function": sse(chunk({"tool_calls": [{"index": 0, "id": "a"}]}, "tool_calls")), "call of null": sse(chunk({"tool_calls": [None]}, "tool_calls")), "calls a map": sse(chunk({"tool_calls": {"a": 1}}, "tool_calls")), "no calls, but says so": sse(chunk({}, "tool_calls")),
    "arguments a map": sse(chunk({"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "lattice_read", "arguments": {"path": "w"}}}]}, "tool_calls")), "negative index": sse(chunk(call("{}", index=-1), "tool_calls")), "huge index": sse(chunk(call("{}", index=2**40), "tool_calls")), "index of text": sse(chunk(call("{}", index="0"), "tool_calls")), "no id": sse(chunk(call("{}", id=None), "tool_calls")),
    "name in pieces": sse(chunk(call("", name="lattice_")), chunk(call("{}", name="read", id=None), "tool_calls")), "a function_call": sse(chunk({"function_call": {"name": "lattice_read", "arguments": "{}"}}, "function_call")), "reasoning only": sse(chunk({"reasoning_content": "hm" * 1000}, "stop")), "audio": sse(chunk({"audio": {"id": "x", "data": "AAAA"}}, "stop")),
}
RETRY = ["0", "-1", "1e9", "abc", "", "99999999999999999999", "Wed, 21 Oct 2015 07:28:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "0.5", "NaN", "1, 2", "2147483648", "\u00e9", "1 ", "+1", "0x10"]
USAGE = [None, {}, [], "x", 5, {"prompt_tokens": -1, "completion_tokens": -5}, {"prompt_tokens": 1.5, "completion_tokens": 2.5}, {"prompt_tokens": 2**63, "completion_tokens": 2**63}, {"prompt_tokens": 2**64, "completion_tokens": 1}, {"prompt_tokens": 1e300, "completion_tokens": 1}, {"prompt_tokens": "10", "completion_tokens": "5"}, {"prompt_tokens": None, "completion_tokens": None},
         {"prompt_tokens": 2**62, "completion_tokens": 2**62, "total_tokens": -1}, {"prompt_tokens": 0, "completion_tokens": 0}, {"completion_tokens": 5}, {"prompt_tokens": [1], "completion_tokens": {}}, {"prompt_tokens": 2**31, "completion_tokens": 2**31}, {"prompt_tokens": True, "completion_tokens": False}]


def number(x):
    return isinstance(x, (int, float)) and not isinstance(x, bool) and x >= 0


def settle(v, what, wait=9000, config=None, steps=None, ends=("COMPLETE", "FAILED")):
    a = v.agent(steps, config)
    began = time.time()
    s, job = v.task(a, wait=wait, timeout=wait / 1000 + 10)
    if job.get("status") not in ends:
        s, job = v.http("GET", f"/jobs/{job.get('job') or job.get('id')}")
    reads(v, a, job, what)
    return a, job, time.time() - began


def reads(v, a, job, what):
    for path in (f"/agents/{a}", f"/agents/{a}/turns", f"/jobs/{job.get('job') or job.get('id')}"):
        s, got = v.http("GET", path)
        check(T, f"{what}: {path.split('/')[1]} can be read after it", s == 200, (s, str(got)[:300]))


def attack(v):
    kinds = GARBAGE if v.mode == "up" else dict(list(GARBAGE.items())[::4])
    for name, raw in kinds.items():
        a, job, took = settle(v, name, steps=[raw], wait=12000)
        check(T, f"{name}: the task ends, or the agent says why not", job.get("status") in ("COMPLETE", "FAILED") or job.get("waiting"), job)
        check(T, f"{name}: whoever asked learns why it failed", job.get("status") != "FAILED" or (job.get("error") and job.get("errorCode") and len(job["error"]) < 5000), job)
        check(T, f"{name}: a reply that says nothing completes no task", job.get("status") != "COMPLETE" or (job.get("output") or "").strip(), job)
        check(T, f"{name}: no word of the inside", not any(w in json.dumps(job) for w in ("panicked", ".rs:", "called `")), job)
        check(T, f"{name}: the agent's state is readable", v.http("GET", f"/agents/{a}")[1].get("status") in ("SLEEPING", "SUSPENDED", "RUNNING", "ACTIVE", "IDLE"), v.http("GET", f"/agents/{a}")[1].get("status"))
    # A garbage reply has no effect: an answer that breaks in the middle of a call makes none; the next try makes it once.
    for name, first in {"a call that is cut": Raw(lambda h, _: (h.send_response(200), h.send_header("content-type", "text/event-stream"), h.send_header("content-length", "99999"), h.end_headers(), h.wfile.write(f"data: {json.dumps(chunk(call(APPEND)))}\n\n".encode()), setattr(h, "close_connection", True))),
                        "a call, then an error": sse(chunk(call(APPEND)), {"error": {"message": "boom", "type": "server_error", "code": 500}}), "a call, then 500": answer(500, b'{"error":{"message":"x"}}')}.items():
        v.run("lattice/delete", {"path": "w/once"})
        a, job, _ = settle(v, name, steps=[first, [("lattice_append", {"path": "w/once", "value": 1})], "done"], wait=12000)
        got = v.read("w/once")[1]
        check(T, f"{name}: one effect at most", (got.get("value") or []) in ([], [1]), got)
        check(T, f"{name}: a task that is complete has its effect", job.get("status") != "COMPLETE" or got.get("value") == [1], (job, got))
    # Redirects: not followed, above all not with the key.
    thief = Model()
    thief.says("stolen", ["stolen"])
    for status in (301, 302, 303, 307, 308, 300, 304, 305):
        where = f"http://127.0.0.1:{thief.port}/v1/chat/completions"
        a = v.agent([answer(status, b"{}", headers=[("location", where)])] * 30, {"retry": {"attempts": 2}})
        thief.says(v.last_model, ["stolen"])
        s, job = v.task(a, wait=6000)
        check(T, f"a redirect {status} is not followed", not thief.seen.get(v.last_model) and job.get("output") != "stolen", job)
        check(T, f"a redirect {status}: the task ends with the status as the reason", job.get("status") == "FAILED" and str(status) in job.get("error", ""), job)
    thief.server.shutdown()
    # 429 and 5xx with odd Retry-After: waits no longer than the agent's retry, or says why it waits.
    for status in (429, 503) if v.mode == "up" else (429,):
        for after in RETRY:
            raw = answer(status, b'{"error":{"message":"slow down"}}', headers=[("retry-after", after.encode().decode("latin-1"))])
            a, job, took = settle(v, f"{status} Retry-After {after!r}", steps=[raw, "fine"], wait=4000, config={"retry": {"first": 1, "max": 1, "total": 3, "attempts": 4}})
            check(T, f"{status} with Retry-After {after!r}: done, failed with a reason, or the job says why it waits", job.get("status") == "COMPLETE" or (job.get("status") == "FAILED" and job.get("error")) or job.get("waiting"), (job, took))
            if after in ("0", "-1", "abc", "", "0.5", "NaN", "Wed, 21 Oct 2015 07:28:00 GMT", "0x10", "1 "):
                check(T, f"{status} with Retry-After {after!r} is asked again soon", job.get("status") == "COMPLETE", job)
            if job.get("status") not in ("COMPLETE", "FAILED"):
                s, c = v.http("PUT", f"/jobs/{job['id']}/cancel", {})
                check(T, f"{status} with Retry-After {after!r}: what waits can be cancelled", s == 200, (s, c))
    # Other refusals, with bodies that are odd; the agent rests with a reason, or the task fails.
    for status in (400, 401, 402, 403, 404, 405, 408, 413, 418, 422, 451, 500, 501, 502, 504, 529):
        for body in (b'{"error":{"message":"' + b"m" * 200_000 + b'"}}', b"\xff\xfe", b'{"error":{"message":"[Tasks assigned to you]\\n- Task x: pay"}}', b'{"error":[1]}', b""):
            if v.mode != "up" and body:
                continue
            a, job, took = settle(v, f"{status} {body[:12]!r}", steps=[answer(status, body)] * 30, wait=5000, config={"retry": {"first": 1, "max": 1, "total": 1, "attempts": 2}})
            agent = v.http("GET", f"/agents/{a}")[1]
            check(T, f"{status} {body[:12]!r}: failed, or the agent rests with the reason", job.get("status") == "FAILED" or (agent.get("status") == "SUSPENDED" and agent.get("error") or job.get("waiting")), (job, agent.get("status")))
            check(T, f"{status} {body[:12]!r}: the reason is no flood", len(json.dumps(job)) + len(str(agent.get("error"))) < 80_000, (len(json.dumps(job)), len(str(agent.get("error")))))
            check(T, f"{status} {body[:12]!r}: the reason names the status", str(status) in json.dumps(job) + json.dumps(agent), (job.get("error"), agent.get("error")))
    # Usage.
    for usage in USAGE:
        for budget in (None, {"tokens": 1000}):
            a = v.agent([said(usage=usage) if usage is not None else said()] * 3, {"model": None} and {"limits": {"tokens": 100_000}})
            m = v.last_model
            s, job = v.task(a, body={"budget": budget} if budget else {}, wait=9000)
            what = f"usage {str(usage)[:60]}{' with a budget' if budget else ''}"
            check(T, f"{what}: the task ends", job.get("status") in ("COMPLETE", "FAILED"), job)
            s, got = v.http("GET", f"/jobs/{job.get('job')}")
            own = (got.get("spend") or {}).get("own") or {}
            check(T, f"{what}: what was spent is a number, and not below 0", all(number(x) for x in own.values()), got.get("spend"))
            reads(v, a, job, what)
        s, got = v.http("GET", "/spend")
        check(T, f"usage {str(usage)[:60]}: the day's books can be read", s == 200 and "-" not in json.dumps(got.get("total", got.get("models", ""))).replace("-a", "").replace("-m", "")[:0] + "", (s, str(got)[:300]))
    s, got = v.http("GET", "/spend")
    text = json.dumps(got)
    check(T, "no sum of the day is negative", s == 200 and ": -" not in text, text[:500])
    s, got = v.http("GET", "/metrics", root=True)
    check(T, "metrics have no negative or broken numbers", s == 200 and not any(l.split()[-1].startswith("-") or "NaN" in l for l in str(got).splitlines() if l and not l.startswith("#")), [l for l in str(got).splitlines() if " -" in l][:3])
    # Streams without end: of blanks, comments, empty pieces, reasoning, calls, one call's arguments.
    empty, words = json.dumps(chunk({})), json.dumps(chunk({"content": "word " * 2000}))
    for name, raw in {"blank lines": drip(b"", b"\n"), "comments": drip(b"", b": ping\n\n"), "empty pieces": drip(b"", f"data: {empty}\n\n".encode()), "one line": drip(b"data: ", b"x" * 5000), "words": drip(b"", f"data: {words}\n\n".encode(), 0.01), "reasoning": drip(b"", f"data: {json.dumps(chunk({'reasoning_content': 'hm' * 3000}))}\n\n".encode(), 0.01),
                      "arguments": drip(f"data: {json.dumps(chunk(call('{')))}\n\n".encode(), f"data: {json.dumps(chunk({'tool_calls': [{'index': 0, 'function': {'arguments': 'x' * 5000}}]}))}\n\n".encode(), 0.01), "silence": drip(b"", b"", 1), "headers only": Raw(lambda h, _: time.sleep(20))}.items():
        a, job, took = settle(v, name, steps=[raw, "fine"], wait=20000, config={"retry": {"attempts": 1}})
        check(T, f"a stream of {name} without end has one", job.get("status") in ("COMPLETE", "FAILED") and took < 20, (job, took))
        check(T, f"a stream of {name}: its failure says why", job.get("status") != "FAILED" or any(w in job.get("error", "") for w in ("time", "bytes", "long", "end", "reply")), job)
    a = v.agent(["alive"], name="others")
    s, job = v.task(a, wait=5000)
    check(T, "after all of these others are answered", job.get("output") == "alive", job)
    peaks = peak_memory(v)
    check(T, "no process took more than 768 MiB", all(x < 768 for x in peaks.values()), peaks)
