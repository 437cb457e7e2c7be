"""Takes the tail from Redis when what protects is large or many: policies and agents beyond a message of NATS, hundreds of revocations, cancels of
many at once, suspensions of many, long namespaces that were erased, caps used by many calls; with processes alive, dead, and when the
queue was away meanwhile. Expected: each is in force before anything else runs, or was refused when it was asked for."""

import json
import time

import set_back
from set_back import KEYS, copy_log, process
from venue import check, wait_port

T = "set_back_large"
SETS = set_back.SETS
OWN = {"owner": "acme/big"}


def attack(v):
    for n, (how, names) in enumerate((("alive", ()), ("dead", ("worker", "serve"))), 1):
        policy(v, n, how, names)
        many(v, n, how, names)
        agents(v, n, how, names)
    away(v)


def around(v, names, change):
    """Copies the log, makes the change and sets the store back; what the change said."""
    time.sleep(1.2)
    copy_log(v)
    said = change()
    time.sleep(1.5)
    set_back.set_back(v, names)
    time.sleep(1)
    return said


def policy(v, n, how, names):
    own = {"owner": f"acme/pol{n}"}
    # As large as a policy may be, of what a message escapes most.
    for i in range(200):
        s, said = v.run("policy/revoke", {"path": f"w/pad{i}", "reason": "\"" * 2000}, **own)
        if s != 200:
            break
    check(T, f"{how}: a policy has a bound, and the refusal says what to do", s == 413 and "restore" in json.dumps(said), (s, str(said)[:300]))
    rows = v.run("policy/show", {}, **own)[1]["revocations"]
    for row in rows[:3]:
        v.run("policy/restore", {"id": row["id"]}, **own)
    agent = v.agent([[("lattice_write", {"path": "w/late", "value": "canary-ran"})], "done"], **own)
    s, said = around(v, names, lambda: v.run("policy/revoke", {"path": "w/late", "reason": "y" * 450000}, **own))
    s2, shown = v.run("policy/show", {}, **own)
    check(T, f"{how}: a revocation in a policy as large as it may be is in force, or was refused", s >= 400 or "w/late" in json.dumps(shown)[-1000000:], (s, str(shown)[:200]))
    s3, job = v.http("POST", f"/agents/{agent}/tasks?wait=8000", {"input": 1}, **own)
    check(T, f"{how}: and nothing is written under it", s >= 400 or v.run("lattice/read", {"path": "w/late"}, **own)[1].get("exists") is False, (s, job))
    own = {"owner": f"acme/rows{n}"}
    got = around(v, names, lambda: [v.run("policy/revoke", {"path": f"w/r{i}"}, **own)[0] for i in range(250)])
    s, shown = v.run("policy/show", {}, **own)
    there = {r.get("path") for r in shown.get("revocations", [])}
    missing = [i for i, s in enumerate(got) if s == 200 and f"w/r{i}" not in there]
    check(T, f"{how}: each of 250 revocations is in force", not missing and len(there) > 200, (missing[:10], len(there)))


def many(v, n, how, names):
    own = {"owner": f"acme/many{n}"}
    agent = v.agent(["canary-ran"], **own)
    v.http("PUT", f"/agents/{agent}/suspend", {}, **own)
    jobs = [v.http("POST", f"/agents/{agent}/tasks", {"input": i}, **own)[1]["job"] for i in range(120)]

    def change():
        s, said = v.http("POST", "/jobs", {"action": "cancel", "agent": agent, "dryRun": True}, **own)
        count = said.get("matched")
        done = v.http("POST", "/jobs", {"action": "cancel", "agent": agent, "expected": count}, **own)
        cancelled = [j for j in jobs if v.http("GET", f"/jobs/{j}", **own)[1].get("status") == "CANCELLED"]
        rest = [j for j in jobs if j not in cancelled]
        paused = [j for j in rest if v.http("PUT", f"/jobs/{j}/pause", **own)[0] == 200]
        return done, cancelled, paused
    (done, cancelled, paused) = around(v, names, change)
    check(T, f"{how}: many jobs were cancelled at once", len(cancelled) >= 90, (done, len(cancelled), len(paused)))
    v.http("PUT", f"/agents/{agent}/resume", **own)
    time.sleep(4)
    wrong = [j for j in cancelled if v.http("GET", f"/jobs/{j}", **own)[1].get("status") != "CANCELLED"]
    check(T, f"{how}: each of the cancelled jobs is cancelled", not wrong, wrong[:5])
    wrong = [j for j in paused if v.http("GET", f"/jobs/{j}", **own)[1].get("status") != "PAUSED"]
    check(T, f"{how}: each of the paused jobs is paused", not wrong, wrong[:5])
    check(T, f"{how}: no model was asked for one of them", not v.model.seen.get(v.last_model), len(v.model.seen.get(v.last_model, [])))


