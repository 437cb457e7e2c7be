"""Starts what is attacked, and speaks with it: a venue of each mode on loopback, a model that does what a try tells it,
and the count of what held. No attack is in this file."""

import base64
import hashlib
import http.client
import http.server
import json
import os
import pathlib
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

PASSED, FAILED = [], []
HERE = pathlib.Path(__file__).resolve().parent
CONFIG = HERE.parent.parent / "config"


def check(theme, name, held, detail=""):
    """One try: `held` is what a safe venue does."""
    (PASSED if held else FAILED).append((theme, name))
    if not held:
        print(f"FAILED {theme}: {name}: {str(detail)[:int(os.environ.get('ATTACK_DETAIL', 600))]}", flush=True)
    return bool(held)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Raw:
    """A reply of the model that is no reply: `send(handler, body)` writes what it wants onto the connection."""

    def __init__(self, send):
        self.send = send


class Model:
    """An OpenAI-compatible server. `says(name, [reply, ...])` scripts the model `local/name`: a reply is a text, a list
    of `(tool, arguments)` or `(tool, arguments, id)`, a `Raw`, or a function of the request. The last one is repeated.
    `seen[name]` are the requests."""

    def __init__(self):
        self.scripts, self.seen, self.lock = {}, {}, threading.Lock()
        model = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
                name = body.get("model", "")
                with model.lock:
                    seen = model.seen.setdefault(name, [])
                    seen.append(body)
                    steps = model.scripts.get(name, ["ok"])
                    step = steps[min(len(seen), len(steps)) - 1]
                reply = step(body) if callable(step) else step
                if isinstance(reply, Raw):
                    return reply.send(self, body)
                delta = {"role": "assistant"}
                if isinstance(reply, str):
                    delta["content"] = reply
                else:
                    delta["tool_calls"] = [
                        {"index": i, "id": given[0] if given else f"c{len(seen)}_{i}", "type": "function",
                         "function": {"name": tool, "arguments": a if isinstance(a, str) else json.dumps(a)}}
                        for i, (tool, a, *given) in enumerate(reply)]
                finish = "stop" if isinstance(reply, str) else "tool_calls"
                usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
                if body.get("stream"):
                    chunks = [{"id": "x", "object": "chat.completion.chunk", "created": 0, "model": name,
                               "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
                              {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": name,
                               "choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": usage}]
                    data = "".join(f"data: {json.dumps(c)}\n\n" for c in chunks) + "data: [DONE]\n\n"
                    kind = "text/event-stream"
                else:
                    data = json.dumps({"id": "x", "object": "chat.completion", "created": 0, "model": name, "usage": usage,
                                       "choices": [{"index": 0, "message": {"content": None, **delta}, "finish_reason": finish}]})
                    kind = "application/json"
                data = data.encode()
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                """A venue that ends a call is what some tries are about."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def says(self, name, steps):
        with self.lock:
            self.scripts[name], self.seen[name] = steps, []


class Venue:
    """One venue: `mode` is `up`, `fleet`, or `jwt` (a fleet with tokens)."""

    def __init__(self, binary, mode, model, folder, sets=()):
        self.binary, self.mode, self.model, self.folder = binary, mode, model, pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port, self.processes, self.serial, self.groups = free_port(), [], 0, []
        self.nats = self.redis = self.token = None
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("TRELLIS")}
        self.env["TRELLIS_URL"] = f"http://127.0.0.1:{self.port}"
        config = self.folder / "trellis.toml"
        config.write_text(f'[models.endpoints.local]\nbase_url = "http://127.0.0.1:{model.port}/v1/"\napi_key_env = ""\n')
        self.sets = [f"http.listen=127.0.0.1:{self.port}", "catalog.test=false", *sets]
        if mode == "up":
            self.sets.append(f"store.url=embedded:{self.folder}/data")
        else:
            nats, redis = free_port(), free_port()
            where = os.environ.get("NATS_SERVER") or shutil.which("nats-server") or str(HERE.parent.parent / ".tools/venv/bin/nats-server")
            self.start([where, "-c", str(CONFIG / "nats.conf"), "-sd", str(self.folder / "js"), "-a", "127.0.0.1", "-p", str(nats)], "nats")
            self.start(["redis-server", str(CONFIG / "redis.conf"), "--dir", str(self.folder), "--port", str(redis), "--bind", "127.0.0.1"], "redis")
            self.nats, self.redis = f"nats://127.0.0.1:{nats}", redis
            self.sets += [f"store.url=redis://127.0.0.1:{redis}", f"bus.url={self.nats}"]
            for port in (nats, redis):
                wait_port(port)
        if mode == "jwt":
            self.issuer, self.keys = self.folder / "issuer.jwk", self.folder / "keys.json"
            self.cli("token", "keygen", str(self.issuer), "--jwks", str(self.keys), "--kid", "k1")
            self.other = self.folder / "acme.jwk"
            self.cli("token", "keygen", str(self.other), "--jwks", str(self.keys), "--kid", "k2", "--speaks-for", "acme")
            self.sets += ["auth.mode=jwt", f"auth.jwks={self.keys}", "auth.audience=did:web:attack.example",
                          "auth.operators=acme/root"]
        args = [x for s in self.sets for x in ("--set", s)]
        base = [binary, "--config", str(config)]
        if mode == "up":
            self.start([*base, "up", *args], "up")
        else:
            self.start([*base, "worker", *args], "worker")
            self.start([*base, "serve", *args], "serve")
        wait_port(self.port)
        for _ in range(100):
            if self.http("GET", "/readyz", root=True)[0] == 200:
                break
            time.sleep(0.1)

    def start(self, command, name):
        log = open(self.folder / f"{name}.log", "ab")
        self.processes.append((name, subprocess.Popen(command, stdout=log, stderr=log, env=self.env, cwd=self.folder)))

    def log(self):
        return "".join(p.read_text(errors="replace") for p in self.folder.glob("*.log"))

    def cli(self, *args, input=None, token=None, timeout=30):
        env = dict(self.env)
        if token:
            env["TRELLIS_TOKEN"] = token
        return subprocess.run([self.binary, *args], capture_output=True, env=env, input=input, cwd=self.folder, timeout=timeout)

    def issue(self, sub, att=None, key=None, **more):
        """A token by the venue's own tool, as the guide has it."""
        args = ["token", "issue", "--key", str(key or self.issuer), "--aud", "did:web:attack.example", "--sub", sub]
        for a in att or []:
            args += ["--att", a]
        if att == []:
            args.append("--no-att")
        for k, v in more.items():
            args += [f"--{k}", v]
        done = self.cli(*args)
        return done.stdout.decode().strip() or done.stderr.decode()

    def http(self, method, path, body=None, owner=None, token=None, headers=None, raw=None, root=False, timeout=30):
        """Status, and the body as JSON where it is some."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        h = {"content-type": "application/json", **(headers or {})}
        if owner:
            h["X-Trellis-Owner"] = owner
        if token or self.token:
            h["Authorization"] = f"Bearer {token or self.token}"
        data = raw if raw is not None else (json.dumps(body).encode() if body is not None else None)
        try:
            c.request(method, path if root else "/api/v1" + path, data, h)
            r = c.getresponse()
            text = r.read()
            self.headers = dict((k.lower(), v) for k, v in r.getheaders())
        except OSError as e:
            return 0, {"error": repr(e)}
        finally:
            c.close()
        try:
            return r.status, json.loads(text)
        except ValueError:
            return r.status, text.decode("utf-8", "replace")

    def run(self, operation, input, **more):
        return self.http("POST", "/run", {"operation": operation if "/" in operation and operation.startswith("v/") else "v/ops/" + operation, "input": input}, **more)

    def write(self, path, value, **more):
        return self.run("lattice/write", {"path": path, "value": value}, **more)

    def read(self, path, **more):
        return self.run("lattice/read", {"path": path}, **more)

    def name(self, prefix="a"):
        self.serial += 1
        return f"{prefix}{self.serial}"

    def agent(self, steps, config=None, name=None, **more):
        """An agent whose model says `steps`; its name is also the model's."""
        name = name or self.name()
        model = f"{self.mode}-{name}-{self.name('m')}"
        self.model.says(model, steps)
        config = {"model": {"provider": "local", "name": model}, **(config or {})}
        status, said = self.http("PUT", f"/agents/{name}", config, **more)
        if status not in (200, 201):
            raise RuntimeError(f"agent {name}: {status} {said}")
        self.last_model = model
        return name

    def task(self, agent, input="go", wait=8000, headers=None, body=None, **more):
        return self.http("POST", f"/agents/{agent}/tasks?wait={wait}", {"input": input, **(body or {})}, headers=headers, **more)

    def calls(self, calls, config=None, body=None, wait=8000, **more):
        """An agent makes these calls in one turn; what its model is shown of each result."""
        who = {k: v for k, v in more.items() if k in ("owner", "token")}
        agent = self.agent([calls, "done"], config, **who)
        model = self.last_model
        status, job = self.task(agent, body=body, wait=wait, **who)
        seen = self.model.seen.get(model, [])
        results = [m.get("content") for m in seen[-1]["messages"] if m.get("role") == "tool"] if len(seen) > 1 else []
        return [x if isinstance(x, str) else json.dumps(x) for x in results], job, agent

    def prompt(self, index=-1):
        seen = self.model.seen.get(self.last_model, [])
        return json.dumps(seen[index]["messages"], ensure_ascii=False) if seen else ""

    def alive(self):
        return all(p.poll() is None for _, p in self.processes) and self.http("GET", "/livez", root=True)[0] == 200

    def stop(self):
        for _, p in reversed(self.processes):
            if p.poll() is None:
                p.terminate()
        for _, p in reversed(self.processes):
            try:
                p.wait(20)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        for group in self.groups:
            group.rmdir()


def memory_cgroup(pid):
    """The memory cgroup that a process may be put under, version 2 or 1; None where none can be made."""
    for root, limit in (("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")):
        folder = pathlib.Path(root) / f"trellis-attack-{pid}"
        try:
            folder.mkdir()
            if (folder / limit).exists():
                return folder, folder / limit
            folder.rmdir()
        except OSError:
            pass
    return None


def limit_memory(v, limit):
    """Bounds the memory of each process of the venue's own by the kernel; False where that can't be."""
    for name, p in v.processes:
        if name not in ("up", "serve", "worker"):
            continue
        group = memory_cgroup(p.pid)
        if not group:
            return False
        folder, file = group
        v.groups.append(folder)
        file.write_text(str(limit))
        (folder / "cgroup.procs").write_text(str(p.pid))
    return True


def peak_memory(v):
    """The most that each process of the venue's own ever had resident, in MiB."""
    peaks = {}
    for name, p in v.processes:
        try:
            status = pathlib.Path(f"/proc/{p.pid}/status").read_text()
        except OSError:
            continue
        line = next((l for l in status.splitlines() if l.startswith("VmHWM:")), None)
        if line and name in ("up", "serve", "worker"):
            peaks[name] = int(line.split()[1]) // 1024
    return peaks


def wait_port(port, seconds=20):
    end = time.time() + seconds
    while time.time() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"nothing listens on {port}")


def nested(depth, list_=False):
    v = 1
    for _ in range(depth):
        v = [v] if list_ else {"a": v}
    return v
