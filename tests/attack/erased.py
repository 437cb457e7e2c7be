"""Attacks an erasure by what was made of a user before it and what is done after it: forks, children, redrives, replays, experiments, summaries,
approvals, timers, paused and waiting jobs, streams, searches, settlements, ids that are sent again, and writes that run while it is done.
Expected: what was said under the erased namespace is in no answer, list, stream, prompt or search, and comes back by nothing."""

import http.client
import json
import threading
import time

from venue import check

T = "erased"
SETS = ["catalog.test=true"]
C = "canaryer"
NS = "app/user/u1"
CONTEXT = [NS]
FILE = {"resources": {"memory": {"mode": "read-write"}, "files": {"mode": "read-write"}}}


def attack(v):
    who = {"token": v.issue("acme/ann")} if v.mode == "jwt" else {}
    bob = {"token": v.issue("acme/bob")} if v.mode == "jwt" else {"owner": "local/bob"}
    root = {"token": v.issue("acme/root"), "owner": "acme/ann"} if v.mode == "jwt" else {}
    made = before(v, who)
    s, said = v.run("resource/purge", {"namespace": NS, "recursive": True}, **bob)
    check(T, "another owner's purge erases nothing here", any(C in json.dumps(v.http("GET", f"/jobs/{j}", **who)[1]) for j in made.values()), (s, said))
    theirs(v, bob)
    s, said = v.run("resource/purge", {"namespace": NS, "recursive": True}, **root)
    check(T, "the user is erased", s == 200, (s, said))
    nowhere(v, who, made, "after the erasure")
    again(v, who, made)
    nowhere(v, who, made, "after all of these")
    kept(v, bob)
    racing(v, who, root)


def task(v, agent, input, who, context=CONTEXT, wait=8000, **body):
    return v.http("POST", f"/agents/{agent}/tasks?wait={wait}", {"input": input, "context": context, **body}, timeout=30, **who)[1]


def before(v, who):
    """What there is of the user before he is erased, by its kind; ids of jobs."""
    jobs = {}
    say = lambda b: f"I said {C}-output" if C in json.dumps(b["messages"]) else "nothing"
    v.agent([[("memory_write", {"content": C + "-memory"}), ("memory_put", {"key": "k", "content": C + "-put"}), ("files_write", {"path": "a.txt", "content": C + "-file"})], say], FILE, name="er", **who)
    jobs["done"] = task(v, "er", C + "-input", who, sessionId="s1")["job"]
    jobs["done again"] = task(v, "er", C + "-input2", who, sessionId="s1")["job"]
    jobs["other"] = task(v, "er", "harmless", who, ["app/user/u2"], sessionId="s2")["job"]
    v.agent([[("fail_task", {"error": C + "-error"})], "x"], FILE, name="erf", **who)
    jobs["failed"] = task(v, "erf", C + "-failinput", who, sessionId="s1")["job"]
    v.agent([say], FILE, name="erkid", **who)
    v.agent([[("agent_request", {"agentId": "erkid", "input": C + "-kidinput", "wait": 5000})], say], {**FILE, "tools": ["v/ops/agent/request"]}, name="erboss", **who)
    jobs["parent"] = task(v, "erboss", C + "-bossinput", who, sessionId="s1")["job"]
    v.agent([[("human_ask", {"title": C + "-title", "asks": [{"id": "a", "type": "text", "prompt": C + "-prompt"}]})], say], {**FILE, "tools": ["v/ops/human/ask"]}, name="erask", **who)
    jobs["asks"] = task(v, "erask", C + "-askinput", who, wait=1, sessionId="s1")["job"]
    v.agent([[("memory_write", {"content": C + "-approved"})], say], {"resources": FILE["resources"], "tools": [{"operation": "v/ops/lattice/write", "approval": "ask"}]}, name="erap", **who)
    jobs["answered"] = task(v, "erap", C + "-apinput", who, sessionId="s1")["job"]
    v.agent([say], FILE, name="ersus", **who)
    v.http("PUT", "/agents/ersus/suspend", {}, **who)
    jobs["waits"] = task(v, "ersus", C + "-waitinput", who, wait=1, sessionId="s1")["job"]
    jobs["paused"] = task(v, "ersus", C + "-pausedinput", who, wait=1, sessionId="s2")["job"]
    v.http("PUT", f"/jobs/{jobs['paused']}/pause", {}, **who)
    for to in ("fork1",):
        s, said = v.run("agent/session-fork", {"agentId": "er", "sessionId": "s1", "at": 1, "to": to}, **who)
        check(T, "a session is forked", s == 200, (s, said))
    s, said = v.http("POST", "/agents/er/fork", {"to": "erfork", "timeline": True}, **who)
    check(T, "an agent is forked with its turns", s in (200, 201), (s, said))
    s, said = v.http("POST", "/agents/er/tasks?wait=8000", {"input": C + "-keyed", "context": CONTEXT, "sessionId": "s3"}, headers={"Idempotency-Key": "er-key"}, **who)
    jobs["keyed"] = said["job"]
    v.run("agent/rename-session", {"agentId": "er", "sessionId": "s3", "title": "harmless title"}, **who)
    s, said = v.http("POST", "/agents/er/messages", {"input": C + "-message", "context": CONTEXT, "sessionId": "s4"}, **who)
    time.sleep(2)
    check(T, "what is asked later is there now", all(C in json.dumps(v.http("GET", f"/jobs/{j}", **who)[1]) for k, j in jobs.items() if k != "other"), [k for k, j in jobs.items() if C not in json.dumps(v.http("GET", f"/jobs/{j}", **who)[1])])
    jobs["child"] = next((x["id"] for x in v.http("GET", "/jobs?details=true&agent=erkid", **who)[1]["items"]), jobs["parent"])
    return jobs


