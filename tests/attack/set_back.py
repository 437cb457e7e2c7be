"""Takes the tail from Redis: its log is copied, everything that protects somebody is changed, Redis is killed, alone or with all
processes, and comes back with the copy: revocations of each kind, cancels, pauses, suspensions, roots, gates, quotas, secrets, erasures,
narrower agents, spending, settlements. Expected: each is in force before anything else runs, any other change is put back or named."""

import base64
import json
import os
import shutil
import signal
import tempfile
import threading
import time

from venue import check, wait_port

T = "set_back"
KEY = "0a1b2c3d:" + base64.b64encode(os.urandom(32)).decode()
KEYS = tempfile.NamedTemporaryFile("w", suffix=".keys")
KEYS.write(KEY + "\n")
KEYS.flush()
SETS = (f"secrets.key_file={KEYS.name}", "worker.lease=3s", "worker.audit=2s", "retry.first=100ms", "spend.owners=acme/cap:tokens=1500", "spend.session=tokens=100000")
ENDS = ("COMPLETE", "FAILED", "CANCELLED", "REJECTED", "TIMEOUT")
ECHO = {"model": {"provider": "scripted", "name": "echo", "maxTokens": 16}, "defaultTools": False, "tools": []}


def process(v, name):
    return next(p for n, p in v.processes if n == name)


def copy_log(v):
    """Copies the log as it stands between two commands."""
    p = process(v, "redis")
    p.send_signal(signal.SIGSTOP)
    time.sleep(0.05)
    shutil.rmtree(v.folder / "before", ignore_errors=True)
    shutil.copytree(v.folder / "appendonlydir", v.folder / "before")
    p.send_signal(signal.SIGCONT)


def set_back(v, names):
    """Kills Redis and the processes of these names; Redis returns with the copied log."""
    gone = [(n, p) for n, p in v.processes if n in (*names, "redis")]
    for n, p in gone:
        p.kill()
        p.wait()
        v.processes.remove((n, p))
    shutil.rmtree(v.folder / "appendonlydir")
    shutil.copytree(v.folder / "before", v.folder / "appendonlydir")
    for n, p in sorted(gone, key=lambda x: ("nats", "redis", "worker", "serve").index(x[0])):
        v.start(p.args, n)
        if n in ("redis", "nats"):
            wait_port(v.redis if n == "redis" else int(v.nats.rsplit(":", 1)[1]))
    wait_port(v.port)
    for _ in range(300):
        if v.http("GET", "/readyz", root=True)[0] == 200:
            break
        time.sleep(0.1)


def tool(v, *args, token=None):
    return v.cli(*args, "--set", f"store.url=redis://127.0.0.1:{v.redis}", "--set", f"bus.url={v.nats}", timeout=60, token=token)


def after_loss(v, token):
    done = tool(v, "audit", "--after-loss", "--output", "json", token=token)
    return done.stdout.decode() + done.stderr.decode()


