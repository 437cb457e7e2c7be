"""Attacks the counting of money and the way to models: replies that end in every way without usage or with usage that lies, streams that are read
and cut, cancelled and killed calls, fallbacks over caps and without prices, retries; headers, keys and URLs that carry another owner's secret or one
for other hosts, headers that smuggle. Expected: a call that began is charged, caps of each kind hold, no secret goes where it may not."""

import base64
import json
import os
import re
import tempfile
import time

from venue import Raw, check

T = "charged"
KEYS = tempfile.NamedTemporaryFile("w", suffix=".keys")
KEYS.write("0a1b2c3d:" + base64.b64encode(os.urandom(32)).decode() + "\n")
KEYS.flush()
SETS = [f"secrets.key_file={KEYS.name}", "models.timeout=2s", "retry.first=100ms", "retry.total=1s", "spend.owners=acme/cap:tokens=4000, acme/capb:tokens=4000, acme/capc:tokens=4000, acme/capd:tokens=4000, acme/cape:tokens=4000",
        "spend.user=tokens=60000", "worker.lease=3s"]


def owner(v, name):
    return {"token": v.issue("acme/" + name)} if v.mode == "jwt" else {"owner": "acme/" + name}


def spent(v, who):
    s, said = v.http("GET", "/spend", **who)
    x = said.get("spent") or {}
    return x.get("input", 0) + x.get("output", 0), said


def capped(v, who):
    """What the cap of the owner says is used and held."""
    s, said = v.http("GET", "/spend", **who)
    cap = next((c for c in said.get("caps", []) if "owner" in json.dumps(c)), {})
    text = json.dumps(cap)
    return cap, text


def sse(*chunks, end=b"data: [DONE]\n\n", status=200, close=False, wait=0):
    def send(h, body):
        h.send_response(status)
        h.send_header("content-type", "text/event-stream")
        h.send_header("connection", "close")
        h.end_headers()
        h.close_connection = True
        try:
            for c in chunks:
                h.wfile.write(b"data: " + (c if isinstance(c, bytes) else json.dumps(c).encode()) + b"\n\n")
                h.wfile.flush()
                time.sleep(wait)
            h.wfile.write(end)
            h.wfile.flush()
            if close:
                h.connection.shutdown(2)
        except OSError:
            pass
    return Raw(send)


