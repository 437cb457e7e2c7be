"""Attacks what was taken back by what is made of it afterwards: redrives of children and of their redrives, names that are taken again, replays, forks,
timers and ids of a revoked time, restored and revoked once more, agents made anew by others, spellings of holders and paths, and revocations that
name too much. Expected: nothing starts under what was taken back, a name that is made anew has nothing of the old one, a restore gives back no more."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

from venue import check

T = "regained"
C = "canaryrg"


def attack(v):
    who = {"token": v.issue("acme/ann")} if v.mode == "jwt" else {}
    root = {"token": v.issue("acme/root"), "owner": "acme/ann"} if v.mode == "jwt" else {}
    chains(v, who, root)
    names(v, who, root)
    spelt(v, who, root)
    many(v, who, root)
    if v.mode == "jwt":
        tokens(v, who, root)


def end(v, job, who, seconds=8):
    return v.http("GET", f"/jobs/{job}?wait={seconds * 1000}", timeout=seconds + 10, **who)[1]


def restore(v, who, root):
    for r in v.run("policy/show", {}, **who)[1].get("revocations", []):
        v.run("policy/restore", {"id": r["id"]}, **root)


def fails(body):
    """A model whose task fails once it was asked, and that reads first."""
    said = [m for m in body["messages"] if m["role"] == "assistant"]
    return [("fail_task", {"error": "on purpose"})] if said and said[-1].get("tool_calls") else [("lattice_read", {"path": "w/rg"})]


def chains(v, who, root):
    """A parent whose child failed, revoked in each place; then all of them are driven again, one by one, in bulk, and what came of that, too."""
    for name, revoke in {"the parent's job": lambda a, p, c: {"grant": p}, "the child's job": lambda a, p, c: {"grant": c}, "the parent agent": lambda a, p, c: {"holder": f"agent:{a}"}, "the child agent": lambda a, p, c: {"holder": "agent:rgkid"}, "the path": lambda a, p, c: {"path": "w/rg"}, "the way to the child": lambda a, p, c: {"path": "g/rgkid"}}.items():
        v.write("w/rg", C, **who)
        v.agent([fails], name="rgkid", **who)
        kid = v.last_model
        boss = v.agent([[("agent_request", {"agentId": "rgkid", "input": 1, "wait": 6000})], [("fail_task", {"error": "boss"})]], name="rgboss", **who)
        parent = v.http("POST", "/agents/rgboss/tasks", {"input": 1}, **who)[1]["job"]
        e = end(v, parent, who, 12)
        child = next((j["id"] for j in v.http("GET", "/jobs?details=true&agent=rgkid&status=FAILED", **who)[1]["items"] if j.get("parent") == parent), None)
        check(T, f"{name}: parent and child have failed", e.get("status") == "FAILED" and child, (e, child))
        s, said = v.run("policy/revoke", revoke("rgboss", parent, child), **who)
        check(T, f"{name}: the revocation is taken", s == 200, (s, said))
        seen = len(v.model.seen[kid])
        news = []
        for job in (child, parent):
            s, said = v.http("PUT", f"/jobs/{job}/redrive", {}, **who)
            check(T, f"{name} is taken back: a redrive is taken, or refused with a reason", s < 500 and (s < 300 or said.get("error")), (s, said))
            news.append(said.get("job"))
        ends = [end(v, j, who, 12) for j in news if j]
        second = [v.http("PUT", f"/jobs/{j}/redrive", {}, **who)[1].get("job") for j in news if j]
        ends += [end(v, j, who, 12) for j in second if j]
        shown = json.dumps([b["messages"] for b in v.model.seen[kid][seen:]])
        if name in ("the path",):
            check(T, f"{name} is taken back: what is driven again reads nothing of it", C not in shown, shown[-400:])
        if name in ("the child's job", "the child agent"):
            check(T, f"{name} is taken back: its redrives fail with CAP_DENIED", end(v, news[0], who, 1).get("errorCode") == "CAP_DENIED", end(v, news[0], who, 1)) if news[0] else None
        if name in ("the parent's job", "the child agent", "the parent agent"):
            check(T, f"{name} is taken back: the child's model is asked no more", len(v.model.seen[kid]) == seen, (len(v.model.seen[kid]) - seen, [x.get("status") for x in ends]))
        check(T, f"{name} is taken back: everything that is driven again ends", all(x.get("status") in ("FAILED", "COMPLETE", "CANCELLED", "REJECTED") for x in ends), ends)
        s, said = v.http("POST", "/jobs", {"action": "redrive", "agent": "rgkid", "dryRun": True}, **who)
        s, said = v.http("POST", "/jobs", {"action": "redrive", "agent": "rgkid", "expected": said.get("matched", 0)}, **who)
        time.sleep(1.5)
        if name in ("the child agent", "the parent's job", "the parent agent"):
            check(T, f"{name} is taken back: nor by a redrive of all", len(v.model.seen[kid]) == seen, len(v.model.seen[kid]) - seen)
        # A replay asks no model and shows what its reader may read; the parent's answer is not changed by a child that ran again.
        e2 = end(v, parent, who, 1)
        check(T, f"{name}: what ended is as it ended", e2.get("status") == "FAILED" and e2.get("error") == e.get("error"), (e, e2))
        restore(v, who, root)
        for a in ("rgkid", "rgboss"):
            v.http("DELETE", f"/agents/{a}?remove=true", **who)


def names(v, who, root):
    """Names that are taken again: what the old agent, session, pin or secret left behind."""
    v.agent(["old"], {"resources": {"memory": {"mode": "read-write"}}}, name="rgname", **who)
    old = v.last_model
    v.task("rgname", C + "-old", body={"sessionId": "s1"}, **who)
    s, timer = v.http("POST", "/agents/rgname/timers", {"input": C + "-timer", "every": "10s", "name": "rgt"}, **who)
    s, soon = v.http("POST", "/agents/rgname/timers", {"input": C + "-soon", "after": "4s"}, **who)
    v.http("PUT", "/agents/rgname/suspend", {}, **who)
    job = v.http("POST", "/agents/rgname/tasks", {"input": C + "-waits", "sessionId": "s1"}, **who)[1]["job"]
    v.http("POST", "/agents/rgname/messages", {"input": C + "-mail", "sessionId": "s2"}, **who)
    s, said = v.http("DELETE", "/agents/rgname?remove=true", **who)
    check(T, "an agent with timers, mail and tasks is removed", s < 300, (s, said))
    e = end(v, job, who, 6)
    check(T, "its waiting task ends", e.get("status") in ("CANCELLED", "FAILED"), e)
    v.agent(["new"], {"caps": [{"with": "w/other", "can": "crud"}]}, name="rgname", **who)
    new = v.last_model
    time.sleep(6)
    seen = json.dumps(v.model.seen.get(new, []))
    check(T, "the new agent of the name is asked nothing by what the old one was told", not v.model.seen.get(new), seen[:400])
    left = v.http("GET", "/timers", **who)[1].get("items", [])
    check(T, "no timer of the old one is there", not [t for t in left if t.get("agentId") == "rgname" or t.get("agent") == "rgname"], left)
    e = v.task("rgname", "fresh", body={"sessionId": "s1"}, **who)[1]
    check(T, "its session of the old name is empty", C not in v.prompt() and e.get("status") == "COMPLETE", v.prompt()[-400:])
    s, said = v.http("GET", "/agents/rgname/turns?limit=50", **who)
    check(T, "its turns are its own", C not in json.dumps(said), said)
    s, said = v.http("PUT", f"/jobs/{job}/redrive", {}, **who)
    check(T, "a cancelled task of the old one isn't driven again", 400 <= s < 500, (s, said))
    # A revocation of the holder counts for whoever has the name, until it is restored.
    v.run("policy/revoke", {"holder": "agent:rgname"}, **who)
    v.http("DELETE", "/agents/rgname?remove=true", **who)
    v.agent(["newer"], name="rgname", **who)
    s, said = v.http("GET", "/agents/rgname", **who)
    e = v.task("rgname", "fresh", wait=4000, **who)[1]
    check(T, "an agent that is made anew under a revoked name works by its maker's whole configuration, or says that it is revoked", e.get("status") == "COMPLETE" or "CAP_DENIED" in json.dumps(e) or "revo" in json.dumps(e), e)
    restore(v, who, root)
    # Sessions and pins and secrets.
    v.agent([lambda b: "ok"], name="rgsess", **who)
    for i in range(3):
        v.task("rgsess", f"{C}-{i}", body={"sessionId": "one"}, **who)
        s, said = v.run("agent/delete-session", {"agentId": "rgsess", "sessionId": "one"}, **who)
        check(T, f"a session is deleted, time {i}", s == 200, (s, said))
        v.task("rgsess", f"clean-{i}", body={"sessionId": "one"}, **who)
        check(T, f"the session of the same name knows nothing of the one before, time {i}", C not in v.prompt(), v.prompt()[-300:])
        for method, path in (("GET", "/agents/rgsess/turns/one/1"), ("GET", "/agents/rgsess/turns/one/1?prompt=true"), ("POST", "/agents/rgsess/turns/one/1/replay")):
            s, said = v.http(method, path, {} if method == "POST" else None, **who)
            check(T, f"{method} {path[-20:]} of the new session shows the new turn", C not in json.dumps(said) and s < 500, (s, str(said)[:300]))
        v.run("agent/delete-session", {"agentId": "rgsess", "sessionId": "one"}, **who)
    v.http("PUT", "/secrets/RGKEY", {"value": C + "-secret-1", "hosts": ["a.example"]}, **who)
    v.http("DELETE", "/secrets/RGKEY", **who)
    s, said = v.http("PUT", "/secrets/RGKEY", {"value": C + "-secret-2", "hosts": ["b.example"]}, **who)
    r, job, _ = v.calls([("http_get", {"url": "https://a.example/", "headers": {"x": {"$secret": "s/RGKEY"}}})], {"tools": ["v/ops/http/get"]}, **who)
    check(T, "a secret that is set anew goes to its new hosts alone", "ok" not in r and "secret" in json.dumps(r) and C not in json.dumps(r), r)


def writes(body):
    said = [m for m in body["messages"] if m["role"] == "assistant"]
    return "done" if said and said[-1].get("tool_calls") else [("lattice_write", {"path": "w/sp/x", "value": 1})]


def spelt(v, who, root):
    """Holders and paths in other spellings: a revocation is of what it says, or is refused."""
    a = "rgsp%C3%A9"
    v.model.says("rgspelt", [writes])
    s, said = v.http("PUT", f"/agents/{a}", {"model": {"provider": "local", "name": "rgspelt"}, "caps": [{"with": "w/sp", "can": "crud"}]}, **who)
    check(T, "an agent with a letter of its own is made", s in (200, 201), (s, said))
    for holder in ("agent:rgspe\u0301", "agent:RGSPÉ", "agent:rgspé ", " agent:rgspé", "Agent:rgspé", "rgspé", "agent:rgsp%C3%A9", "agent:*", "agent:", "agent:rgspé/x", "agent:g/rgspé", "agent:rgsp\u200bé", "agent:", "*", "", None, [], {"a": 1}, "agent:rgspe", "аgent:rgspé"):
        s, said = v.run("policy/revoke", {"holder": holder}, **who)
        check(T, f"a revocation of the holder {holder!r} is taken or refused with a reason", s < 500 and (s < 300 or said.get("error")), (s, said))
        shown = v.run("policy/show", {}, **who)[1].get("revocations", [])
        if s < 300:
            check(T, f"and is listed as {holder!r}", len(shown) == 1, shown)
            if holder not in ("agent:rgspe\u0301", "agent:rgspé ", " agent:rgspé", "agent:rgsp%C3%A9", "*", "agent:*", "Agent:rgspé"):
                e = v.task(a, 1, 4000, **who)[1]
                check(T, f"a revocation of {holder!r} stops nobody else", e.get("errorCode") != "CAP_DENIED", e)
        restore(v, who, root)
        check(T, f"what {holder!r} took is given back", not v.run("policy/show", {}, **who)[1].get("revocations"), holder)
    for path in ("w/sp", "/w/sp", "w/sp/", "w//sp", "w/./sp", ["w", "sp"], f"/{'acme/ann' if who else 'local/me'}/w/sp", "w/s\u200bp", "W/sp", "w/sp/*", "w/*", "ｗ/sp", "w/%73p", "w\\sp", "/acme/bob/w/sp", "did:key:z6Mk/w/sp"):
        v.run("lattice/delete", {"path": "w/sp"}, **who)
        s, said = v.run("policy/revoke", {"path": path}, **who)
        check(T, f"a revocation of the path {path!r} is taken or refused with a reason", s < 500 and (s < 300 or said.get("error")), (s, said))
        if s < 300:
            shown = v.run("policy/show", {}, **who)[1].get("revocations", [])
            v.task(a, 1, 4000, **who)
            same = path in ("w/sp", "/w/sp", "w/sp/", "w//sp", ["w", "sp"]) or path == f"/{'acme/ann' if who else 'local/me'}/w/sp"
            wrote = v.read("w/sp/x", **who)[1].get("exists")
            check(T, f"a revocation of {path!r} holds for what it names and nothing else", bool(wrote) != same or path in ("w/sp/*", "w/*", "w/./sp"), (wrote, shown))
        restore(v, who, root)


def many(v, who, root):
    """Revocations and restores of one thing in a crowd, and restores by those who may not."""
    v.agent([lambda b: "done"], name="rgmany", **who)
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda i: v.run("policy/revoke", {"holder": "agent:rgmany", "reason": f"r{i % 3}"}, **who), range(24)))
    check(T, "twenty-four revocations of one agent at once: no error of the server", all(200 <= s < 500 for s, _ in got), [s for s, _ in got])
    shown = v.run("policy/show", {}, **who)[1].get("revocations", [])
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda r: v.run("policy/restore", {"id": r["id"]}, **root), shown[:-1]))
    e = v.task("rgmany", 1, 4000, **who)[1]
    check(T, "as long as one of them holds nothing starts", len(shown) < 2 or e.get("status") != "COMPLETE", (len(shown), e))
    if shown:
        if v.mode == "jwt":
            s, said = v.run("policy/restore", {"id": shown[-1]["id"]}, **who)
            check(T, "who is no operator restores nothing, not even his own", s in (401, 403, 404), (s, said))
        r, job, _ = v.calls([("job_run", {"operation": "v/ops/policy/restore", "input": {"id": shown[-1]["id"]}}), ("policy_restore", {"id": shown[-1]["id"]})], {"tools": ["v/ops/policy/restore", "v/ops/job/run"]}, **who)
        check(T, "an agent restores nothing", len(v.run("policy/show", {}, **who)[1].get("revocations", [])) >= 1, r)
    restore(v, who, root)


def tokens(v, who, root):
    """A narrow token's leavings after its `jti` is gone, as used by a wide one, and the other way round."""
    jti = "rg-jti"
    token = v.issue("acme/ann", ["g:*", "w/rg:crud", "j:*"], jti=jti)
    narrow = {"token": token}
    v.agent([lambda b: "ok"], name="rgtok", **narrow)
    model = v.last_model
    s, t1 = v.http("POST", "/agents/rgtok/timers", {"input": "tick", "after": "5s"}, **narrow)
    v.http("PUT", "/agents/rgtok/suspend", {}, **narrow)
    job = v.http("POST", "/agents/rgtok/tasks", {"input": 1}, headers={"Idempotency-Key": "rgk"}, **narrow)[1].get("job")
    s, said = v.http("POST", "/agents/rgtok/fork", {"to": "rgtok2"}, **narrow)
    s, said = v.run("policy/revoke", {"grant": jti}, **who)
    check(T, "a token is taken back by its jti", s == 200, (s, said))
    for method, path, body in (("PUT", "/agents/rgtok/resume", {}), ("PUT", f"/jobs/{job}/redrive", {}), ("GET", f"/jobs/{job}", None), ("POST", "/agents/rgtok/tasks", {"input": 2}), ("POST", "/run", {"operation": "v/ops/policy/show", "input": {}}), ("GET", f"/jobs/{job}/sse", None)):
        s, said = v.http(method, path, body, **narrow)
        check(T, f"the revoked token: {method} {path[:30]} is denied", s == 401, (s, said))
    v.http("PUT", "/agents/rgtok/resume", {}, **who)
    e = end(v, job, who)
    check(T, "a task of it that waited fails when a wide token lets its agent go on", e.get("status") == "FAILED" and e.get("errorCode") == "CAP_DENIED", e)
    s, said = v.http("PUT", f"/jobs/{job}/redrive", {}, **who)
    e = end(v, said.get("job"), who) if s < 300 else {}
    check(T, "driven again by a wide token it stands under the revoked one", e.get("status") != "COMPLETE", (s, said, e))
    for a in ("rgtok", "rgtok2"):
        e = v.task(a, 1, 4000, **who)[1]
        check(T, f"{a}, which was made under it, does nothing for a wide token", e.get("status") != "COMPLETE" and not v.model.seen.get(model), e)
        s, said = v.http("PATCH", f"/agents/{a}", {"config": {"description": "touched"}}, **who)
        e = v.task(a, 1, 4000, **who)[1]
        check(T, f"{a}: a part of its configuration by somebody else isn't enough", e.get("status") != "COMPLETE", (s, said, e))
    time.sleep(4)
    s, said = v.http("GET", "/timers?all=true", **who)
    check(T, "its timer has asked nothing", not v.model.seen.get(model), said)
    s, said = v.http("POST", "/agents/rgtok/tasks", {"input": 1}, headers={"Idempotency-Key": "rgk"}, **who)
    check(T, "its id is no id of the wide token", s == 409, (s, said))
    v.agent(["anew"], name="rgtok", **who)
    e = v.task("rgtok", 1, 4000, **who)[1]
    check(T, "its whole configuration by somebody else is", e.get("status") == "COMPLETE", e)
