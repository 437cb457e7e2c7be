"""Attacks what ends by time: approvals that expire while they are answered, paused, held or redriven; sessions whose time to live is over while they wait;
jobs and ids that are forgotten while others name them; tokens and rights that end while streams, waits, children and timers go on.
Expected: what is over counts for nothing, what is decided at the last moment is decided once, and nothing open is forgotten."""

import http.client
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from venue import check

T = "expiring"
SETS = ["catalog.test=true", "worker.approval_time=4s", "retention.jobs=1m", "worker.audit=2s"]
C = "canaryex"
ASK = {"tools": [{"operation": "v/ops/lattice/append", "approval": "ask"}, "v/ops/human/ask"], "defaultTools": False}


def attack(v):
    who = {"token": v.issue("acme/ann")} if v.mode == "jwt" else {}
    approvals(v, who)
    sessions(v, who)
    forgotten(v, who)
    if v.mode == "jwt":
        tokens(v, who)


def end(v, job, who, seconds=10):
    return v.http("GET", f"/jobs/{job}?wait={seconds * 1000}", timeout=seconds + 10, **who)[1]


def waits(v, job, who, seconds=6):
    for _ in range(seconds * 10):
        found = next((a for a in v.http("GET", "/approvals?limit=200", **who)[1].get("items", []) if a.get("job") == job), None)
        if found:
            return found
        time.sleep(0.1)
    return {}


def asks(v, who, path, **body):
    a = v.agent([[("lattice_append", {"path": path, "value": 1})], "done"], ASK, **who)
    job = v.http("POST", f"/agents/{a}/tasks", {"input": 1, "sessionId": "s", **body}, **who)[1].get("job")
    return a, job, waits(v, job, who)


def approvals(v, who):
    made = lambda path: v.read(path, **who)[1].get("value") or []
    # Nobody answers; an answer behind the end; one at the very end, by many.
    a, job, w = asks(v, who, "w/ex0")
    check(T, "an approval says when it expires, four seconds from its question", 3500 <= w.get("expires", 0) - w.get("asked", 0) <= 4500, w)
    e = end(v, job, who)
    check(T, "a call that nobody answers is denied, and its task ends", e.get("status") == "COMPLETE" and not made("w/ex0"), e)
    s, said = v.http("POST", f"/approvals/{w.get('id')}", {"approve": {}}, **who)
    check(T, "an answer behind the end is refused with a reason", 400 <= s < 500 and said.get("error") and not made("w/ex0"), (s, said))
    for i in range(5):
        path = f"w/exr{i}"
        a, job, w = asks(v, who, path)
        due = w["expires"] / 1000
        time.sleep(max(0, due - time.time() - 0.3 + i * 0.12))
        with ThreadPoolExecutor(10) as pool:
            got = list(pool.map(lambda k: (time.sleep(k * 0.05), v.http("POST", f"/approvals/{w['id']}", {"approve": {}}, **who))[1], range(10)))
        e = end(v, job, who)
        taken = [s for s, _ in got if s < 300]
        check(T, f"ten answers about the end, {i}: no error of the server", all(s < 500 for s, _ in got), got)
        check(T, f"ten answers about the end, {i}: made once if one was taken, else never", e.get("status") == "COMPLETE" and made(path) == ([1] if taken else []), (taken, made(path), e))
    # Held meanwhile: paused, suspended, cancelled, edited.
    for name, hold, free in (("paused", lambda a, j: v.http("PUT", f"/jobs/{j}/pause", {}, **who), lambda a, j: v.http("PUT", f"/jobs/{j}/resume", {}, **who)), ("suspended", lambda a, j: v.http("PUT", f"/agents/{a}/suspend", {}, **who), lambda a, j: v.http("PUT", f"/agents/{a}/resume", {}, **who))):
        path = f"w/ex{name}"
        a, job, w = asks(v, who, path)
        hold(a, job)
        time.sleep(6)
        s, said = v.http("POST", f"/approvals/{w.get('id')}", {"approve": {}}, **who)
        check(T, f"an approval that expired while {name} is over", 400 <= s < 500 and not made(path), (s, said))
        free(a, job)
        e = end(v, job, who)
        check(T, f"a task whose approval expired while {name} ends without the call", e.get("status") == "COMPLETE" and not made(path), e)
        # Answered in time, held beyond it.
        a, job, w = asks(v, who, path)
        hold(a, job)
        s, said = v.http("POST", f"/approvals/{w.get('id')}", {"approve": {}}, **who)
        check(T, f"an approval is answered while {name}", s < 300, (s, said))
        time.sleep(6)
        check(T, f"nothing is done while {name}", not made(path), made(path))
        free(a, job)
        e = end(v, job, who)
        check(T, f"what was approved in time is done once behind the hold, or denied ({name})", e.get("status") == "COMPLETE" and made(path) in ([], [1]), (e, made(path)))
    # A deadline that is nearer than the answer.
    a = v.agent([[("lattice_append", {"path": "w/exd", "value": 1})], "done"], {**ASK, "limits": {"wallClock": 2}}, **who)
    job = v.http("POST", f"/agents/{a}/tasks", {"input": 1}, **who)[1]["job"]
    w = waits(v, job, who)
    e = end(v, job, who)
    check(T, "a task ends at its deadline while it waits for a person", e.get("status") == "FAILED", e)
    s, said = v.http("POST", f"/approvals/{w.get('id')}", {"approve": {}}, **who)
    check(T, "behind the deadline nothing is approved", 400 <= s < 500 and not made("w/exd"), (s, said))
    s, said = v.http("PUT", f"/jobs/{job}/redrive", {}, **who)
    check(T, "a task that ended at its deadline is driven again", s < 300, (s, said))
    w2 = waits(v, said.get("job"), who, 2)
    s, said = v.http("POST", f"/approvals/{w.get('id')}", {"approve": {}}, **who)
    check(T, "by a question of its own", 400 <= s < 500 and w2.get("id") != w.get("id"), (s, w2))


