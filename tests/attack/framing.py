"""Attacks the form of requests: bodies of other types and encodings, in chunks without an end or with trailers, headers twice, odd values
of headers, percent-encodings, paths and methods of every kind on every route, queries that are long, many, twice or no UTF-8, and
streams with odd beginnings. Expected: never an error of the server, a refusal is a problem that says what was wrong, one request is
one request, and of a header or key that is there twice none is taken in silence."""

import gzip
import json
import socket
import time
import urllib.parse

from venue import check

T = "framing"
SETS = ["catalog.test=true", "http.body_time=3s", "http.header_time=3s"]
ROUTES = ["/livez", "/readyz", "/metrics", "/.well-known/did.json", "/api/v1/openapi.json", "/api/v1/status", "/api/v1/run", "/api/v1/invoke", "/api/v1/values/read", "/api/v1/jobs", "/api/v1/jobs/ID", "/api/v1/jobs/ID/cancel", "/api/v1/jobs/ID/redrive", "/api/v1/jobs/ID/pause", "/api/v1/jobs/ID/resume", "/api/v1/jobs/ID/delete", "/api/v1/jobs/ID/sse", "/api/v1/agent-schema", "/api/v1/agents", "/api/v1/agents/fr", "/api/v1/agents/fr/suspend", "/api/v1/agents/fr/fork", "/api/v1/agents/fr/sessions", "/api/v1/agents/fr/sessions/s", "/api/v1/agents/fr/sessions/s/fork", "/api/v1/agents/fr/context", "/api/v1/agents/fr/turns", "/api/v1/agents/fr/turns/s/1", "/api/v1/agents/fr/turns/s/1/replay", "/api/v1/timers", "/api/v1/timers/ID", "/api/v1/agents/fr/timers", "/api/v1/approvals", "/api/v1/approvals/ID", "/api/v1/spend", "/api/v1/why", "/api/v1/agents/fr/tasks", "/api/v1/agents/fr/messages", "/api/v1/operations", "/api/v1/operations/v/ops/lattice/read", "/api/v1/adapters/lattice/operations", "/api/v1/assets", "/api/v1/assets/x", "/api/v1/secrets", "/api/v1/secrets/KEY"]


def raw(v, data, wait=2.0, pause=None):
    """All that comes back, and whether the venue has closed."""
    s = socket.create_connection(("127.0.0.1", v.port), 5)
    s.settimeout(wait)
    got, closed = b"", False
    try:
        for part in data if isinstance(data, list) else [data]:
            s.sendall(part)
            if pause:
                time.sleep(pause)
        while True:
            more = s.recv(65536)
            if not more:
                closed = True
                break
            got += more
    except OSError:
        pass
    s.close()
    return got, closed


def code(got):
    return int(got.split(b" ", 2)[1]) if got.startswith(b"HTTP/") else 0


def problem(said):
    """RFC 9457, with a text for people."""
    if not isinstance(said, dict):
        return False
    text = said.get("detail")
    return isinstance(text, str) and len(text) > 8 and said.get("error") == text and isinstance(said.get("status"), int) and not any(w in text for w in ("panicked", "unwrap", "Err(", "Some(", "src/", "serde"))


def attack(v):
    who = {"token": v.issue("acme/ann")} if v.mode == "jwt" else {}
    v.http("PUT", "/agents/fr", {"model": {"provider": "scripted", "name": "echo"}}, **who)
    auth = f"Authorization: Bearer {who['token']}\r\n" if who else ""
    head = f"Host: 127.0.0.1:{v.port}\r\n{auth}"
    types(v, who)
    chunks(v, head)
    twice(v, who, head)
    methods(v, who)
    paths(v, who, head)
    queries(v, who, head)
    values(v, who, head)
    refusals(v, who)
    check(T, "the agent is as it was", v.http("GET", "/agents/fr", **who)[1].get("status") == "SLEEPING", v.http("GET", "/agents/fr", **who))