class Round:
    """What was made before the copy, and what was changed behind it."""

    def __init__(self, v, n):
        self.v, self.n = v, n
        self.root = {"token": v.issue("acme/root"), "owner": "acme/ann"} if v.mode == "jwt" else {}
        self.own = {} if v.mode == "jwt" else {"owner": "acme/ann"}
        self.cap = {"token": v.issue("acme/cap")} if v.mode == "jwt" else {"owner": "acme/cap"}

    def http(self, method, path, body=None, **more):
        return self.v.http(method, path, body, **{**self.own, **more})

    def run(self, op, input, **more):
        return self.v.run(op, input, **{**self.own, **more})

    def agent(self, name, steps, config=None):
        return self.v.agent(steps, config, name=f"{name}{self.n}", **self.own)

    def held(self, name, path):
        """A job of one write that waits on a suspended agent."""
        self.agent(name, [[("lattice_write", {"path": path, "value": "canary-ran"})], "done"])
        self.http("PUT", f"/agents/{name}{self.n}/suspend", {})
        s, job = self.http("POST", f"/agents/{name}{self.n}/tasks", {"input": "go"})
        assert s == 202, (s, job)
        return job["job"]

    def prepare(self):
        n = self.n
        self.jobs = {k: self.held(k, f"w/ran{n}/{k}") for k in ("cancel", "byjob", "pause", "holder", "bulk", "gone", "failed", "complete")}
        self.agent("active", ["fine"])
        self.agent("narrow", [[("lattice_write", {"path": f"w/ran{n}/narrow", "value": 1})], "done"])
        self.agent("leave", ["x"])
        self.agent("vanish", ["x"])
        self.agent("talk", ["canary-said"])
        self.http("POST", f"/agents/talk{n}/tasks?wait=8000", {"input": "canary-asked", "sessionId": "s"})
        s, self.deletable = self.http("POST", f"/agents/active{n}/tasks?wait=8000", {"input": "canary-job"})
        self.agent("mem", [[("memory_write", {"content": f"canary-memory {n}"})], "kept"], {"resources": {"memory": {"mode": "read-write"}}})
        s, job = self.http("POST", f"/agents/mem{n}/tasks?wait=8000", {"input": "remember", "context": [f"app/user/u{n}"]})
        s, listed = self.run("resource/list", {"namespace": "app/user"}, **self.root)
        check(T, "the memory is there before it is erased", f"u{n}" in json.dumps(listed), (job, listed))
        for name in ("KEYDEL", "KEYHOST"):
            s, said = self.http("PUT", f"/secrets/{name}{n}", {"value": "12345678-" + name, "hosts": ["a.example"]})
            assert s < 300, said
        self.http("POST", f"/agents/active{n}/timers", {"input": "timer", "after": "40m", "name": f"t{n}"})
        s, timers = self.http("GET", "/timers")
        self.timer = next((t["timer"] for t in timers.get("items", []) if t.get("name") == f"t{n}"), None)
        self.agent("gate", [[("lattice_write", {"path": f"w/ran{n}/gate", "value": 1})], "done"], {"tools": [{"operation": "v/ops/lattice/write", "approval": "ask"}], "defaultTools": False})
        self.http("POST", f"/agents/gate{n}/tasks", {"input": "go"})
        for _ in range(40):
            s, said = self.http("GET", "/approvals")
            self.gate = next((a["id"] for a in said.get("items", []) if f"gate{n}" in json.dumps(a)), None)
            if self.gate:
                break
            time.sleep(0.2)
        self.v.http("PUT", f"/agents/echo{n}", ECHO, **self.cap)
        self.write("w/kept%d" % n, "old")
        self.write("w/map%d" % n, {"a": {"b": 1}})
        if self.v.mode == "jwt":
            self.ids = {k: f"jti-{k}-{n}" for k in ("plain", "op")}
            self.tokens = {"plain": self.v.issue("acme/ann", jti=self.ids["plain"]), "op": self.v.issue("acme/root", jti=self.ids["op"])}

    def write(self, path, value):
        return self.run("lattice/write", {"path": path, "value": value})

    def change(self):
        """Each change that protects, acknowledged; its status is told."""
        n, h = self.n, self.http
        did = {
            "cancel": h("PUT", f"/jobs/{self.jobs['cancel']}/cancel", {"reason": "no"}),
            "byjob": self.run("policy/revoke", {"grant": self.jobs["byjob"]}),
            "pause": h("PUT", f"/jobs/{self.jobs['pause']}/pause"),
            "holder": self.run("policy/revoke", {"holder": f"agent:holder{n}"}),
            "path": self.run("policy/revoke", {"path": f"w/payroll{n}"}),
            "suspend": h("PUT", f"/agents/active{n}/suspend", {"reason": "stop"}),
            "narrow": h("PATCH", f"/agents/narrow{n}", {"config": {"caps": []}}),
            "end": h("DELETE", f"/agents/leave{n}"),
            "remove": h("DELETE", f"/agents/vanish{n}?remove=true"),
            "session": self.run("agent/delete-session", {"agentId": f"talk{n}", "sessionId": "s"}),
            "delete job": h("PUT", f"/jobs/{self.deletable['job']}/delete"),
            "purge": self.run("resource/purge", {"namespace": f"app/user/u{n}", "recursive": True}, **self.root),
            "secret": h("DELETE", f"/secrets/KEYDEL{n}"),
            "hosts": h("PUT", f"/secrets/KEYHOST{n}", {"value": "87654321-new", "hosts": ["b.example"]}),
            "new secret": h("PUT", f"/secrets/KEYNEW{n}", {"value": "12345678-new", "hosts": ["a.example"]}),
            "timer": h("DELETE", f"/timers/{self.timer}"),
            "reject": h("POST", f"/approvals/{self.gate}", {"reject": {"reason": "never"}}),
            "gates": self.run("policy/approvals", {"caps": [{"with": f"w/gated{n}", "can": "crud/write"}]}, **self.root),
            "roots": self.run("policy/roots", {"caps": [{"with": "", "can": "*"}, {"with": f"w/root{n}", "can": "crud"}]}, **self.root),
            "fail task": self.run("agent/fail-task", {"agentId": f"failed{n}", "taskId": self.jobs["failed"], "error": "failed by hand"}),
            "complete task": self.run("agent/complete-task", {"agentId": f"complete{n}", "taskId": self.jobs["complete"], "result": "by hand"}),
            "gone": h("DELETE", f"/agents/gone{n}?remove=true"),
            "quota": self.v.http("PUT", "/quota", {"documents": 900000 + n, "bytes": 10**9 + n}, **{**self.own, **self.root}),
        }
        if self.v.mode == "jwt":
            did["jti"] = self.run("policy/revoke", {"grant": self.ids["plain"]})
            did["operator's jti"] = self.v.run("policy/revoke", {"grant": self.ids["op"]}, token=self.root["token"])
        s, said = h("POST", "/jobs", {"action": "cancel", "agent": f"bulk{n}", "dryRun": True})
        did["bulk"] = h("POST", "/jobs", {"action": "cancel", "agent": f"bulk{n}", "expected": said.get("matched")})
        self.spent = 0
        for i in range(4):
            s, job = self.v.http("POST", f"/agents/echo{n}/tasks?wait=6000", {"input": f"before {i}"}, **self.cap)
            self.spent += isinstance(job, dict) and job.get("status") == "COMPLETE"
        for what, (s, said) in did.items():
            check(T, f"round {n}: the change `{what}` is acknowledged", 200 <= s < 300, (s, said))
        # What protects nobody: put back or named.
        self.write("w/kept%d" % n, "new")
        self.write("w/lost%d" % n, "lost")
        self.write(["w", "map%d" % n, "a", "c"], 2)
        self.run("lattice/delete", {"path": f"w/map{n}/a/b"})
        self.run("asset/pin", {"path": f"w/kept{n}", "name": f"pin{n}"})
        s, self.asset = self.run("asset/store", {"content": f"asset {n}"})
        h("PUT", f"/agents/late{n}", ECHO)
        s, self.late = h("POST", f"/agents/late{n}/tasks?wait=6000", {"input": "late", "sessionId": "late"})
        self.run("agent/rename-session", {"agentId": f"late{n}", "sessionId": "late", "title": f"title {n}"})
        h("POST", f"/agents/late{n}/timers", {"input": "x", "after": "50m", "name": f"late{n}"})

    def end(self, job, seconds=15):
        said = {}
        for _ in range(int(seconds * 2)):
            s, said = self.http("GET", f"/jobs/{job}?wait=1000")
            if isinstance(said, dict) and said.get("status") in ENDS:
                return said
            time.sleep(0.2)
        return said

    def hammer(self, stop, seen):
        """Asks all the time for what must not be there any more."""
        n, h = self.n, self.http
        while not stop.is_set():
            for what, call, bad in (
                ("the revoked token", lambda: self.v.http("GET", "/agents", token=self.tokens["plain"]) if self.v.mode == "jwt" else (0, {}), lambda s, x: s == 200),
                ("the deleted secret", lambda: self.run("secret/list", {}), lambda s, x: s == 200 and f"KEYDEL{n}" in json.dumps(x)),
                ("the cancelled job", lambda: h("GET", f"/jobs/{self.jobs['cancel']}"), lambda s, x: s == 200 and x.get("status") != "CANCELLED"),
                ("the paused job", lambda: h("GET", f"/jobs/{self.jobs['pause']}"), lambda s, x: s == 200 and x.get("status") != "PAUSED"),
                ("the suspended agent", lambda: h("GET", f"/agents/active{n}"), lambda s, x: s == 200 and x.get("status") != "SUSPENDED"),
                ("the lost revocation", lambda: self.run("policy/show", {}), lambda s, x: s == 200 and f"payroll{n}" not in json.dumps(x)),
                ("the wider agent", lambda: h("GET", f"/agents/narrow{n}"), lambda s, x: s == 200 and x.get("config", x).get("caps") != []),
                ("the removed agent", lambda: h("GET", f"/agents/vanish{n}"), lambda s, x: s == 200)):
                s, said = call()
                seen.setdefault(what, []).append((s, said) if s and bad(s, said) else None)

    def judge(self, how):
        n, h, v = self.n, self.http, self.v
        def held(what, ok, detail=""):
            check(T, f"{how}: {what}", ok, detail)
        # First of all calls: what was revoked and suspended.
        if v.mode == "jwt":
            for k in ("plain", "op"):
                s, said = v.http("GET", "/agents", token=self.tokens[k])
                held(f"the token revoked by its id ({k}) counts for nothing", s in (401, 403), (s, said))
        s, said = h("POST", f"/agents/active{n}/tasks?wait=1500", {"input": "x"})
        held("a suspended agent runs nothing", said.get("status") not in ENDS or said.get("status") == "REJECTED", said)
        for k in ("cancel", "byjob", "pause", "holder", "bulk", "failed", "complete"):
            h("PUT", f"/agents/{k}{n}/resume")
        s, said = h("POST", f"/agents/narrow{n}/tasks?wait=6000", {"input": "x"})
        for k, states in {"cancel": ("CANCELLED",), "byjob": ("FAILED",), "holder": ("FAILED",), "bulk": ("CANCELLED",), "failed": ("FAILED",), "complete": ("COMPLETE",)}.items():
            job = self.end(self.jobs[k])
            held(f"the job of `{k}` is {states[0]}", job.get("status") in states, job)
        time.sleep(1)
        s, job = h("GET", f"/jobs/{self.jobs['pause']}")
        held("the paused job is still paused", job.get("status") == "PAUSED", job)
        for k in ("cancel", "byjob", "pause", "holder", "bulk", "gone", "failed", "complete", "narrow", "gate"):
            s, said = self.run("lattice/read", {"path": f"w/ran{n}/{k}"})
            held(f"`{k}` has written nothing", said.get("exists") is False, said)
        s, said = self.run("policy/show", {})
        text = json.dumps(said)
        for what, part in (("a path", f"payroll{n}"), ("a holder", f"agent:holder{n}"), ("a job", self.jobs["byjob"]), ("the gates", f"w/gated{n}"), ("the roots", f"w/root{n}")):
            held(f"the policy still has {what}", part in text, text[:500])
        s, said = h("GET", f"/agents/active{n}")
        held("the suspended agent says so", said.get("status") == "SUSPENDED", said)
        s, said = h("GET", f"/agents/narrow{n}")
        held("the narrower agent has no capabilities", said.get("config", said).get("caps") == [], said)
        s, said = h("GET", f"/agents/leave{n}")
        held("the ended agent has ended", s == 404 or said.get("status") == "TERMINATED", (s, said))
        for k in ("vanish", "gone"):
            s, said = h("GET", f"/agents/{k}{n}")
            held(f"the removed agent {k} is gone", s == 404, (s, said))
        s, said = h("GET", f"/agents/talk{n}/sessions/s")
        session_gone = "canary-" not in json.dumps(said)
        job_gone = h("GET", f"/jobs/{self.deletable['job']}")[0] == 404
        s, said = self.run("resource/list", {"namespace": "app/user"}, **self.root)
        held("what was erased is not listed", f"u{n}" not in json.dumps(said), said)
        s, turns = h("GET", f"/agents/mem{n}/turns")
        names = [t.get("name") or f"mem{n}/{t.get('session')}/{t.get('turn')}" for t in turns.get("items", turns.get("turns", []))]
        texts = [json.dumps(h("GET", f"/agents/{x.split('/', 1)[0]}/turns/{x.split('/', 1)[1]}?prompt=true")[1]) for x in names]
        held("no turn shows what was erased", not any("canary-memory" in t for t in texts), [t[:300] for t in texts])
        s, said = h("GET", "/secrets")
        s, said = self.run("secret/list", {})
        items = {x.get("name"): x for x in said.get("secrets", said.get("items", []))}
        held("the deleted secret is gone", not any(f"KEYDEL{n}" in k for k in items), said)
        held("the new secret is there", any(f"KEYNEW{n}" in k for k in items), said)
        held("the secret goes to its new host alone", "b.example" in json.dumps([x for k, x in items.items() if f"KEYHOST{n}" in k]) and "a.example" not in json.dumps([x for k, x in items.items() if f"KEYHOST{n}" in k]), said)
        s, said = h("GET", "/quota")
        held("the owner's own quota is in force", said.get("documents", {}).get("limit") == 900000 + n, said)
        ran = self.spent
        for i in range(8):
            s, job = v.http("POST", f"/agents/echo{n}/tasks?wait=6000", {"input": f"after {i}"}, **self.cap)
            ran += isinstance(job, dict) and job.get("status") == "COMPLETE"
        if n == 1:
            held("no more calls pass the cap than it lets", self.spent >= 1 and ran <= 7, (self.spent, ran))
        rows = []
        def back_or_named(what, ok, *words):
            rows.append((what, ok, words))
        back_or_named("the deletion of a session", session_gone, f"talk{n}/s", f"talk{n}")
        back_or_named("the deletion of a job", job_gone, self.deletable["job"])
        back_or_named("a document", self.run("lattice/read", {"path": f"w/lost{n}"})[1].get("exists"), f"lost{n}")
        back_or_named("a change of a document", self.run("lattice/read", {"path": f"w/kept{n}"})[1].get("value") == "new", f"kept{n}")
        value = self.run("lattice/read", {"path": f"w/map{n}/a"})[1].get("value") or {}
        back_or_named("an entry of a map", value.get("c") == 2, f"map{n}")
        back_or_named("the deletion of an entry", "b" not in value, f"map{n}")
        back_or_named("a pin", self.run("lattice/read", {"path": f"o/pin{n}"})[1].get("exists"), f"pin{n}")
        back_or_named("an asset", h("GET", f"/assets/{self.asset.get('hash')}")[0] == 200, str(self.asset.get("hash"))[:32])
        back_or_named("an agent", h("GET", f"/agents/late{n}")[0] == 200, f"late{n}")
        back_or_named("a job that has ended", h("GET", f"/jobs/{self.late.get('job')}")[1].get("status") == "COMPLETE", str(self.late.get("job")))
        back_or_named("a title", f"title {n}" in json.dumps(h("GET", f"/agents/late{n}/sessions")[1]), f"late{n}/late", "late")
        timers = json.dumps(h("GET", "/timers")[1])
        back_or_named("a timer", f"late{n}" in timers, f"late{n}")
        back_or_named("the end of a timer", self.timer not in timers, str(self.timer), f"active{n}")
        s, said = h("GET", "/approvals")
        back_or_named("a rejection", self.gate not in json.dumps(said), str(self.gate), f"gate{n}")
        for _ in range(20):
            text = after_loss(v, self.root.get("token"))
            if all(ok or any(w in text for w in words) for _, ok, words in rows):
                break
            time.sleep(2)
        for what, ok, words in rows:
            held(f"{what} is put back or named", ok or any(w in text for w in words), (words, text[-1500:]))


