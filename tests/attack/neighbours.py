"""Attacks the peace between owners and who may act for all of them: tasks and operations that hang by two owners, token limits full of small calls,
large reads, mailboxes and backlogs while a third waits; operators by revoked, narrowed and forged tokens, revocations venue-wide, operators'
routes by others; a second store or name on one queue. Expected: the third is served soon, no one but an operator acts for all."""

import json
import threading
import time

from charged import delta, sse
from venue import check

T = "neighbours"
SETS = ["worker.slots=8", "worker.operations=8", "models.timeout=60s", "models.limits=local:tokens=60000", "worker.lease=5s", "http.connections=64", "http.connections_per_address=48"]


def owner(v, name):
    return {"token": v.issue("acme/" + name)} if v.mode == "jwt" else {"owner": "acme/" + name}


def attack(v):
    work(v)
    if v.mode == "jwt":
        operators(v)
    hanging(v)
    if v.mode != "up":
        adopting(v)


HANG = {"model": {"provider": "scripted", "name": "never"}, "defaultTools": False, "tools": [], "concurrency": 100}
ECHO = {"model": {"provider": "scripted", "name": "echo", "maxTokens": 16}, "defaultTools": False, "tools": []}


def soon(v, who, what, seconds=15):
    v.http("PUT", "/agents/e", ECHO, **who)
    began = time.time()
    s, job = v.http("POST", f"/agents/e/tasks?wait={seconds * 1000}", {"input": "x"}, timeout=seconds + 10, **who)
    check(T, f"{what}: a third owner's task is done soon", job.get("status") == "COMPLETE" and time.time() - began < seconds, (time.time() - began, s, job))
    began = time.time()
    s, job = v.http("POST", f"/invoke?wait={seconds * 1000}", {"operation": "v/ops/lattice/write", "input": {"path": "w/x", "value": 1}}, timeout=seconds + 10, **who)
    check(T, f"{what}: a third owner's operation is done soon", job.get("status") == "COMPLETE" and time.time() - began < seconds, (time.time() - began, s, job))
    began = time.time()
    s, said = v.http("GET", "/agents", **who)
    check(T, f"{what}: a third owner reads soon", s == 200 and time.time() - began < 3, (time.time() - began, s))