def types(v, who):
    body = json.dumps({"operation": "v/ops/test/echo", "input": {"x": "é"}})
    for kind in ("text/plain", "text/html", "application/xml", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/octet-stream", "application/json; charset=utf-16", "application/json; charset=latin-1", "application/jsonp", "application/json,text/plain", "json", "", "x" * 5000, "application/json;;;", "APPLICATION/JSON", "application/json; charset=\"utf-8", "application/problem+json", "application/merge-patch+json", "*/*"):
        for path in ("/run", "/invoke", "/agents/fr/tasks"):
            s, said = v.http("POST", path, raw=body.encode() if path != "/agents/fr/tasks" else b'{"input":1}', headers={"content-type": kind}, **who)
            check(T, f"a body of the type {kind[:28]!r} to {path} is taken or refused with a reason", s in (200, 201, 202) or 400 <= s < 500 and problem(said), (s, said))
    for name, data, headers in (("UTF-16", body.encode("utf-16"), {}), ("a byte order mark", b"\xef\xbb\xbf" + body.encode(), {}), ("latin-1", body.replace("\\u00e9", "é").encode("latin-1"), {}), ("gzip", gzip.compress(body.encode()), {"Content-Encoding": "gzip"}), ("gzip without a word", gzip.compress(body.encode()), {}), ("called gzip", body.encode(), {"Content-Encoding": "gzip"}), ("called br", body.encode(), {"Content-Encoding": "br"}), ("called identity", body.encode(), {"Content-Encoding": "identity"}), ("a bomb", gzip.compress(b"x" * 50_000_000), {"Content-Encoding": "gzip"}), ("zeros", b"\0" * 1000, {}), ("one open list", b"[" * 900000, {}), ("a name of 900 KB", b'{"' + b"x" * 900000 + b'":1}', {})):
        t = time.time()
        s, said = v.http("POST", "/run", raw=data, headers=headers, **who)
        ok = name in ("called identity", "a byte order mark", "latin-1", "called gzip", "called br")
        check(T, f"a body that is {name} is refused with a reason at once", (400 <= s < 500 and problem(said) or ok and s == 200) and time.time() - t < 3, (s, str(said)[:300]))
        check(T, f"a body that is {name}: the refusal is no larger than it must", len(json.dumps(said)) < 5000, len(json.dumps(said)))