def theirs(v, bob):
    v.agent([[("memory_write", {"content": "bobs-memory"})], "bobs-output"], FILE, name="er", **bob)
    task(v, "er", "bobs-input", bob, sessionId="s1")


def kept(v, bob):
    said = v.http("GET", "/agents/er/sessions/s1", **bob)[1]
    check(T, "what another owner has under the same namespace is as it was", "bobs-output" in json.dumps(said), said)


def stream(v, job, who, last=None):
    c = http.client.HTTPConnection("127.0.0.1", v.port, timeout=2)
    h = {"Authorization": "Bearer " + who["token"]} if "token" in who else {}
    if last:
        h["Last-Event-ID"] = last
    got = b""
    try:
        c.request("GET", f"/api/v1/jobs/{job}/sse", None, h)
        r = c.getresponse()
        while len(got) < 50000:
            b = r.read1(4096)
            if not b:
                break
            got += b
    except OSError:
        pass
    c.close()
    return got.decode("utf-8", "replace")


ENDED = ("done", "done again", "failed", "parent", "child", "answered", "keyed")


def nowhere(v, who, jobs, when):
    for kind in ENDED:
        said = json.dumps(v.http("GET", f"/jobs/{jobs[kind]}", **who)[1])
        check(T, f"{when}: the job {kind} says nothing of the user", C not in said, said[:400])
        said = json.dumps(v.run("job/result", {"id": jobs[kind]}, **who)[1])
        check(T, f"{when}: nor does its result ({kind})", C not in said, said[:400])
        said = stream(v, jobs[kind], who)
        check(T, f"{when}: nor its stream ({kind})", C not in said, said[:600])
        said = stream(v, jobs[kind], who, "1-0")
        check(T, f"{when}: nor its stream, resumed ({kind})", C not in said, said[:600])
    for method, path, body in [("GET", f"/jobs?q={C}&details=true&agent=er", None), ("GET", f"/jobs?q={C}&details=true&agent=erboss", None), ("GET", "/jobs?details=true&limit=200&status=COMPLETE&agent=er", None), ("GET", "/jobs?details=true&limit=200&status=FAILED&agent=erf", None), ("GET", "/dead?all=true", None), ("GET", "/outcomes?all=true", None)] + [x for a, sessions in {"er": ("s1", "s3", "s4", "fork1"), "erfork": ("s1",), "erf": ("s1",), "erboss": ("s1",), "erap": ("s1",)}.items() for x in [("GET", f"/agents/{a}/turns?limit=100", None), ("GET", f"/agents/{a}/turns?q={C}", None), ("GET", f"/values/read?path=g/{a}/timeline", None), ("GET", f"/agents/{a}/sessions", None)] + [y for s in sessions for y in [("GET", f"/agents/{a}/sessions/{s}", None), ("POST", f"/agents/{a}/context", {"session": s}), ("GET", f"/agents/{a}/turns/{s}/1", None), ("GET", f"/agents/{a}/turns/{s}/1?prompt=true", None), ("GET", f"/agents/{a}/turns/{s}/2?prompt=true", None), ("POST", f"/agents/{a}/turns/{s}/1/replay", {}), ("POST", f"/agents/{a}/turns/{s}/2/replay", {"without": ["w/none"]}), ("POST", f"/agents/{a}/turns/{s}/2/replay", {"with": {"w/none": 1}})]]]:
        s, said = v.http(method, path, body, **who)
        text = json.dumps(said).replace(f"q={C}", "")
        check(T, f"{when}: {method} {path} {json.dumps(body or {})[:30]} shows nothing of the user", C not in text and s < 500, (s, text[max(0, text.find(C) - 250):][:500]))