def sessions(v, who):
    """Times to live, in the middle of everything."""
    v.agent([lambda b: "ok"], {"session": {"ttl": "2s"}, "tools": ["v/ops/human/ask"]}, name="exttl", **who)
    model = v.last_model
    v.task("exttl", C + "-one", body={"sessionId": "s"}, **who)
    time.sleep(3)
    for method, path, body in (("POST", "/agents/exttl/context", {"session": "s"}), ("POST", "/agents/exttl/context", {"session": "s", "task": "x"})):
        s, said = v.http(method, path, body, **who)
        check(T, f"the preview of a session whose time is over is empty: {json.dumps(body)}", C not in json.dumps(said), str(said)[:300])
    with ThreadPoolExecutor(6) as pool:
        got = list(pool.map(lambda i: v.http("POST", "/agents/exttl/tasks?wait=8000", {"input": f"new {i}", "sessionId": "s"}, **who), range(6)))
    check(T, "six tasks at once at its end are all done", all(x.get("status") == "COMPLETE" for _, x in got), got)
    check(T, "none of them sees what was before", C not in json.dumps(v.model.seen[model][1:]), json.dumps(v.model.seen[model][1:])[:300])
    v.model.says(model, [[("human_ask", {"title": C + "-t", "asks": [{"id": "a", "type": "text", "prompt": "p"}]})], "done", "done"])
    job = v.http("POST", "/agents/exttl/tasks", {"input": 1, "sessionId": "w"}, **who)[1]["job"]
    w = waits(v, job, who)
    time.sleep(2.6)
    s, said = v.http("POST", f"/approvals/{w.get('id')}", {"answers": {"a": "an answer"}}, **who)
    e = end(v, job, who)
    check(T, "a session that waits for a person doesn't expire", e.get("status") == "COMPLETE" and "an answer" in json.dumps(v.model.seen[model]), (s, said, e))
    for ttl in ("0s", "-1s", "1ms", "x", 5, None, "99999999999d", "", [], {"a": 1}):
        s, said = v.http("PUT", "/agents/exodd", {"model": {"provider": "scripted", "name": "echo"}, "session": {"ttl": ttl}}, **who)
        check(T, f"a time to live of {ttl!r} is taken, or refused with a reason", s < 500 and (s < 300 or said.get("error")), (s, said))
        if s < 300:
            s, said = v.task("exodd", 1, 5000, body={"sessionId": "s"}, **who)
            check(T, f"with a time to live of {ttl!r} a task is done", said.get("status") == "COMPLETE", said)