def hanging(v):
    import killed
    for i in range(8):
        who = owner(v, f"good{i}")
        v.http("PUT", "/agents/e", ECHO, **who)
        v.http("POST", "/agents/e/tasks?wait=5000", {"input": 1}, **who)
    time.sleep(3)
    bad = [owner(v, f"bad{i}") for i in range(2)]
    jobs = []
    for who in bad:
        v.http("PUT", "/agents/h", HANG, **who)
        for i in range(30):
            jobs.append((who, v.http("POST", "/agents/h/tasks", {"input": i}, **who)[1].get("job")))
    time.sleep(2)
    soon(v, owner(v, "good0"), "two owners whose tasks hang")
    killed.kill(v)
    soon(v, owner(v, "good1"), "two owners whose tasks hang, behind a kill")
    for who in bad:
        v.agent([sse(delta("x"), wait=20)], {"concurrency": 100}, name="slow", **who)
        for i in range(20):
            v.http("POST", "/agents/slow/messages", {"input": i}, **who)
    soon(v, owner(v, "good2"), "and messages that hang")
    for who in bad:
        for i in range(20):
            v.http("POST", "/invoke", {"operation": "v/ops/agent/request", "input": {"agentId": "h", "input": i, "wait": 100000}}, **who)
            v.http("POST", "/invoke", {"operation": "v/ops/job/run", "input": {"operation": "v/ops/agent/request", "input": {"agentId": "h", "input": i, "wait": 100000}}}, **who)
    soon(v, owner(v, "good3"), "and operations that wait")
    waiters = []
    for who in bad:
        for i in range(40):
            job = next(j for w, j in jobs if w is who)
            th = threading.Thread(target=lambda who=who, job=job: v.http("GET", f"/jobs/{job}?wait=20000", timeout=25, **who), daemon=True)
            th.start()
            waiters.append(th)
    time.sleep(1)
    soon(v, owner(v, "good4"), "and eighty requests that wait")
    for path in ("/livez", "/readyz", "/metrics", "/work"):
        s, said = v.http("GET", path, root=True, **({"token": v.issue("acme/root")} if v.mode == "jwt" else {}))
        check(T, f"{path} is answered beside all of these", s == 200, (s, said))
    third = owner(v, "bad2")
    v.http("PUT", "/agents/h", HANG, **third)
    for i in range(30):
        v.http("POST", "/agents/h/tasks", {"input": i}, **third)
    time.sleep(2)
    soon(v, owner(v, "good5"), "a third owner whose tasks hang beside them")
    v.http("DELETE", "/agents/h", **third)
    for who in bad:
        v.http("DELETE", "/agents/h", **who)
        v.http("DELETE", "/agents/slow", **who)
    [t.join(30) for t in waiters]
    # A limit of tokens: small calls of one owner beside a large one of another.
    busy, large = owner(v, "busy"), owner(v, "large")
    v.agent(["small"], {"concurrency": 50}, name="s", **busy)
    big = v.agent(["big"], {"systemPrompt": "large " * 15000, "contextBudget": {"bytes": 180000}}, **large)
    stop = threading.Event()

    def flood():
        while not stop.is_set():
            v.http("POST", "/agents/s/tasks?wait=3000", {"input": "small " * 2000}, **busy)
    threads = [threading.Thread(target=flood, daemon=True) for _ in range(6)]
    [t.start() for t in threads]
    time.sleep(3)
    began = time.time()
    s, job = v.http("POST", f"/agents/{big}/tasks?wait=100000", {"input": "x"}, timeout=120, **large)
    check(T, "a large call beside many small ones is made within two minutes", job.get("status") == "COMPLETE", (time.time() - began, job))
    stop.set()
    [t.join(10) for t in threads]


def work(v):
    for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
        s, said = v.http(method, "/work", root=True)
        check(T, f"{method} of /work says nothing of owners", s in (200, 204, 401, 403, 404, 405, 501) and "acme" not in json.dumps(said), (s, said))
    if v.mode != "jwt":
        for host in ("evil.example", "169.254.169.254", "localhost.evil.example", "127.0.0.1@evil.example", "[::1].evil"):
            s, said = v.http("GET", "/work", root=True, headers={"Host": host})
            check(T, f"/work for the host {host} is refused", s in (400, 403, 421), (s, said))
            s, said = v.http("GET", "/work", root=True, headers={"Origin": f"http://{host}"})
            check(T, f"/work for a page of {host} is refused", s in (400, 403), (s, said))
        s, said = v.http("GET", "/work", root=True, headers={"Sec-Fetch-Site": "cross-site"})
        check(T, "/work asked across sites is refused", s in (400, 403), (s, said))
    else:
        for name, token in {"nobody": None, "an owner": v.issue("acme/ann"), "a narrowed operator": v.issue("acme/root", [":*"]), "garbage": "x.y.z"}.items():
            for path in ("/work", "/metrics"):
                s, said = v.http("GET", path, root=True, token=token)
                check(T, f"{path} is nothing for {name}", s in (401, 403), (s, str(said)[:100]))
        s, said = v.http("GET", "/work", root=True, token=v.issue("acme/root"))
        check(T, "/work is for operators", s == 200 and isinstance(said.get("work"), int), (s, said))


