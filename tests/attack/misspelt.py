"""Attacks what helps who misspells: names of operations, codes, statuses, keys, tools, providers, zones and arguments that are long, many or nearly
right, one and twenty at once, while another owner works and `/livez` is asked. Expected: each is refused within a moment by a short error, and
nobody else waits for it."""

import json
import os
import threading
import time

from venue import check

T = "misspelt"
N = 10_000


def processor(v):
    """Seconds of a processor that the venue's own processes have used."""
    total = 0
    for name, p in v.processes:
        if name in ("up", "serve", "worker"):
            with open(f"/proc/{p.pid}/stat") as f:
                total += sum(int(x) for x in f.read().rsplit(")", 1)[1].split()[11:13])
    return total / os.sysconf("SC_CLK_TCK")


def attack(v):
    who = {"token": v.issue("acme/ann")} if v.mode == "jwt" else {}
    bob = {"token": v.issue("acme/bob")} if v.mode == "jwt" else {"owner": "local/bob"}
    v.agent(["ok"], name="ms", **who)
    v.agent(["ok"], name="ms", **bob)
    model = {"model": {"provider": "local", "name": "x"}}
    word = "x" * N
    words = {"run": ("POST", "/run", {"operation": "v/ops/" + word, "input": {}}), "run, bare": ("POST", "/run", {"operation": word, "input": {}}), "invoke": ("POST", "/invoke", {"operation": word, "input": {}}), "job/run": ("POST", "/run", {"operation": "v/ops/job/run", "input": {"operation": word, "input": {}}}), "an operation": ("GET", "/operations/" + word, None), "an adapter": ("GET", f"/adapters/{word}/operations", None), "a value": ("GET", f"/values/{word}?path=w", None),
             "a code": ("POST", "/jobs", {"action": "redrive", "dryRun": True, "code": [word]}), "a status": ("POST", "/jobs", {"action": "pause", "dryRun": True, "status": [word]}), "an action": ("POST", "/jobs", {"action": word, "dryRun": True}), "a code of a list": ("GET", "/jobs?code=" + word, None), "a status of a list": ("GET", "/jobs?status=" + word, None), "500 codes": ("POST", "/jobs", {"action": "pause", "dryRun": True, "code": [f"DEAD{i}" * 10 for i in range(500)]}),
             "a key": ("PUT", "/agents/msx", {**model, word: 1}), "500 keys": ("PUT", "/agents/msx", {**model, **{f"systemPromp{i}": 1 for i in range(500)}}), "a provider": ("PUT", "/agents/msx", {"model": {"provider": word, "name": "x"}}), "a provider, strictly": ("PUT", "/agents/msx?strict=true", {"model": {"provider": word, "name": "x"}}), "a tool": ("PUT", "/agents/msx", {**model, "tools": ["v/ops/" + word]}), "60 tools": ("PUT", "/agents/msx", {**model, "tools": [f"v/ops/lattice/{i}" + "x" * 400 for i in range(60)]}), "a binding": ("PUT", "/agents/msx", {**model, "toolArgInjection": {word: {"a": "b"}}}), "200 bindings": ("PUT", "/agents/msx", {**model, "toolArgInjection": {f"lattice_wrote{i}" * 5: {"a": "b"} for i in range(200)}}), "a bound argument": ("PUT", "/agents/msx", {**model, "toolArgInjection": {"lattice_write": {word: "b"}}}), "a source": ("PUT", "/agents/msx", {**model, "contextMapping": [{"key": "k", "source": word}]}), "a loop": ("PUT", "/agents/msx", {**model, "loop": word}), "an ability": ("PUT", "/agents/msx", {**model, "caps": [{"with": "w", "can": word}]}), "an agent": ("GET", "/agents/" + word[:8000], None),
             "a field": ("POST", "/agents/ms/tasks", {"input": 1, word: 1}), "an argument": ("POST", "/run", {"operation": "v/ops/lattice/read", "input": {"path": "w", word: 1}}), "a zone": ("POST", "/agents/ms/timers", {"input": 1, "cron": "0 9 * * *", "timezone": word}), "a kind": ("POST", "/agents/ms/timers", {"input": 1, "after": "5m", "kind": word}), "a cron": ("POST", "/agents/ms/timers", {"input": 1, "cron": word}), "a route": ("GET", "/" + word[:8000], None), "an experiment's model": ("POST", "/agents/ms/turns/s1/1/replay", {"model": "x/" + word})}
    for name, (method, path, body) in words.items():
        began = processor(v)
        s, said = v.http(method, path, body, timeout=90, **who)
        took = processor(v) - began
        check(T, f"{name} of {N} characters is answered, no error of the server", s and (s < 500 or s == 501), (s, str(said)[:200]))
        check(T, f"{name} of {N} characters costs less than a quarter second of a processor", took < 0.25, round(took, 2))
        check(T, f"{name} of {N} characters: what is said is short", len(json.dumps(said)) < 8192, len(json.dumps(said)))
    # By a model: a call, and what it is told.
    for call in (("x" * N, {}), ("job_run", {"operation": "x" * N, "input": {}}), ("lattice_read", {"x" * N: 1}), ("agent_request", {"agentId": "x" * 128, "input": 1})):
        began = time.time()
        a = v.agent([[call], "done"], **who)
        s, job = v.task(a, wait=30000, timeout=60, **who)
        check(T, f"a model that calls {call[0][:12]} with a long word: its task ends in time", job.get("status") == "COMPLETE" and time.time() - began < 10, (round(time.time() - began, 1), job))
    # Twelve at once, while another owner works.
    began, threads = time.time(), []
    for _ in range(12):
        threads.append(threading.Thread(target=lambda: v.http("POST", "/run", {"operation": "y" * 60_000, "input": {}}, timeout=60, **who), daemon=True))
        threads[-1].start()
    time.sleep(0.3)
    began = time.time()
    s, said = v.http("GET", "/livez", root=True, timeout=60)
    check(T, "while one owner misspells twelve times /livez is answered within 3 s", s == 200 and time.time() - began < 3, (s, round(time.time() - began, 1)))
    began = time.time()
    s, job = v.task("ms", wait=30000, timeout=60, **bob)
    check(T, "and another owner's task is done within 5 s", job.get("status") == "COMPLETE" and time.time() - began < 5, (round(time.time() - began, 1), job))
    for t in threads:
        t.join(70)
    if v.mode == "jwt":
        for path in ("/operations/" + "x" * N, "/jobs?code=" + "x" * N):
            began = time.time()
            s, said = v.http("GET", path, timeout=60)
            check(T, f"without a token {path[:8]} is refused at once", s == 401 and time.time() - began < 1, (s, round(time.time() - began, 1)))