def forgotten(v, who):
    """Jobs are kept a minute behind their end."""
    v.agent(["kept"], name="exk", **who)
    send = lambda: v.http("POST", "/agents/exk/tasks?wait=5000", {"input": C, "sessionId": "s"}, headers={"Idempotency-Key": "ex-key"}, **who)
    s, one = send()
    v.agent([[("fail_task", {"error": "x"})]], name="exf", **who)
    s, failed = v.task("exf", 1, **who)
    v.agent([[("test_delay", {"delay": 90000})], "late"], {"tools": ["v/ops/test/delay"], "limits": {"toolTimeout": 120}}, name="exlong", **who)
    long = v.http("POST", "/agents/exlong/tasks", {"input": C + "-long"}, **who)[1]["job"]
    v.agent(["kid"], name="exkid", **who)
    v.agent([[("agent_request", {"agentId": "exkid", "input": 1, "wait": 3000})], [("test_delay", {"delay": 85000})], "late"], {"tools": ["v/ops/test/delay", "v/ops/agent/request"], "limits": {"toolTimeout": 120}}, name="exparent", **who)
    parent = v.http("POST", "/agents/exparent/tasks", {"input": 1}, **who)[1]["job"]
    v.http("PUT", "/agents/exk/suspend", {}, **who)
    held = v.http("POST", "/agents/exk/tasks", {"input": "held"}, **who)[1]["job"]
    paused = v.http("POST", "/agents/exf/tasks", {"input": "paused", "sessionId": "p"}, **who)
    v.http("PUT", f"/jobs/{paused[1]['job']}/pause", {}, **who)
    s, again = send()
    check(T, "as long as it is kept, an id is the same job", again.get("job") == one.get("job"), (one, again))
    for _ in range(100):
        if v.http("GET", f"/jobs/{one['job']}", **who)[0] == 404:
            break
        time.sleep(1)
    gone = v.http("GET", f"/jobs/{one['job']}", **who)[0] == 404
    check(T, "an ended job is forgotten", gone, v.http("GET", f"/jobs/{one['job']}", **who))
    for name, job in (("one that runs", long), ("one that has a child", parent), ("one that is held", held)):
        s, said = v.http("GET", f"/jobs/{job}", **who)
        check(T, f"{name} is not forgotten", s == 200, (s, said))
    for method, path, body in () if not gone else (("PUT", f"/jobs/{one['job']}/redrive", {}), ("PUT", f"/jobs/{one['job']}/cancel", {}), ("PUT", f"/jobs/{one['job']}/delete", {}), ("GET", f"/jobs/{one['job']}/sse", None), ("POST", f"/jobs/{one['job']}", "x")):
        s, said = v.http(method, path, body, **who)
        check(T, f"{method} {path[38:]} of a forgotten job finds nothing", s == 404, (s, str(said)[:200]))
    v.http("PUT", "/agents/exk/resume", {}, **who)
    s, new = send()
    check(T, "then its id is new again", not gone or s < 300 and new.get("status") == "COMPLETE" and not new.get("duplicate"), (s, new))
    e = end(v, held, who)
    check(T, "what was held is done", e.get("status") == "COMPLETE", e)
    e = end(v, parent, who, 60)
    check(T, "a parent whose child was forgotten ends", e.get("status") == "COMPLETE", e)
    root = {"token": v.issue("acme/root")} if v.mode == "jwt" else {}
    s, said = v.run("venue/audit", {}, **root)
    check(T, "the audit misses nothing of what was forgotten", s == 200 and not said.get("unaccounted") and not said.get("unknown") and not said.get("damaged"), (s, said))


def tokens(v, who):
    """Streams and waits that go on when their token has ended or was taken back."""
    from charged import delta, sse
    text = sse(*[delta(f"{C}-{i:03d} ") for i in range(60)], delta("", "stop", {"prompt_tokens": 9, "completion_tokens": 9}), wait=0.15)
    for name in ("taken back by its jti", "taken back by its holder", "at its end"):
        v.agent([text], name="exst", **who)
        token = v.issue("acme/ann", ttl="4s") if name == "at its end" else v.issue("acme/ann", jti="ex-" + name.replace(" ", "-"))
        job = v.http("POST", "/agents/exst/tasks", {"input": 1}, token=token)[1]["job"]
        got, ended = [], []

        def follow():
            c = http.client.HTTPConnection("127.0.0.1", v.port, timeout=20)
            c.request("GET", f"/api/v1/jobs/{job}/sse", None, {"Authorization": "Bearer " + token})
            r = c.getresponse()
            try:
                while True:
                    b = r.read1(4096)
                    if not b:
                        break
                    got.append((time.time(), b))
            except OSError:
                pass
            ended.append(time.time())

        waited = []
        threads = [threading.Thread(target=follow), threading.Thread(target=lambda: waited.append(v.http("GET", f"/jobs/{job}?wait=12000", token=token, timeout=20)))]
        [t.start() for t in threads]
        time.sleep(2)
        began = time.time()
        revoked = {}
        if name == "taken back by its jti":
            revoked = v.run("policy/revoke", {"grant": "ex-" + name.replace(" ", "-")}, **who)[1]
        elif name == "taken back by its holder":
            revoked = v.run("policy/revoke", {"holder": "acme/ann"}, token=v.issue("acme/root"), owner="acme/ann")[1]
        else:
            time.sleep(2.5 + 31)
            began = time.time()
        [t.join(20) for t in threads]
        late = [b for at, b in got if at > began + 2 and C.encode() in b]
        if name != "at its end":
            check(T, f"a stream whose token is {name} says no more within two seconds", not late, (len(late), late[:1], v.http("GET", f"/jobs/{job}", token=v.issue("acme/root"), owner="acme/ann")[1].get("status")))
            check(T, f"a wait whose token is {name} tells no output", waited and C not in json.dumps(waited[0][1]), waited)
        for r in v.run("policy/show", {}, token=v.issue("acme/root"), owner="acme/ann")[1].get("revocations", []):
            v.run("policy/restore", {"id": r["id"]}, token=v.issue("acme/root"), owner="acme/ann")
        if name == "at its end":
            s, said = v.http("GET", f"/jobs/{job}", token=token)
            check(T, "a token is over at its end and the leeway behind it", s == 401, (s, said))