def chunks(v, head):
    post = f"POST /api/v1/run HTTP/1.1\r\n{head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    body = b'{"operation":"v/ops/test/echo","input":{"x":1}}'
    whole = hex(len(body))[2:].encode() + b"\r\n" + body + b"\r\n0\r\n\r\n"
    got, _ = raw(v, post.encode() + b"Connection: close\r\n\r\n" + whole)
    check(T, "a body in chunks is taken", code(got) == 200 and b'"x":1' in got.replace(b" ", b""), got[:300])
    for name, data, codes in (("with an extension", hex(len(body))[2:].encode() + b";a=b\r\n" + body + b"\r\n0\r\n\r\n", (200, 400)), ("with trailers", whole[:-2] + b"X-Trellis-Owner: evil/eve\r\n\r\n", (200, 400)), ("byte by byte", b"".join(b"1\r\n" + bytes([c]) + b"\r\n" for c in body) + b"0\r\n\r\n", (200,)), ("too short", hex(len(body) + 9)[2:].encode() + b"\r\n" + body + b"\r\n0\r\n\r\n", (400, 408)), ("of 2^64", b"ffffffffffffffff\r\n" + body, (400, 408, 413)), ("of 2^65", b"fffffffffffffffff\r\n" + body, (400, 413)), ("with an extension of 100 KB", b"1;" + b"x" * 100000 + b"\r\n{\r\n0\r\n\r\n", (400, 413, 431)), ("with trailers of 200 KB", whole[:-2] + b"".join(b"X%d: y\r\n" % i for i in range(20000)) + b"\r\n", (200, 400, 413, 431)), ("of 3 MB", b"".join(b"10000\r\n" + b"x" * 65536 + b"\r\n" for _ in range(48)) + b"0\r\n\r\n", (400, 413))):
        t = time.time()
        got, closed = raw(v, post.encode() + b"Connection: close\r\n\r\n" + data, 6)
        check(T, f"chunks {name}: answered or ended in time", (code(got) in codes or closed and not got) and time.time() - t < 7, (code(got), closed, got[:200], time.time() - t))
        check(T, f"alive after chunks {name}", v.http("GET", "/livez", root=True)[0] == 200)
    # Without an end: silent, and dripping for ever.
    for name, parts, pause in (("without an end", [post.encode() + b"\r\n" + b"5\r\n{\"ope"], None), ("that drip", [post.encode() + b"\r\n"] + [b"1\r\n \r\n"] * 30, 0.3), ("of a length that never comes", [post.replace("Transfer-Encoding: chunked", "Content-Length: 500").encode() + b"\r\n{"], None), ("that drip to a length", [post.replace("Transfer-Encoding: chunked", "Content-Length: 500").encode() + b"\r\n"] + [b" "] * 30, 0.3)):
        t = time.time()
        got, closed = raw(v, parts, 8, pause)
        # Who goes on sending is cut off, and may not see the answer.
        check(T, f"a body {name} is answered 408 in its time", (code(got) == 408 or "drip" in name and not got) and time.time() - t < 8, (got[:300], closed, time.time() - t))
        check(T, f"a body {name}: the answer is a problem", b"problem+json" in got and b'"detail"' in got or "drip" in name, got[:400])
    for expect in ("100-continue", "200-ok", "x"):
        got, _ = raw(v, f"POST /api/v1/run HTTP/1.1\r\n{head}Content-Type: application/json\r\nExpect: {expect}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        check(T, f"Expect: {expect} has an answer", b"200 OK" in got or code(got) in (400, 417), got[:200])
    got, _ = raw(v, f"POST /api/v1/run HTTP/1.1\r\n{head}Expect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n".encode(), 5)
    check(T, "who asks to send 100 GB is told no", code(got[got.rfind(b"HTTP/1.1"):]) in (400, 411, 413), got[:300])
    # Many in a row on one connection: as many answers, each its own.
    for n in (50,):
        reqs = b"".join(f"GET /api/v1/values/read?path=w/p{i} HTTP/1.1\r\n{head}{'Connection: close' + chr(13) + chr(10) if i == n - 1 else ''}\r\n".encode() for i in range(n))
        got, _ = raw(v, reqs, 8)
        check(T, f"{n} requests in one go have {n} answers", got.count(b"HTTP/1.1 200") == n, (got.count(b"HTTP/1.1 "), got[:200]))


def twice(v, who, head):
    v.http("POST", "/run", {"operation": "v/ops/lattice/write", "input": {"path": "w/own", "value": "canary-eve"}}, **({"token": v.issue("evil/eve")} if v.mode == "jwt" else {"owner": "evil/eve"}))
    length = lambda b: f"Content-Length: {len(b)}\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{b}"
    read = json.dumps({"operation": "v/ops/lattice/read", "input": {"path": "w/own"}})
    mine = "acme/ann" if v.mode == "jwt" else "local/me"
    for name, headers in {"two owners": f"X-Trellis-Owner: {mine}\r\nX-Trellis-Owner: evil/eve\r\n", "two owners, turned": f"X-Trellis-Owner: evil/eve\r\nX-Trellis-Owner: {mine}\r\n", "owners with a comma": f"X-Trellis-Owner: {mine}, evil/eve\r\n", "an empty owner": "X-Trellis-Owner: \r\n", "an owner and an empty one": f"X-Trellis-Owner: {mine}\r\nX-Trellis-Owner:\r\n", "owner with bytes": "X-Trellis-Owner: a/\xff\xfe\r\n", "owner with a tab": "X-Trellis-Owner: a/\tb\r\n", "two types": "Content-Type: text/plain\r\n"}.items():
        got, _ = raw(v, f"POST /api/v1/run HTTP/1.1\r\n{head}{headers}{length(read)}".encode("latin-1"))
        check(T, f"{name}: refused, or her own alone", code(got) in (200, 400, 401, 403) and (b"canary-eve" not in got), got[-300:])
        if name.startswith("two owners"):
            check(T, f"{name}: neither is taken in silence", code(got) in (400, 401, 403), got[:200])
    task = '{"input":1}'
    for name, headers in {"two keys": "Idempotency-Key: a1\r\nIdempotency-Key: a2\r\n", "a key twice": "Idempotency-Key: a3\r\nIdempotency-Key: a3\r\n", "key with bytes": "Idempotency-Key: \xff\xfe\r\n", "an empty key": "Idempotency-Key:\r\n", "key with quotes": 'Idempotency-Key: "q"\r\n', "key with a comma": "Idempotency-Key: a,b\r\n", "key with a tab": "Idempotency-Key: a\tb\r\n"}.items():
        for path, b in (("/api/v1/agents/fr/tasks", task), ("/api/v1/agents/fr/messages", task), ("/api/v1/agents/fr/timers", '{"input":1,"after":"20m"}'), ("/api/v1/invoke", '{"operation":"v/ops/test/echo"}')):
            got, _ = raw(v, f"POST {path} HTTP/1.1\r\n{head}{headers}{length(b)}".encode("latin-1"))
            check(T, f"{name} to {path[-8:]}: taken or refused with a reason", code(got) in (200, 201, 202) or 400 <= code(got) < 500 and b'"detail"' in got, got[:300])
            if name == "two keys":
                check(T, f"two keys to {path[-8:]}: neither is taken in silence", code(got) == 400, got[-300:])
    if v.mode == "jwt":
        t, e = who["token"], v.issue("evil/eve")
        for name, headers in {"two tokens": f"Authorization: Bearer {t}\r\nAuthorization: Bearer {e}\r\n", "two tokens, turned": f"Authorization: Bearer {e}\r\nAuthorization: Bearer {t}\r\n", "one twice": f"Authorization: Bearer {t}\r\nAuthorization: Bearer {t}\r\n", "a token and Basic": f"Authorization: Basic YTpi\r\nAuthorization: Bearer {e}\r\n", "with bytes": "Authorization: Bearer \xff\xfe\r\n", "as a proxy": f"Proxy-Authorization: Bearer {e}\r\n", "as a cookie": f"Cookie: token={e}; Authorization=Bearer {e}\r\n", "in the query": ""}.items():
            got, _ = raw(v, f"POST /api/v1/run{'?token=' + e + '&access_token=' + e if 'query' in name else ''} HTTP/1.1\r\nHost: 127.0.0.1:{v.port}\r\n{headers}{length(read)}".encode("latin-1"))
            check(T, f"{name}: nobody's data", code(got) in (400, 401, 403) and b"canary" not in got, (name, got[:300]))
    for name, b in {"operation": '{"operation":"v/ops/test/echo","operation":"v/ops/lattice/read","input":{"path":"w/own"}}', "escaped": '{"operation":"v/ops/test/echo","oper\\u0061tion":"v/ops/lattice/read","input":{}}', "input deep": '{"operation":"v/ops/test/echo","input":{"a":{"b":1,"b":2}}}', "by case": '{"operation":"v/ops/test/echo","Operation":"x"}'}.items():
        got, _ = raw(v, f"POST /api/v1/run HTTP/1.1\r\n{head}{length(b)}".encode())
        check(T, f"a key twice in a body ({name}) is refused", code(got) == 400 and b'"detail"' in got, got[:300])


def methods(v, who):
    for route in ROUTES:
        path = route.replace("ID", "0" * 32)
        s, _ = v.http("GET", path, root=True, timeout=5, **who)
        h, text = v.http("HEAD", path, root=True, timeout=5, **who)
        check(T, f"HEAD {route} is as GET, without a body", (h == s or h == 405) and not text, (s, h, text))
        for method in ("OPTIONS", "TRACE", "CONNECT", "PATCH", "DELETE", "PUT", "QUERY", "LOCK"):
            if (method, route) in (("DELETE", "/api/v1/agents/fr"), ("PATCH", "/api/v1/agents/fr"), ("PUT", "/api/v1/agents/fr"), ("PUT", "/api/v1/agents/fr/suspend")) or method == "CONNECT":
                continue
            s, said = v.http(method, path, root=True, timeout=5, **who)
            check(T, f"{method} {route} is no error of the server", s in (200, 204) or 400 <= s < 500, (s, said))
            if s == 405:
                check(T, f"{method} {route}: the refusal says what is allowed", v.headers.get("allow") and (problem(said) or method == "OPTIONS"), (v.headers, said))
        for form in (path + "/", "/" + path, path.replace("/api/v1", "/api/v1/"), path + "/.", path + "//", path.replace("/api", "/API"), path + ";x=1", path + "%00", path + "%2f", "/x/.." + path, path + "/../x"):
            s, said = v.http("GET", form, root=True, timeout=5, **who)
            check(T, f"GET {form[:60]} is no error of the server, and refused as a problem", s == 200 or 400 <= s < 500 and (problem(said) or not said and s == 405), (s, str(said)[:200]))


def paths(v, who, head):
    v.write("w/é", "umlaut", **who)
    for p in ("%6Aobs", "jobs%2F" + "0" * 32, "jobs/%", "jobs/%zz", "jobs/%u0041", "agents/%c0%af", "agents/%ff", "agents/%ed%a0%80", "agents/fr%00", "agents/fr%0d%0aX: y", "agents/fr%2Fsessions", "agents/%66%72", "agents/fr%20", "agents/%252e", "agents/..%2f..%2fjobs", "values/read?path=w/%c3%a9", "values/read?path=w/%e9", "values/read?path=w%2f%c3%a9", "values/read?path=w/%C3%A9", "values/read?path=%", "values/read?path=w/%zz", "values/read?path=w+x", "operations/v%2Fops%2Flattice%2Fread", "operations/..", "operations/%ff", "assets/%ff", "assets/../secrets", "secrets/%00", "secrets/%2e%2e", "turns", "agents/fr/turns/s/0", "agents/fr/turns/s/-1", "agents/fr/turns/s/1e3", "agents/fr/turns/s/99999999999999999999999", "agents/fr/turns/s/%31"):
        got, _ = raw(v, f"GET /api/v1/{p} HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode("latin-1"))
        s = code(got)
        check(T, f"GET {p[:40]} is no error of the server", s == 200 or 400 <= s < 500, got[:300])
        if s >= 400:
            check(T, f"GET {p[:40]}: a problem with a text", b"problem+json" in got and b'"detail"' in got or s in (400, 414) and got.endswith(b"\r\n\r\n"), got[:300])
        check(T, f"GET {p[:40]} puts nothing into headers", b"\r\nX: y" not in got.split(b"\r\n\r\n")[0], got[:300])
    for p in (b"/api/v1/agents/\xff\xfe", b"/api/v1/agents/\xc3\xa9", b"/api/v1/values/read?path=w/\xc3\xa9", b"/api/v1/jobs?q=\xff", b"/api/v1/jobs?q=<script>", b"/api/v1/jobs?q=\"", b"/api/v1/jobs#x", b"api/v1/jobs", b"*", b"http://127.0.0.1/api/v1/jobs", b"//127.0.0.1/api/v1/jobs", b"?x", b""):
        got, closed = raw(v, b"GET " + p + b" HTTP/1.1\r\n" + head.encode() + b"Connection: close\r\n\r\n")
        check(T, f"the raw target {p!r} has an answer or an end", code(got) in (200,) or 400 <= code(got) < 500 or closed, got[:300])


def queries(v, who, head):
    for name, q in {"60 KB": "q=" + "x" * 60000, "200 KB": "q=" + "x" * 200000, "30,000 names": "&".join("a" for _ in range(30000)), "100,000 names": "&".join(f"a{i}=1" for i in range(100000)), "30,000 amps": "&" * 30000, "20,000 of one": "&".join("q=x" for _ in range(15000)), "20,000 percents": "q=" + "%41" * 20000}.items():
        for path in ("/jobs", "/values/read", "/why", "/agents/fr/turns"):
            t = time.time()
            s, said = v.http("GET", f"{path}?{q}", timeout=20, **who)
            check(T, f"{path} with a query of {name} is answered at once", (s == 200 or 400 <= s < 500) and time.time() - t < 3, (s, str(said)[:200], time.time() - t))
    for q in ("limit=1&limit=2", "status=FAILED&status=COMPLETE", "details=true&details=false", "q=a&q=b", "agent=fr&agent=other", "since=1&since=2", "cursor=&cursor=", "limit=%31", "LIMIT=1", "limit=1;offset=2", "limit[]=1", "limit=+1", "limit=0x10", "limit=1.0", "limit=١", "limit= 1", "limit=%201", "limit=1%00", "details", "details=", "details=TRUE", "details=1", "limit=", "limit", "=1", "&&", "?limit=1", "limit=1#x", "q=%ff%fe", "q=%00", "q=%F0%9F%98%80", "agent=%ff", "session=%ff", "session=%00"):
        s, said = v.http("GET", "/jobs?" + urllib.parse.quote(q, safe="%&=;[]+#?"), **who)
        check(T, f"jobs?{q} is answered or refused with a reason", s == 200 or s == 400 and problem(said), (s, str(said)[:300]))
        if q in ("limit=1&limit=2", "status=FAILED&status=COMPLETE", "details=true&details=false", "agent=fr&agent=other", "since=1&since=2"):
            check(T, f"jobs?{q}: neither is taken in silence", s == 400, (s, str(said)[:300]))
    for q in ("path=w&path=g", "path=w/x&path=w/y"):
        s, said = v.http("GET", "/values/read?" + q, **who)
        check(T, f"values/read?{q}: neither is taken in silence", s == 400 and problem(said), (s, said))


def values(v, who, head):
    s, asset = v.http("POST", "/assets", {"content": "0123456789" * 100}, **who)
    for h in ("Range: bytes=0-", "Range: bytes=-5", "Range: bytes=5-2", "Range: bytes=" + ",".join(f"{i}-{i}" for i in range(2000)), "Range: bytes=0-99999999999999999999", "Range: items=1-2", "If-None-Match: *", "If-None-Match: \"" + str(asset) + "\"", "If-Modified-Since: x", "If-Match: x", "Accept: text/html", "Accept: application/xml;q=1", "Accept: ", "Accept: " + "a/b," * 3000, "Accept-Encoding: gzip, br, zstd", "Accept-Language: " + "x" * 3000, "Accept-Charset: utf-16", "TE: trailers", "Connection: x-trellis-owner", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-Host: evil.example", "X-HTTP-Method-Override: DELETE", "X-Original-URL: /api/v1/secrets", "Forwarded: for=1;host=evil", "Last-Event-ID: x", "Last-Event-ID: 99999999999999999999999", "traceparent: x", "Date: x", "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13", "Sec-Fetch-Site: cross-site", "X-Trellis-Task: x"):
        for path in (f"/api/v1/assets/{asset}/content", "/api/v1/agents/fr"):
            got, _ = raw(v, f"GET {path} HTTP/1.1\r\n{head}{h}\r\n{'' if 'onnection:' in h else 'Connection: close' + chr(13) + chr(10)}\r\n".encode(), 1.2)
            s = code(got)
            check(T, f"{h[:30]} on {path[8:14]} is no error of the server", s in (200, 206, 304) or 400 <= s < 500, got[:200])
            check(T, f"{h[:30]} on {path[8:14]} is no other request", b"evil" not in got and (s != 200 or b"0123456789" in got or b'"fr"' in got), got[:300])
    s, j = v.http("POST", "/agents/fr/tasks?wait=4000", {"input": 1}, **who)
    for h in ("Last-Event-ID: 0", "Last-Event-ID: -1", "Last-Event-ID: x", "Last-Event-ID: 999999999999999999999999", "Last-Event-ID: \xff", "Accept: application/json", "Last-Event-ID: " + "9" * 5000):
        got, closed = raw(v, f"GET /api/v1/jobs/{j['job']}/sse HTTP/1.1\r\n{head}{h}\r\n\r\n".encode("latin-1"), 2)
        check(T, f"the stream of an ended job with {h[:20]!r} has its end, or a reason", code(got) == 200 and b"COMPLETE" in got or code(got) in (400, 406), got[:300])


def refusals(v, who):
    """A refusal says what was wrong, and not all of it."""
    x = "x" * 300000
    run = lambda op, **input: ("POST", "/run", {"operation": op, "input": input})
    for name, (method, path, body) in {"an operation": run(x), "an operation to invoke": ("POST", "/invoke", {"operation": "v/ops/" + x}), "a path": run("v/ops/lattice/read", path="w/" + x), "an argument": run("v/ops/lattice/read", path="w", **{x: 1}), "a choice": run("v/ops/job/bulk", action=x), "a state": run("v/ops/job/bulk", action="cancel", dryRun=True, status=[x]), "a code": run("v/ops/job/bulk", action="cancel", dryRun=True, code=[x + " "]), "a schedule": ("POST", "/agents/fr/timers", {"input": 1, "cron": x}), "a zone": ("POST", "/agents/fr/timers", {"input": 1, "at": "2027-01-01T00:00:00", "timezone": x}), "a grant": ("POST", "/agents/fr/tasks", {"input": 1, "context": [{"with": x, "can": "crud/read"}]}), "a definition": run("v/ops/agent/create", agentId="q", definition=x), "a host": run("v/ops/http/get", url="http://" + x), "a queue": run("v/ops/queue/publish", queue=x, input=1), "an inbox": ("POST", "/agents/fr/tasks", {"input": 1, "replyTo": x}), "a revocation": run("v/ops/policy/restore", id=x), "a session": ("POST", "/agents/fr/tasks", {"input": 1, "sessionId": x}), "a secret": run("v/ops/secret/set", name=x, value="12345678"), "a key of a file": ("PUT", "/agents/zz", {x: 1}), "a key of a submission": ("POST", "/agents/fr/tasks", {x: 1}), "an asset": run("v/ops/asset/get", id=x), "a job": run("v/ops/job/result", id=x)}.items():
        s, said = v.http(method, path, body, **who)
        check(T, f"{name} of 300 KB is refused with a reason", 400 <= s < 500 and problem(said), (s, str(said)[:200]))
        check(T, f"the refusal of {name} is shorter than it", len(json.dumps(said)) < 20000, len(json.dumps(said)))