def delta(text=None, finish=None, usage=None, **more):
    return {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", **({"content": text} if text is not None else {}), **more}, "finish_reason": finish}], **({"usage": usage} if usage is not None else {})}


def hang(h, body):
    h.send_response(200)
    h.send_header("content-type", "text/event-stream")
    h.end_headers()
    h.close_connection = True
    try:
        for _ in range(40):
            h.wfile.write(b"data: " + json.dumps(delta("word " * 40)).encode() + b"\n\n")
            h.wfile.flush()
            time.sleep(0.1)
    except OSError:
        pass


LONG = "word " * 400
ENDS = {
    "no usage": sse(delta(LONG), delta("", "stop")),
    "usage of nothing": sse(delta(LONG), delta("", "stop", {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0})),
    "usage null": sse(delta(LONG), delta("", "stop", None)),
    "negative usage": sse(delta(LONG), b'{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":-5000,"completion_tokens":-5000,"total_tokens":-10000}}'),
    "usage of texts": sse(delta(LONG), b'{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":"9","completion_tokens":"9"}}'),
    "usage in floats": sse(delta(LONG), b'{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":10.5,"completion_tokens":1e-400}}'),
    "usage beyond numbers": sse(delta(LONG), b'{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":99999999999999999999999,"completion_tokens":5}}'),
    "cached more than prompt": sse(delta(LONG), delta("", "stop", {"prompt_tokens": 100, "completion_tokens": 50, "prompt_tokens_details": {"cached_tokens": 100000}})),
    "a refusal": sse(delta(None, refusal="I can't " * 100), delta("", "stop", {"prompt_tokens": 700, "completion_tokens": 300, "total_tokens": 1000})),
    "a content filter": sse(delta(LONG), delta("", "content_filter", {"prompt_tokens": 700, "completion_tokens": 300, "total_tokens": 1000})),
    "a cut stream": sse(delta(LONG), end=b"data: {\"id", close=True),
    "a stream without an end": sse(delta(LONG), end=b""),
    "an error in the stream": sse(delta(LONG), {"error": {"message": "overloaded", "type": "server_error"}}),
    "garbage behind text": sse(delta(LONG), b"{not json"),
    "a slow stream": Raw(hang),
    "an unknown end": sse(delta(LONG), delta("", "MALFORMED_FUNCTION_CALL", {"prompt_tokens": 700, "completion_tokens": 300})),
    "usage first, then cut": sse(delta(LONG, None, {"prompt_tokens": 700, "completion_tokens": 300}), end=b"", close=True),
    "empty text": sse(delta("", "stop", {"prompt_tokens": 700, "completion_tokens": 300})),
    "two usages": sse(delta(LONG, None, {"prompt_tokens": 700, "completion_tokens": 300}), delta("", "stop", {"prompt_tokens": 1, "completion_tokens": 1})),
}
FREE = {"429": 429, "500": 500, "503": 503, "404": 404, "400": 400, "401": 401, "302": 302}


def status(n):
    def send(h, body):
        h.send_response(n)
        h.send_header("content-length", "2")
        if n == 302:
            h.send_header("location", "http://169.254.169.254/")
        h.end_headers()
        h.wfile.write(b"{}")
    return Raw(send)


def attack(v):
    ends(v)
    caps(v)
    stopped(v)
    secrets(v)
    headers(v)
    fallbacks(v)


def ends(v):
    for name, reply in ENDS.items():
        who = owner(v, "end-" + name.replace(" ", "-").replace(",", ""))
        agent = v.agent([reply], {"retry": {"attempts": 1}}, **who)
        s, job = v.http("POST", f"/agents/{agent}/tasks?wait=9000", {"input": "go"}, **who)
        calls = len(v.model.seen.get(v.last_model, []))
        n, said = spent(v, who)
        need = 1 if name in ("two usages", "cached more than prompt") else 900 if name in ("a refusal", "a content filter", "an unknown end", "empty text", "usage first, then cut") else 300
        check(T, f"a call that ends with {name} is charged", need <= n <= 100000 * max(1, calls), (n, calls, job, said.get("spent")))
    for name, n in FREE.items():
        who = owner(v, "free" + name)
        agent = v.agent([status(n)], {"retry": {"attempts": 1}}, **who)
        s, job = v.http("POST", f"/agents/{agent}/tasks?wait=4000", {"input": "go"}, **who)
        check(T, f"a call that is answered {name} costs nothing", spent(v, who)[0] == 0, (spent(v, who)[0], job))


def caps(v):
    """4,000 tokens a day, in calls of which no usage comes; the bytes that the model was sent and wrote are what is billed."""
    for who_name, reply, config in (("cap", ENDS["no usage"], {}), ("capb", ENDS["a cut stream"], {"retry": {"attempts": 9}}), ("capc", ENDS["a slow stream"], {"retry": {"attempts": 9}}), ("capd", ENDS["usage of nothing"], {}), ("cape", ENDS["negative usage"], {})):
        who = owner(v, who_name)
        agent = v.agent([reply], config, **who)
        model = v.last_model
        v.http("PATCH", f"/agents/{agent}", {"config": {"model": {"provider": "local", "name": model, "maxTokens": 600}}}, **who)
        for i in range(16):
            s, job = v.http("POST", f"/agents/{agent}/tasks?wait=5000", {"input": f"go {i}"}, **who)
            if "cap of" in str(job.get("error")):
                break
        seen = v.model.seen.get(model, [])
        billed = sum(len(json.dumps(b)) / 6 + 400 for b in seen)
        check(T, f"a cap of 4,000 ends {who_name} by LIMIT_REACHED", job.get("errorCode") == "LIMIT_REACHED", (len(seen), job))
        check(T, f"and {who_name} had no more than its calls could be", len(seen) <= 8, (len(seen), billed))


def stopped(v):
    """Calls that are cancelled and killed while their text is read."""
    import killed
    for how in ("cancel", "delete-session", "suspend and cancel", "kill"):
        who = owner(v, "stop-" + how.replace(" ", "-"))
        agent = v.agent([ENDS["a slow stream"]], {"retry": {"attempts": 1}}, **who)
        s, job = v.http("POST", f"/agents/{agent}/tasks", {"input": "go", "sessionId": "s"}, **who)
        for _ in range(40):
            if v.model.seen.get(v.last_model):
                break
            time.sleep(0.1)
        time.sleep(0.7)
        if how == "kill":
            killed.kill(v)
        elif how == "delete-session":
            v.run("agent/delete-session", {"agentId": agent, "sessionId": "s"}, **who)
        else:
            if "suspend" in how:
                v.http("PUT", f"/agents/{agent}/suspend", {}, **who)
            v.http("PUT", f"/jobs/{job['job']}/cancel", {}, **who)
        for _ in range(20):
            n, said = spent(v, who)
            caps_ = json.dumps(said.get("caps", []))
            if n >= 100:
                break
            time.sleep(1)
        used = [c.get("tokens", {}).get("used", 0) + c.get("tokens", {}).get("held", 0) if isinstance(c.get("tokens"), dict) else 0 for c in said.get("caps", [])]
        check(T, f"a call that ended by {how} is in the sum or the caps", n >= 100 or any(u >= 100 for u in used) or '"used"' in caps_ and any(int(x) >= 100 for x in re.findall(r'"(?:used|held)[^0-9]*(\d+)', caps_)), said)


def secrets(v):
    ann, bob = owner(v, "sec"), owner(v, "bob")
    value = "topsecret-value-1234"
    s, said = v.http("PUT", "/secrets/KEY", {"value": value, "hosts": ["api.example.invalid", f"127.0.0.1:{v.model.port}"]}, **bob)
    s2, said2 = v.http("PUT", "/secrets/MINE", {"value": "mine-" + value, "hosts": ["api.example.invalid"]}, **ann)
    check(T, "secrets are stored", s < 300 and s2 < 300, (said, said2))
    n = len(v.model.seen)
    for name, model in {"as key": {"key": "s/KEY"}, "as key of a base URL": {"key": "s/KEY", "baseUrl": f"http://127.0.0.1:{v.model.port}/v1/"}, "as a header": {"headers": {"X-A": {"$secret": "s/KEY"}}}, "by the owner's path": {"headers": {"X-A": {"$secret": "acme/bob/s/KEY"}}}, "by a rooted path": {"key": "/acme/bob/s/KEY"}, "by dots": {"key": "s/../../bob/s/KEY"}, "in a fallback": {"fallback": [{"provider": "local", "name": "x", "key": "s/KEY"}]}, "in a fallback's header": {"fallback": [{"provider": "local", "name": "x", "headers": {"X-B": {"$secret": "s/KEY"}}}]}, "in extra": {"extra": {"k": {"$secret": "s/KEY"}}}, "in a name": {"name": "{$secret:s/KEY}"}}.items():
        s, said = v.http("PUT", "/agents/thief", {"model": {"provider": "local", "name": "thief", **model}, "retry": {"attempts": 1}}, **ann)
        v.model.says("thief", ["ok"])
        v.model.says("x", ["ok"])
        s2, job = v.http("POST", "/agents/thief/tasks?wait=2500", {"input": 1}, **ann) if s < 300 else (0, {})
        text = json.dumps([v.model.seen.get("thief"), v.model.seen.get("x"), said, job])
        check(T, f"another owner's secret {name} goes nowhere", value not in text, text[:400])
        check(T, f"another owner's secret {name} is no error of the server", s < 500 and s2 < 500, (s, said, s2, job))
        v.http("DELETE", "/agents/thief?remove=true", **ann)
    for name, model in {"to another host": {"provider": "local", "name": "thief", "headers": {"X-A": {"$secret": "s/MINE"}}}, "as key to another host": {"provider": "local", "name": "thief", "key": "s/MINE"}, "with a base URL": {"provider": "openai", "name": "thief", "key": "s/MINE", "baseUrl": f"http://127.0.0.1:{v.model.port}/v1/"}}.items():
        heads = []
        s, said = v.http("PUT", "/agents/thief", {"model": model, "retry": {"attempts": 1}}, **ann)
        v.model.says("thief", [Raw(lambda h, b: (heads.append(dict(h.headers)), ENDS["no usage"].send(h, b)))])
        s2, job = v.http("POST", "/agents/thief/tasks?wait=3000", {"input": 1}, **ann) if s < 300 else (0, {})
        check(T, f"one's own secret {name} goes nowhere", value not in json.dumps([heads, said, job]), (heads, job))
        v.http("DELETE", "/agents/thief?remove=true", **ann)
    if v.mode == "jwt":
        for what, att in {"without secret/use": ["g:*"], "with another's": ["g:*", "s/OTHER:secret/use"]}.items():
            t = v.issue("acme/sec", att)
            for model in ({"key": "s/MINE"}, {"headers": {"A": {"$secret": "s/MINE"}}}, {"fallback": [{"provider": "local", "name": "x", "key": "s/MINE"}]}, {"fallback": [{"provider": "local", "name": "x", "headers": {"A": {"$secret": "s/MINE"}}}]}):
                s, said = v.http("PUT", "/agents/thief", {"model": {"provider": "local", "name": "thief", **model}}, token=t)
                check(T, f"who is {what} applies no agent with {str(model)[:30]}", s in (401, 403), (s, said))
    check(T, "no log has a value", value not in v.log())


def headers(v):
    who = owner(v, "head")
    bad = ["Host", "Content-Length", "Connection", "Transfer-Encoding", "Proxy-Authorization", "Proxy-Connection", "Authorization", "authorization", "X-Api-Key", "Api-Key", "x-goog-api-key", "Content-Type", "Accept", "Anthropic-Version", "Cookie", "TE", "Upgrade", "Keep-Alive", "Trailer", "Expect", "A\r\nB", "A:B", "A B", "", "é", "\u0000", "A\n", ":authority", "(x)", "x" * 300]
    for name in bad:
        s, said = v.http("PUT", "/agents/head", {"model": {"provider": "local", "name": "m", "headers": {name: "x"}}}, **who)
        check(T, f"a header {name[:20]!r} is refused with a reason", s == 400 and len(json.dumps(said)) > 40, (s, said))
    for value in ("a\r\nHost: evil", "a\nb", "a\u0000b", "a\rb", "\u2028", 5, None, ["x"], {}, {"$secret": 5}, {"$secret": "w/x"}, {"$secret": "s/X", "prefix": "a\r\nB: c"}, {"$secret": "s/X", "prefix": 5}, {"$secret": "s/X", "more": 1}, "x" * 100000):
        s, said = v.http("PUT", "/agents/head", {"model": {"provider": "local", "name": "m", "headers": {"X-A": value}}}, **who)
        check(T, f"a header's value {str(value)[:30]!r} is refused with a reason", 400 <= s < 500 and len(json.dumps(said)) > 40, (s, said))
    s, said = v.http("PUT", "/agents/head", {"model": {"provider": "local", "name": "m", "headers": {f"X-{i}": "x" for i in range(17)}}}, **who)
    check(T, "seventeen headers are refused", s == 400, (s, said))
    for extra in ({"model": "other"}, {"messages": []}, {"max_tokens": 10**9}, {"stream": False}, {"tools": []}, {"max_completion_tokens": 10**9}, {"n": 50}, {"stream_options": {"include_usage": False}}, {"Model": "x"}, {"tool_choice": "none"}):
        s, said = v.http("PUT", "/agents/head", {"model": {"provider": "local", "name": "head", "maxTokens": 50, "extra": extra}}, **who)
        v.model.says("head", ["ok"])
        s2, job = v.http("POST", "/agents/head/tasks?wait=3000", {"input": "hello-there"}, **who) if s < 300 else (0, {})
        seen = v.model.seen.get("head", [])
        ok = s == 400 or seen and seen[-1].get("model") == "head" and "hello-there" in json.dumps(seen[-1]["messages"]) and seen[-1].get("max_tokens", seen[-1].get("max_completion_tokens")) in (50, None) and seen[-1].get("n") in (None, 1)
        check(T, f"extra {json.dumps(extra)[:40]} is refused or takes nothing over", ok, (s, said, str(seen)[:200]))


def fallbacks(v):
    who = owner(v, "fall")
    v.model.says("down", [status(503)])
    v.model.says("up2", ["from the second"])
    v.model.says("refuses", [ENDS["a refusal"]])
    for name, model, want in (("unavailable", "down", "from the second"), ("a refusal", "refuses", None)):
        s, said = v.http("PUT", "/agents/fall", {"model": {"provider": "local", "name": model, "fallback": ["local/up2"]}, "retry": {"attempts": 1}}, **who)
        before = len(v.model.seen["up2"])
        s, job = v.http("POST", "/agents/fall/tasks?wait=5000", {"input": 1}, **who)
        check(T, f"behind {name} the next is {'asked' if want else 'not asked'}", (job.get("output") == want) if want else len(v.model.seen["up2"]) == before, job)
    for fallback in ([{"provider": "local", "name": "x", "fallback": ["local/y"]}], ["local/a"] * 5, ["nobody/x"], [5], [None], [{}], ["/"], ["local/"], [{"provider": "local"}], {"provider": "local", "name": "x"}):
        s, said = v.http("PUT", "/agents/fall", {"model": {"provider": "local", "name": "down", "fallback": fallback}}, **who)
        check(T, f"the fallback {str(fallback)[:50]} is refused with a reason, or taken with a warning", s == 400 and len(json.dumps(said)) > 40 or s < 300 and (said.get("warnings")), (s, said))
    who = owner(v, "cap")
    v.model.says("up3", ["paid"])
    v.http("PUT", "/agents/fall", {"model": {"provider": "local", "name": "down", "maxTokens": 600, "fallback": [{"provider": "local", "name": "up3", "maxTokens": 600}]}, "retry": {"attempts": 1}}, **who)
    s, job = v.http("POST", "/agents/fall/tasks?wait=5000", {"input": 1}, **who)
    check(T, "a fallback passes no cap of the owner", not v.model.seen.get("up3"), job)
