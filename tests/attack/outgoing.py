"""Attacks calls to the world outside: addresses that are not public in every writing, redirects, other schemes, headers that smuggle,
and secrets: their values in results, jobs, turns, prompts, logs; hosts that they are not for; names that are paths. Expected: no
connection to this machine while `allow_private` is off, and no value of a secret anywhere but at its host."""

import base64
import http.server
import json
import socketserver
import threading
import urllib.parse

from venue import check

T = "outgoing"
SETS = ("http_client.allow_hosts=*",)
VALUE = 'Sec/ret+"va&lue<42>'


def attack(v):
    hits = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            n = int(self.headers.get("content-length") or 0)
            hits.append((self.path, dict(self.headers), self.rfile.read(n)))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"canary-internal")

        do_POST = do_GET

    class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    p = server.server_address[1]
    hosts = ["127.0.0.1", "localhost", "LOCALHOST", "localhost.", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "017700000001", "0177.0.0.1", "127.000.000.001", "0.0.0.0", "0", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::]", "[0:0:0:0:0:ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::127.0.0.1]", "[fe80::1%25lo]", "169.254.169.254", "10.0.0.1", "192.168.0.1", "172.16.0.1", "100.64.0.1", "[fc00::1]", "[fd00:ec2::254]", "224.0.0.1", "255.255.255.255", "127.0.0.1.", "①②⑦.0.0.1", "127。0。0。1", "localhost%00.example.com", "user@127.0.0.1", "example.com@127.0.0.1", "127.0.0.1#example.com", "127.0.0.1\\@example.com", "%31%32%37.0.0.1", "192.0.0.1", "198.18.0.1", "240.0.0.1", "[ff02::1]", "0x7f.0.0.1", "ip6-localhost"]
    for h in hosts:
        for scheme in ("http", "https"):
            for op in ("http/get", "http/post"):
                if op == "http/post" and scheme == "https":
                    continue
                s, said = v.run(op, {"url": f"{scheme}://{h}:{p}/x", "timeout": 1500, **({"body": "x"} if op.endswith("post") else {})}, timeout=12)
                check(T, f"{op} of {scheme}://{h} is refused", "canary-internal" not in json.dumps(said) and s >= 400, (s, said))
    for url in ("file:///etc/passwd", "ftp://127.0.0.1/", "gopher://127.0.0.1:%d/" % p, "data:text/plain,x", "//127.0.0.1:%d/" % p, "http:127.0.0.1:%d" % p, "http:///127.0.0.1", "jar:http://x", "unix:/run/x", "", "http://", "javascript:1", "HTTP://127.0.0.1:%d/" % p, "http://127.0.0.1:%d\r\nX: y/" % p, " http://127.0.0.1:%d/" % p, "http://127.0.0.1:99999/", "redis://127.0.0.1:%s" % v.redis, "nats://x", "ws://127.0.0.1:%d" % p, "http://\u200b127.0.0.1:%d/" % p, "x" * 9000):
        s, said = v.run("http/get", {"url": url, "timeout": 1500})
        check(T, f"the url {url[:40]!r} is refused", s >= 400 and "canary" not in json.dumps(said) and "root:" not in json.dumps(said), (s, said))
    check(T, "no request has reached this machine", not hits, hits[:3])
    # Model endpoints of an agent's own.
    for base in (f"http://127.0.0.1:{p}/v1/", f"http://localhost:{p}/v1/", "http://169.254.169.254/", f"http://[::1]:{p}/", "file:///etc/passwd", f"http://2130706433:{p}/v1/"):
        for provider in ("openai", "ollama", "anthropic"):
            n = len(hits)
            s, said = v.http("PUT", "/agents/ssrf", {"model": {"provider": provider, "name": "x", "baseUrl": base}, "retry": {"attempts": 1}})
            if s < 300:
                v.task("ssrf", wait=1200)
            check(T, f"a model of {provider} at {base} is not called on this machine", len(hits) == n, (s, said, hits[n:][:1]))
            v.http("DELETE", "/agents/ssrf?remove=true")
    # Names of scripted models that are paths.
    for name in ("/etc/passwd", "/dev/zero", "/dev/stdin", "../../etc/passwd", "..", ".", "", "rules/../x", "/proc/self/environ", "config/examples/scripted.toml", "\u0000", "~/x", "file:///etc/passwd", "trellis.toml", "./trellis.toml", "echo/../../x", "ECHO", "x" * 5000):
        s, said = v.http("PUT", "/agents/scr", {"model": {"provider": "scripted", "name": name}})
        if s < 300:
            s, said = v.task("scr", wait=1200)
            s2, info = v.http("GET", "/agents/scr")
            said = {**(said if isinstance(said, dict) else {}), **info}
        text = json.dumps(said)
        check(T, f"the scripted model {name[:30]!r} reads no file", "root:" not in text and "No such file" not in text and "ermission" not in text and "os error" not in text and s < 500, (s, text[:400]))
        v.http("DELETE", "/agents/scr?remove=true")
    # Secrets.
    s, said = v.http("PUT", "/secrets/KEY", {"value": VALUE, "hosts": [f"127.0.0.1:{p}", "api.example.invalid"]})
    check(T, "a secret is stored or its host refused", s < 300 or 400 <= s < 500, (s, said))
    v.http("PUT", "/secrets/FREE", {"value": VALUE + "2"})
    forms = [VALUE, base64.b64encode(VALUE.encode()).decode(), VALUE.encode().hex(), urllib.parse.quote(VALUE, safe=""), json.dumps(VALUE)[1:-1], VALUE[::-1]]
    for op, input in (("secret/extract", {"name": "KEY"}), ("secret/list", {}), ("lattice/read", {"path": "s/KEY"}), ("lattice/read", {"path": "s"}), ("lattice/inspect", {"path": "s/KEY"}), ("lattice/list", {"path": "s"}), ("lattice/slice", {"path": "s"}), ("lattice/copy", {"from": "s/KEY", "to": "w/stolen"}), ("asset/pin", {"path": "s/KEY", "name": "st"}), ("schema/infer", {"path": "s/KEY"}), ("schema/validate", {"path": "s/KEY", "schema": {"const": "x"}}), ("json/select", {"path": "s/KEY", "select": ""}), ("lattice/aggregate", {"path": "s", "groupBy": "value"}), ("job/run", {"operation": "v/ops/secret/extract", "input": {"name": "KEY"}})):
        s, said = v.run(op, input)
        check(T, f"{op} shows no value", not any(f in json.dumps(said, ensure_ascii=False) or f in json.dumps(said) for f in forms), (s, said))
    for path in ("/secrets", "/secrets/KEY", "/values/read?path=s/KEY", "/values/inspect?path=s", "/jobs?details=true"):
        s, said = v.http("GET", path)
        check(T, f"GET {path} shows no value", not any(f in json.dumps(said) for f in forms), (s, said))
    ref = {"$secret": "s/KEY"}
    for name, input in {"another host": {"url": "http://example.invalid/", "headers": {"A": ref}}, "in the url": {"url": {"$secret": "s/KEY"}}, "url text": {"url": "http://127.0.0.1:%d/{$secret:s/KEY}" % p}, "a free secret": {"url": "http://api.example.invalid/", "headers": {"A": {"$secret": "s/FREE"}}}, "prefix with a break": {"url": f"http://api.example.invalid/", "headers": {"A": {"$secret": "s/KEY", "prefix": "x\r\nHost: evil"}}}, "header name": {"url": "http://api.example.invalid/", "headers": {"A\r\nB": "x"}},
                        "no such": {"url": "https://api.example.invalid/", "headers": {"A": {"$secret": "s/NONE"}}}, "a path": {"url": "https://api.example.invalid/", "headers": {"A": {"$secret": "w/x"}}}, "dots": {"url": "https://api.example.invalid/", "headers": {"A": {"$secret": "s/../s/KEY"}}}, "list": {"url": "https://api.example.invalid/", "headers": {"A": [ref]}}, "host header": {"url": "https://api.example.invalid/", "headers": {"Host": "evil"}}, "sub of its host": {"url": "https://x.api.example.invalid/", "headers": {"A": ref}}, "suffix of its host": {"url": "https://api.example.invalid.evil.test/", "headers": {"A": ref}}, "user part": {"url": "https://api.example.invalid@example.invalid/", "headers": {"A": ref}}}.items():
        s, said = v.run("http/post", {**input, "body": {"k": ref}, "timeout": 1500})
        check(T, f"a secret with {name} goes nowhere", s >= 400 and not any(f in json.dumps(said) for f in forms), (s, said))
    for body in ({"value": "short"}, {"value": ""}, {"value": 12345678}, {"value": "x" * 70000}, {"value": "12345678", "hosts": ["*"]}, {"value": "12345678", "hosts": ["*.*"]}, {"value": "12345678", "hosts": ["http://x/"]}, {"value": "12345678", "hosts": [""]}, {"value": "12345678", "hosts": ["a b"]}, {"value": "12345678", "hosts": ["*.com"]}, {"value": "12345678", "hosts": "x"}, {"value": "12345678", "hosts": ["x"] * 33}, {"value": "a\u0000b45678"}, {"value": "a\nb4567890"}, {"value": "12345678", "extra": 1}):
        s, said = v.http("PUT", "/secrets/ODD", body)
        check(T, f"a secret {str(body)[:50]} has an answer without its value", s < 500 and "12345678" not in json.dumps(said), (s, said))
        if body.get("hosts") in (["*"], ["*.*"], [""], ["a b"], "x"):
            check(T, f"a secret for {body['hosts']} is refused", 400 <= s < 500, (s, said))
    for name in ("a/b", "..", "%2e%2e", "a%2fb", "x" * 65, "a b", "%00", "é", "KEY%20"):
        s, said = v.http("PUT", "/secrets/" + urllib.parse.quote(name, safe="%./"), {"value": "12345678"})
        check(T, f"a secret named {name[:20]!r} is refused", 400 <= s < 500, (s, said))
    # An agent with a reference in every place; nothing shows a value.
    r, job, a = v.calls([("job_run", {"operation": "v/ops/secret/extract", "input": {"name": "KEY"}}), ("lattice_write", {"path": "w/sec", "value": ref}), ("lattice_read", {"path": "w/sec"}), ("lattice_read", {"path": "s/KEY"}), ("http_get", {"url": f"http://127.0.0.1:{p}/", "headers": {"A": ref}})], {"tools": ["v/ops/http/get"], "context": [{"ref": "s/KEY", "label": "k"}, {"ref": "s", "label": "all"}]})
    check(T, "an agent gets no value", not any(f in v.prompt() or f in json.dumps(r) for f in forms), r)
    check(T, "no log has the value", not any(f in v.log() for f in forms))
    check(T, "and still no request has reached this machine", not hits, hits[:2])
    server.shutdown()