def again(v, who, jobs):
    """What is driven, sent, answered and asked again."""
    s, said = v.http("PUT", f"/jobs/{jobs['failed']}/redrive", {}, **who)
    if s < 300:
        e = v.http("GET", f"/jobs/{said.get('job')}?wait=6000", **who)[1]
        check(T, "a failed job that is driven again shows its input to no model", C not in json.dumps(e), e)
    else:
        check(T, "a redrive of what was erased is refused with a reason", 400 <= s < 500 and said.get("error"), (s, said))
    s, said = v.http("POST", "/agents/er/tasks?wait=4000", {"input": "another", "context": CONTEXT, "sessionId": "s3"}, headers={"Idempotency-Key": "er-key"}, **who)
    check(T, "another request under the id of an erased one is a conflict", s == 409 and C not in json.dumps(said), (s, said))
    v.agent([lambda b: "echo"], FILE, name="er", **who)
    for session in ("s1", "s3", "fork1"):
        e = task(v, "er", "what do you know?", who, sessionId=session)
        check(T, f"the next turn of {session} sees nothing of the user", C not in v.prompt() and e.get("status") == "COMPLETE", v.prompt()[max(0, v.prompt().find(C) - 200):][:500])
    e = task(v, "er", "what do you know?", who, ["app"], sessionId="s1")
    check(T, "nor one of a wider grant", C not in v.prompt(), v.prompt()[-500:])
    r, job, _ = v.calls([("memory_read", {}), ("memory_search", {"query": C}), ("memory_get", {"key": "k"}), ("files_list", {}), ("files_read", {"path": "a.txt"})], FILE, {"context": CONTEXT}, **who)
    check(T, "nor do the tools find anything", C not in json.dumps(r).replace(f'"{C}"', "") and len(r) == 5, r)
    for w in v.http("GET", "/approvals?all=true&limit=200", **who)[1].get("items", []):
        if w.get("job") in (jobs["answered"],):
            check(T, "an approval that is over says nothing of the user", C not in json.dumps(w), w)
    v.http("PUT", "/agents/ersus/resume", {}, **who)
    v.http("PUT", f"/jobs/{jobs['paused']}/resume", {}, **who)
    for kind in ("waits", "paused"):
        e = v.http("GET", f"/jobs/{jobs[kind]}?wait=6000", **who)[1]
        check(T, f"a job that {kind} through the erasure ends", e.get("status") in ("COMPLETE", "FAILED", "CANCELLED"), e)
    v.http("PUT", f"/jobs/{jobs['asks']}/cancel", {}, **who)


def racing(v, who, root):
    """Turns that write while the user is erased, and twenty erasures at once."""
    v.agent([lambda b: (time.sleep(1.5), [("memory_write", {"content": C + "-late"})])[1], f"{C}-late-output"], FILE, name="erlate", **who)
    job = v.http("POST", "/agents/erlate/tasks", {"input": C + "-lateinput", "context": CONTEXT}, **who)[1]["job"]
    time.sleep(0.5)
    got = []
    threads = [threading.Thread(target=lambda: got.append(v.run("resource/purge", {"namespace": NS, "recursive": True}, **root)[0])) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    check(T, "eight erasures at once: no error of the server", all(200 <= s < 500 for s in got), got)
    e = v.http("GET", f"/jobs/{job}?wait=9000", **who)[1]
    check(T, "a turn that ran through an erasure ends", e.get("status") in ("COMPLETE", "FAILED"), e)
    s, said = v.run("resource/purge", {"namespace": NS, "recursive": True}, **root)
    said = json.dumps([v.http("GET", f"/jobs/{job}", **who)[1], v.http("GET", "/agents/erlate/turns?limit=50", **who)[1], v.http("GET", f"/jobs?q={C}&details=true&agent=erlate", **who)[1]]).replace(f"q={C}", "")
    check(T, "and an erasure after it takes the rest", C not in said, said[max(0, said.find(C) - 300):][:600])
    for bad in ("", "/", "*", "app/*", "../app", "app/user/u1/..", "app//user", "APP", None, [], {"with": "app"}, "w/x", "r/app", "g/er", "app/user/u1\u200b"):
        s, said = v.run("resource/purge", {"namespace": bad, "recursive": True}, **root)
        check(T, f"an erasure of {bad!r} is answered, or refused with a reason", s < 500 and (s < 300 or said.get("error")), (s, said))
        if bad in ("*", "app/*", "../app", "app/user/u1/..", None, [], "app/user/u1\u200b"):
            check(T, f"an erasure of {bad!r} is refused", 400 <= s < 500, (s, said))