def operators(v):
    """What operators may do, by those who are none any more or never were."""
    deeds = {"audit": ("POST", "/run", {"operation": "v/ops/venue/audit", "input": {}}), "settle": ("POST", "/run", {"operation": "v/ops/venue/audit", "input": {"settle": True}}), "doctor": ("POST", "/run", {"operation": "v/ops/venue/doctor", "input": {}}), "backup": ("POST", "/run", {"operation": "v/ops/venue/backup", "input": {"name": "x"}}), "quota": ("PUT", "/quota", {"bytes": 5}), "roots": ("POST", "/run", {"operation": "v/ops/policy/roots", "input": {"caps": None}}), "gates": ("POST", "/run", {"operation": "v/ops/policy/approvals", "input": {"caps": []}}), "restore": ("POST", "/run", {"operation": "v/ops/policy/restore", "input": {"id": "0" * 32}}), "purge": ("POST", "/run", {"operation": "v/ops/resource/purge", "input": {"namespace": "app/user/u", "recursive": True}}), "resources": ("POST", "/run", {"operation": "v/ops/resource/list", "input": {}}), "shared": ("POST", "/run", {"operation": "v/ops/lattice/write", "input": {"path": "v/context/project", "value": {"rule": "evil"}}}), "another's spend": ("GET", "/spend?user=someone", None), "another's agents": ("GET", "/agents", None), "dead": ("POST", "/run", {"operation": "v/ops/dead/list", "input": {}})}
    good = v.issue("acme/root")
    v.http("PUT", "/agents/e", ECHO, token=v.issue("acme/ann"))
    for name, (method, path, body) in deeds.items():
        s, said = v.http(method, path, body, token=good, owner="acme/ann")
        check(T, f"an operator may {name}", s in (200, 201, 404, 409) or name in ("backup",), (s, said))
    v.http("PUT", "/quota", {"bytes": None}, token=good, owner="acme/ann")
    revoked = v.issue("acme/root", jti="op-1")
    s, said = v.run("policy/revoke", {"grant": "op-1"}, token=good)
    check(T, "an operator revokes a token of his own", s == 200, (s, said))
    bad = {"revoked": revoked, "narrowed to all": v.issue("acme/root", [":*"]), "narrowed to everything by name": v.issue("acme/root", ["w:*", "g:*", "policy:*", "quota:*", "venue:*"]), "another subject": v.issue("acme/rooty"), "another case": v.issue("acme/Root"), "another tenant": v.issue("evil/root"), "nothing granted": v.issue("acme/root", []), "the operator by the key of a tenant": v.issue("acme/ann", key=v.other)}
    for who, token in bad.items():
        for name, (method, path, body) in deeds.items():
            s, said = v.http(method, path, body, token=token, owner="acme/bob")
            check(T, f"{who}: {name} for another owner is refused", s in (401, 403), (s, str(said)[:200]))
            if who != "revoked" and path != "/agents" and name not in ("dead", "another's spend", "another's agents"):
                s, said = v.http("POST", "/invoke?wait=3000", body if path == "/run" else {"operation": "v/ops/quota/set", "input": {"bytes": 5}}, token=token)
                check(T, f"{who}: {name} invoked for oneself is refused", s in (400, 401, 403) or said.get("errorCode") == "CAP_DENIED", (s, str(said)[:300]))
    # A revocation by an operator in his own owner is venue-wide for what his token began.
    token = v.issue("acme/root", jti="op-2")
    v.agent(["canary"], name="opmade", token=token, owner="acme/ann")
    s, timer = v.http("POST", "/agents/opmade/timers", {"input": 1, "after": "4s"}, token=token, owner="acme/ann")
    v.http("PUT", "/agents/opmade/suspend", {}, token=good, owner="acme/ann")
    s, job = v.http("POST", "/agents/opmade/tasks", {"input": 1}, token=token, owner="acme/ann")
    s, said = v.run("policy/revoke", {"grant": "op-2"}, token=v.issue("acme/ann"))
    s2, said2 = v.http("GET", "/agents", token=token, owner="acme/bob")
    check(T, "an owner's revocation of an operator's token is his owner's alone", s2 == 200 or s in (401, 403), (s, s2, said2))
    s, said = v.run("policy/revoke", {"grant": "op-2"}, token=good)
    check(T, "the operator's own is everybody's", s == 200 and v.http("GET", "/agents", token=token, owner="acme/ann")[0] in (401, 403), (s, said))
    time.sleep(1.5)
    v.http("PUT", "/agents/opmade/resume", {}, token=good, owner="acme/ann")
    time.sleep(6)
    s, said = v.http("GET", f"/jobs/{job['job']}", token=good, owner="acme/ann")
    check(T, "what it had begun for another owner is stopped", said.get("status") == "FAILED" and said.get("errorCode") == "CAP_DENIED" and not v.model.seen.get(v.last_model), said)
    s, said = v.http("GET", "/timers?all=true", token=good, owner="acme/ann")
    check(T, "and so are its timers", all(t.get("state") != "fired" and not t.get("fired") for t in said.get("items", []) if t["timer"] == timer.get("timer")), said)
    s, said = v.http("POST", "/agents/opmade/tasks?wait=3000", {"input": 1}, token=v.issue("acme/ann"))
    check(T, "an agent that it made does nothing for anybody", said.get("status") != "COMPLETE", said)
    # Nobody takes an operator's token by its id away from all but an operator.
    victim = v.issue("acme/root", jti="op-3")
    for who in ("acme/ann", "evil/eve", "acme/rooty"):
        for body in ({"grant": "op-3"}, {"holder": "acme/root"}, {"grant": "op-3", "everyOwner": True}, {"holder": "acme/root", "path": ""}):
            v.run("policy/revoke", body, token=v.issue(who))
    s, said = v.http("GET", "/quota", token=victim, owner="acme/zoe")
    check(T, "no other owner takes an operator's token away venue-wide", s == 200, (s, said))
    alive = v.issue("acme/ann", jti="ann-1")
    v.run("policy/revoke", {"grant": "ann-1"}, token=v.issue("acme/bob"))
    v.run("policy/revoke", {"holder": "acme/ann"}, token=v.issue("acme/bob"))
    s, said = v.http("GET", "/agents", token=alive)
    check(T, "nor another owner's token", s == 200, (s, said))