def attack(v):
    if v.mode == "jwt":
        v.token = v.issue("acme/ann")
    rounds = (("redis alone", (), 1), ("redis and all processes", ("worker", "serve"), 1), ("redis and the workers", ("worker",), 1), ("redis and the API", ("serve",), 1),
              ("redis, nats and all processes", ("nats", "worker", "serve"), 1), ("redis alone, twice", (), 2), ("all processes, twice", ("worker", "serve"), 2))
    for n, (how, names, times) in enumerate(rounds, 1):
        r = Round(v, n)
        r.prepare()
        time.sleep(1.2)
        copy_log(v)
        r.change()
        time.sleep(1.5)
        stop, seen = threading.Event(), {}
        asks = threading.Thread(target=r.hammer, args=(stop, seen))
        asks.start()
        for _ in range(times):
            set_back(v, names)
            time.sleep(2)
        stop.set()
        asks.join()
        for what, answers in seen.items():
            check(T, f"{how}: at no time was there {what}", len(answers) > 3 and not any(answers), [a for a in answers if a][:2])
        if "worker" in names and "serve" in names:
            s, said = r.run("lattice/read", {"path": f"w/lost{n}"})
            check(T, f"{how}: the tail is really gone", said.get("exists") is False, said)
        r.judge(how)
        root = r.root.get("token")
        done = tool(v, "doctor", token=root)
        check(T, f"{how}: doctor exits with a problem until it is settled", done.returncode == 1, (done.returncode, done.stdout[-600:], done.stderr[-300:]))
        done = tool(v, "audit", "--settle", token=root)
        check(T, f"{how}: an operator settles it", b"settled" in done.stdout + done.stderr, (done.returncode, done.stdout[-600:], done.stderr[-300:]))
        if v.mode == "jwt":
            done = tool(v, "audit", "--settle", token=v.token)
            check(T, f"{how}: who is no operator settles nothing", done.returncode == 7, (done.returncode, done.stdout[-600:], done.stderr[-300:]))