def agents(v, n, how, names):
    own = {"owner": f"acme/agents{n}"}
    s, said = v.http("PUT", "/agents/huge", {"model": {"provider": "scripted", "name": "echo"}, "systemPrompt": "p" * 850000}, **own)
    check(T, f"{how}: an agent that fits no message is refused with what to do", s == 413 and "systemPrompt" in json.dumps(said), (s, str(said)[:300]))
    # Of what a message escapes most, as large as it may be with the description that comes to it.
    large = v.agent(["canary-ran"], {"systemPrompt": "\"" * 229000}, **own)
    model = v.last_model
    names_ = [v.agent(["canary-ran"], name=f"many{i}", **own) for i in range(30)]
    secret = v.http("PUT", "/secrets/LONG", {"value": "s" * 60000, "hosts": ["a.example"]}, **own)
    mem = v.agent([[("memory_write", {"content": f"canary-memory {i}"}) for i in range(60)], "kept"], {"resources": {"memory": {"mode": "read-write"}}}, **own)
    for i in range(3):
        v.http("POST", f"/agents/{mem}/tasks?wait=8000", {"input": "remember", "context": [f"app/user/u{n}/{'long' * 20}{i}"]}, **own)

    def change():
        return [v.http("PATCH", f"/agents/{large}", {"config": {"caps": [], "description": "d" * 40000}}, **own),
                v.http("PUT", f"/agents/{large}/suspend", {"reason": "r" * 50000}, **own),
                *[v.http("PUT", f"/agents/{a}/suspend", {"reason": "all"}, **own) for a in names_],
                v.http("DELETE", "/secrets/LONG", **own),
                v.run("resource/purge", {"namespace": f"app/user/u{n}", "recursive": True}, **own)]
    got = around(v, names, change)
    s, said = v.http("GET", f"/agents/{large}", **own)
    check(T, f"{how}: an agent as large as it may be is narrower, or was refused", got[0][0] >= 400 or said.get("config", said).get("caps") == [], (got[0][0], str(said)[:200]))
    check(T, f"{how}: an agent as large as it may be is suspended, or was refused", got[1][0] >= 400 or said.get("status") == "SUSPENDED", (got[1][0], said.get("status")))
    v.http("POST", f"/agents/{large}/tasks?wait=2000", {"input": 1}, **own)
    check(T, f"{how}: and runs nothing", got[1][0] >= 400 or not v.model.seen.get(model), len(v.model.seen.get(model, [])))
    wrong = [a for a, g in zip(names_, got[2:]) if g[0] == 200 and v.http("GET", f"/agents/{a}", **own)[1].get("status") != "SUSPENDED"]
    check(T, f"{how}: each of thirty agents is suspended", not wrong, wrong)
    check(T, f"{how}: a long secret is gone", secret[0] < 300 and "LONG" not in json.dumps(v.run("secret/list", {}, **own)[1]))
    check(T, f"{how}: many entries of a user are gone", got[-1][0] == 200 and f"u{n}/" not in json.dumps(v.run("resource/list", {"namespace": "app/user"}, **own)[1]), got[-1])
    turns = v.http("GET", f"/agents/{mem}/turns?limit=50", **own)[1]
    text = json.dumps(turns) + "".join(json.dumps(v.http("GET", f"/agents/{t['name'].split('/', 1)[0]}/turns/{t['name'].split('/', 1)[1]}?prompt=true", **own)[1]) for t in turns.get("items", turns.get("turns", [])) if t.get("name"))
    check(T, f"{how}: no turn shows them", "canary-memory" not in text, text[-400:])


def away(v):
    """While the queue is away what protects is refused, or it is in force behind a set-back."""
    own = {"owner": "acme/away"}
    agent = v.agent(["canary-ran"], **own)
    v.http("PUT", "/secrets/GONE", {"value": "12345678", "hosts": ["a.example"]}, **own)
    held = v.agent(["canary-ran"], **own)
    v.http("PUT", f"/agents/{held}/suspend", {}, **own)
    job = v.http("POST", f"/agents/{held}/tasks", {"input": 1}, **own)[1]["job"]
    time.sleep(1)
    copy_log(v)
    nats = process(v, "nats")
    nats.kill()
    nats.wait()
    v.processes.remove(("nats", nats))
    got = {"revoke": v.run("policy/revoke", {"path": "w/away"}, **own), "suspend": v.http("PUT", f"/agents/{agent}/suspend", {}, **own), "secret": v.http("DELETE", "/secrets/GONE", **own), "cancel": v.http("PUT", f"/jobs/{job}/cancel", {}, **own), "pause": v.http("PUT", f"/jobs/{job}/pause", **own)}
    for what, (s, said) in got.items():
        check(T, f"without the queue `{what}` is refused with a reason, or answered", s in (200, 409, 503) and (s == 200 or len(json.dumps(said)) > 40), (s, said))
    v.start(nats.args, "nats")
    wait_port(int(v.nats.rsplit(":", 1)[1]))
    time.sleep(2)
    set_back.set_back(v, ("worker", "serve"))
    text = json.dumps(v.run("policy/show", {}, **own)[1])
    check(T, "a revocation that was answered without the queue is in force", got["revoke"][0] != 200 or "w/away" in text, (got["revoke"][0], text))
    check(T, "a suspension that was answered without the queue is in force", got["suspend"][0] != 200 or v.http("GET", f"/agents/{agent}", **own)[1].get("status") == "SUSPENDED", got["suspend"])
    check(T, "a secret that was deleted without the queue is gone", got["secret"][0] != 200 or "GONE" not in json.dumps(v.run("secret/list", {}, **own)[1]), got["secret"])
    v.http("PUT", f"/agents/{held}/resume", **own)
    time.sleep(2)
    status = v.http("GET", f"/jobs/{job}", **own)[1].get("status")
    check(T, "a cancel that was answered without the queue is in force", got["cancel"][0] != 200 or status == "CANCELLED", (got["cancel"], status))
    s, job = v.http("POST", f"/agents/{agent}/tasks?wait=9000", {"input": 1}, **own)
    check(T, "and work goes on where nothing was suspended", job.get("status") == "COMPLETE" or v.http("GET", f"/agents/{agent}", **own)[1].get("status") == "SUSPENDED", (s, job))