def adopting(v):
    """A second store, name or prefix on the queue: nothing starts, nothing changes."""
    import socket
    import subprocess
    from venue import CONFIG, free_port, wait_port
    folder = v.folder / "other"
    folder.mkdir()
    port = free_port()
    v.start(["redis-server", str(CONFIG / "redis.conf"), "--dir", str(folder), "--port", str(port), "--bind", "127.0.0.1"], "redis2")
    wait_port(port)
    own, other = f"store.url=redis://127.0.0.1:{v.redis}", f"store.url=redis://127.0.0.1:{port}"
    bus = f"bus.url={v.nats}"
    root = {"token": v.issue("acme/root"), "owner": "acme/keep"} if v.mode == "jwt" else {"owner": "acme/keep"}
    v.http("PUT", "/agents/e", ECHO, **root)
    for name, sets in {"another store": [other, bus], "another store and name": [other, bus, "venue.name=evil"], "another prefix of the store": [own, bus, "store.prefix=other"], "another name": [own, bus, "venue.name=evil"], "another prefix of the queue": [own, bus, "bus.prefix=evil"], "another database": [own + "/3", bus], "the name in capitals": [own, bus, "venue.name=TRELLIS"]}.items():
        for what in ("worker", "serve"):
            args = [v.binary, what, *[x for s in [*sets, f"http.listen=127.0.0.1:{free_port()}"] for x in ("--set", s)]]
            p = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=v.env, cwd=folder)
            try:
                out = p.communicate(timeout=12)[0].decode(errors="replace")
            except subprocess.TimeoutExpired:
                p.kill()
                out = p.communicate()[0].decode(errors="replace")
                out = "STARTED " + out
            check(T, f"{what} with {name} doesn't start", "STARTED" not in out and p.returncode != 0, out[-500:])
            check(T, f"{what} with {name} is told what is meant", any(w in out for w in ("venue.name", "bus.prefix", "store", "adopt")) and "panicked" not in out, out[-400:])
    s, job = v.http("POST", "/agents/e/tasks?wait=10000", {"input": "x"}, **root)
    check(T, "behind all of these the venue works on", job.get("status") == "COMPLETE", (s, job))
    with socket.create_connection(("127.0.0.1", port), 3) as c:
        c.sendall(b"DBSIZE\r\n")
        size = c.recv(100)
    check(T, "the other store has no job of the queue", size.startswith(b":") and int(size[1:]) < 40, size)
