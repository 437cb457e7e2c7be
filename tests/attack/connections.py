"""Attacks the HTTP server with connections and bytes: half-open ones, slow headers and bodies, requests smuggled into each other, headers
too long or too many, other hosts and origins (a page in a browser), methods that are none, bodies on requests that have none, and
descriptors. Expected: the API answers others meanwhile, an illegal request is refused, and no request is read as two."""

import json
import socket
import time

from venue import check

T = "connections"


def raw(v, data, wait=3.0, close=False):
    s = socket.create_connection(("127.0.0.1", v.port), 3)
    s.settimeout(wait)
    got = b""
    try:
        s.sendall(data)
        while True:
            more = s.recv(65536)
            if not more:
                break
            got += more
    except OSError:
        pass
    s.close()
    return got


def attack(v):
    host = f"Host: 127.0.0.1:{v.port}\r\n"
    v.write("w/c", "canary-con")
    # Hosts and origins that a page in a browser would send to loopback.
    for h in ("evil.example", "evil.example:%d" % v.port, "127.0.0.1.evil.example", "localhost.evil.example", "", "[::1].evil", "169.254.169.254", "127.0.0.1@evil.example", "evil.example#127.0.0.1", "0.0.0.0.evil", "127.0.0.1:1@x"):
        s, said = v.http("GET", "/values/read?path=w/c", headers={"Host": h})
        check(T, f"the host {h!r} is not served", 400 <= s < 500 and "canary" not in json.dumps(said), (s, said))
    for origin in ("http://evil.example", "null", "http://127.0.0.1.evil.example", "https://localhost.evil", "http://evil.example:%d" % v.port, "file://", "http://127.0.0.1@evil.example", "chrome-extension://x", "http://localhost:1\u00a0", "http://2130706433.evil", ""):
        for method, path, body in (("GET", "/values/read?path=w/c", None), ("POST", "/run", {"operation": "v/ops/lattice/write", "input": {"path": "w/o", "value": 1}})):
            s, said = v.http(method, path, body, headers={"Origin": origin})
            check(T, f"the origin {origin!r} is not served ({method})", (400 <= s < 500 and "canary" not in json.dumps(said)) or origin == "" , (s, said))
            check(T, f"no access is allowed to {origin!r}", "access-control-allow-origin" not in v.headers, v.headers)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        s, said = v.http("POST", "/run", {"operation": "v/ops/lattice/write", "input": {"path": "w/form", "value": 1}}, headers={"content-type": kind, "Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"})
        check(T, f"a form of another site ({kind}) writes nothing", 400 <= s < 500, (s, said))
    # Bodies that the next request could be.
    inner = f"GET /api/v1/values/read?path=w/c HTTP/1.1\r\n{host}\r\n"
    for name, data in {"two lengths": f"POST /api/v1/run HTTP/1.1\r\n{host}Content-Length: 2\r\nContent-Length: {len(inner)+2}\r\n\r\n{{}}{inner}", "length and chunked": f"POST /api/v1/run HTTP/1.1\r\n{host}Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}", "chunked twice": f"POST /api/v1/run HTTP/1.1\r\n{host}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{inner}", "space before colon": f"POST /api/v1/run HTTP/1.1\r\n{host}Content-Length : 5\r\n\r\n{inner}", "folded": f"POST /api/v1/run HTTP/1.1\r\n{host}X: a\r\n Content-Length: 5\r\n\r\n{inner}", "plus": f"POST /api/v1/run HTTP/1.1\r\n{host}Content-Length: +2\r\n\r\n{{}}{inner}", "hex": f"POST /api/v1/run HTTP/1.1\r\n{host}Content-Length: 0x2\r\n\r\n{{}}{inner}", "negative": f"POST /api/v1/run HTTP/1.1\r\n{host}Content-Length: -1\r\n\r\n{inner}", "huge": f"POST /api/v1/run HTTP/1.1\r\n{host}Content-Length: 99999999999999999999999\r\n\r\n{inner}", "bare lf chunk": f"POST /api/v1/run HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n2\n{{}}\n0\n\n{inner}", "bad chunk": f"POST /api/v1/run HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\nzz\r\n{inner}", "chunk of minus": f"POST /api/v1/run HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n-1\r\n{inner}", "two hosts": f"GET /api/v1/values/read?path=w/c HTTP/1.1\r\n{host}Host: evil\r\n\r\n", "no host": "GET /api/v1/values/read?path=w/c HTTP/1.1\r\n\r\n", "absolute of another": f"GET http://evil.example/api/v1/values/read?path=w/c HTTP/1.1\r\n{host}\r\n", "HTTP/0.9": "GET /api/v1/values/read?path=w/c\r\n\r\n", "HTTP/9": f"GET /api/v1/values/read?path=w/c HTTP/9.9\r\n{host}\r\n", "bare CR": f"GET /api/v1/values/read?path=w/c HTTP/1.1\rHost: x\r\r", "NUL": f"GET /api/v1/values/read?path=w/c\0 HTTP/1.1\r\n{host}\r\n", "upgrade": f"GET /api/v1/status HTTP/1.1\r\n{host}Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", "TLS": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + "x" * 50, "h2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}.items():
        got = raw(v, data.encode("latin-1"), 1.0)
        smuggled = got.count(b"canary-con")
        check(T, f"{name}: no request in a body is answered", smuggled == 0, got[:400])
        check(T, f"{name}: no error of the server", b" 500 " not in got[:20], got[:200])
    # Bodies on requests that take none; the next on the connection is itself.
    for method, path in (("GET", "/api/v1/status"), ("PUT", "/api/v1/jobs/" + "0" * 32 + "/delete"), ("PUT", "/api/v1/jobs/" + "0" * 32 + "/pause"), ("PUT", "/api/v1/agents/none/resume"), ("DELETE", "/api/v1/timers/" + "0" * 32), ("DELETE", "/api/v1/agents/none"), ("GET", "/livez"), ("POST", "/nowhere"), ("DELETE", "/api/v1/secrets/none"), ("HEAD", "/api/v1/status"), ("OPTIONS", "/api/v1/run")):
        for body in (inner, "x" * 20000):
            data = f"{method} {path} HTTP/1.1\r\n{host}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}GET /livez HTTP/1.1\r\n{host}Connection: close\r\n\r\n"
            got = raw(v, data.encode(), 2.0)
            check(T, f"{method} {path[:24]} with a body of {len(body)}: the body is no request", b"canary-con" not in got, got[:300])
            check(T, f"{method} {path[:24]} with a body of {len(body)}: the next request is answered or the connection ends", got.count(b"HTTP/1.1 ") in (1, 2) and b" 500 " not in got, got[:300])
    # Headers.
    for name, h in {"64 KiB": "X: " + "x" * 65536 + "\r\n", "1 MiB": "X: " + "x" * 1048576 + "\r\n", "2000 of them": "".join(f"X{i}: y\r\n" for i in range(2000)), "a long path": None}.items():
        data = f"GET /api/v1/status HTTP/1.1\r\n{host}{h}\r\n" if h else f"GET /api/v1/{'x' * 200000} HTTP/1.1\r\n{host}\r\n"
        got = raw(v, data.encode(), 2.0)
        check(T, f"headers of {name} have an answer or an end", b" 500 " not in got[:20], got[:200])
        check(T, f"alive after headers of {name}", v.alive())
    # Many at once. The limits: 256 of one address; others of this address get 429 or the idle ones make room.
    idle = []
    for i in range(600):
        try:
            s = socket.create_connection(("127.0.0.1", v.port), 2)
            if i % 3 == 1:
                s.sendall(b"GET /api/v1/status HTTP/1.1\r\nHost: x")
            elif i % 3 == 2:
                s.sendall(f"POST /api/v1/run HTTP/1.1\r\n{host}Content-Length: 100000\r\n\r\n".encode() + b"{")
            idle.append(s)
        except OSError:
            break
    time.sleep(0.5)
    t = time.time()
    answers = [v.http("GET", "/livez", root=True)[0] for _ in range(5)]
    check(T, "with 600 idle, half and slow connections the API has an answer", all(a in (200, 429, 503) for a in answers), answers)
    check(T, "and at once", time.time() - t < 5, time.time() - t)
    time.sleep(11)
    answers = [v.http("GET", "/livez", root=True)[0] for _ in range(5)]
    check(T, "after the time for headers it serves", 200 in answers, answers)
    for s in idle:
        s.close()
    time.sleep(1)
    check(T, "after all have gone it serves", v.alive())
    # A header that drips, a body that drips.
    began = time.time()
    s = socket.create_connection(("127.0.0.1", v.port), 3)
    s.settimeout(1)
    ended = False
    try:
        s.sendall(b"GET /api/v1/status HTTP/1.1\r\n")
        for i in range(16):
            s.sendall(b"X: y\r\n")
            try:
                if not s.recv(100):
                    ended = True
                    break
                ended = True
                break
            except TimeoutError:
                pass
    except OSError:
        ended = True
    check(T, "a header that drips ends in its time", ended and time.time() - began < 15, time.time() - began)
    for method in ("TRACE", "PATCH", "FOO", "get", "PROPFIND", "PURGE", "x" * 300):
        s_, said = v.http(method, "/status")
        check(T, f"the method {method[:10]} is refused", 400 <= s_ < 502 and s_ != 500, (s_, said))
    # Many watchers.
    v.agent([lambda b: (time.sleep(6), "x")[1]], name="watch")
    s_, job = v.http("POST", "/agents/watch/tasks", {"input": 1})
    socks = []
    for _ in range(100):
        c = socket.create_connection(("127.0.0.1", v.port), 2)
        c.sendall(f"GET /api/v1/jobs/{job.get('job')}/sse HTTP/1.1\r\n{host}\r\n".encode())
        socks.append(c)
    time.sleep(0.5)
    check(T, "with 100 watchers of a job the API serves", v.alive())
    [c.close() for c in socks]
