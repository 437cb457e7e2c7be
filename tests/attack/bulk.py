"""Attacks what is done to many jobs at once: filters that are malformed, enormous or others' names, numbers that don't fit, cursors of other
questions, races of several callers, narrow rights, and what a job that is driven again may do and who reads it. Expected: nothing is
done but to the jobs that the filter takes and the caller may touch, each once, and the answer counts them."""

import json
import threading
import time

from venue import check

T = "bulk"
SETS = ["catalog.test=true"]


def good(said):
    text = said.get("detail") if isinstance(said, dict) else ""
    return isinstance(text, str) and len(text) > 8 and not any(w in text for w in ("panicked", "unwrap", "Err(", "Some(", "src/", "serde"))


def bulk(v, who, **body):
    return v.http("POST", "/jobs", body, timeout=60, **who)


def status(v, i, who):
    return v.http("GET", f"/jobs/{i}", **who)[1].get("status")


def fail(v, agent, n, who, **body):
    ids = [v.http("POST", f"/agents/{agent}/tasks", {"input": i, **body}, **who)[1]["job"] for i in range(n)]
    for i in ids:
        v.http("GET", f"/jobs/{i}?wait=8000", **who)
    return ids


def attack(v):
    who = {"token": v.issue("acme/ann")} if v.mode == "jwt" else {}
    eve = {"token": v.issue("evil/eve")} if v.mode == "jwt" else {"owner": "evil/eve"}
    v.agent([lambda b: (time.sleep(90), "x")[1]], {"concurrency": 2}, name="slow", **who)
    v.agent([[("fail_task", {"error": "failed-by-design"})]], name="fails", **who)
    open_ = [v.http("POST", "/agents/slow/tasks", {"input": f"canary-bulk-{i}"}, **who)[1]["job"] for i in range(6)]
    failed = fail(v, "fails", 5, who)
    v.agent([lambda b: (time.sleep(90), "x")[1]], name="slow", **eve)
    hers = v.http("POST", "/agents/slow/tasks", {"input": "eves"}, **eve)[1]["job"]
    filters(v, who, open_, failed)
    others(v, who, eve, open_, failed, hers)
    if v.mode == "jwt":
        narrow(v, who, open_, failed)
    counts(v, who, open_)
    races(v, who)
    check(T, "the other owner's job was touched by nobody", status(v, hers, eve) in ("PENDING", "STARTED"), status(v, hers, eve))
    if v.mode == "up":
        by_command(v)


def filters(v, who, open_, failed):
    odd = {"no action": {"dryRun": True}, "action list": {"action": ["cancel"]}, "action in capitals": {"action": "CANCEL"}, "delete": {"action": "delete"}, "pause": {"action": "pause"}, "no expected": {"action": "cancel"}, "expected text": {"action": "cancel", "expected": "6"}, "expected negative": {"action": "cancel", "expected": -1}, "expected part": {"action": "cancel", "expected": 6.5}, "expected huge": {"action": "cancel", "expected": 10**30}, "expected null": {"action": "cancel", "expected": None}, "dryRun text": {"action": "cancel", "dryRun": "true"}, "dryRun 1": {"action": "cancel", "dryRun": 1}, "dryRun false alone": {"action": "cancel", "dryRun": False},
           "limit 0": {"action": "cancel", "expected": 6, "limit": 0}, "limit 101": {"action": "cancel", "expected": 6, "limit": 101}, "limit text": {"action": "cancel", "expected": 6, "limit": "1"}, "status text": {"action": "cancel", "status": "PENDING", "dryRun": True}, "status unknown": {"action": "cancel", "status": ["NOPE"], "dryRun": True}, "status number": {"action": "cancel", "status": [1], "dryRun": True}, "status of ended": {"action": "cancel", "status": ["COMPLETE"], "dryRun": True}, "status open and ended": {"action": "cancel", "status": ["PENDING", "FAILED"], "dryRun": True}, "redrive of open": {"action": "redrive", "status": ["STARTED"], "dryRun": True}, "code unknown": {"action": "redrive", "code": ["a b"], "dryRun": True}, "code text": {"action": "redrive", "code": "DEAD", "dryRun": True},
           "since negative": {"action": "cancel", "since": -1, "dryRun": True}, "since text": {"action": "cancel", "since": "1d", "dryRun": True}, "since part": {"action": "cancel", "since": 0.5, "dryRun": True}, "since huge": {"action": "cancel", "since": 10**30, "dryRun": True}, "agent number": {"action": "cancel", "agent": 5, "dryRun": True}, "agent empty": {"action": "cancel", "agent": "", "dryRun": True}, "agent path": {"action": "cancel", "agent": "../x", "dryRun": True}, "agent list": {"action": "cancel", "agent": ["slow"], "dryRun": True}, "q number": {"action": "cancel", "q": 5, "dryRun": True}, "cursor number": {"action": "cancel", "expected": 6, "cursor": 5}, "cursor text": {"action": "cancel", "expected": 6, "cursor": "x"}, "cursor zero": {"action": "cancel", "expected": 6, "cursor": "\u0000"}, "cursor long": {"action": "cancel", "expected": 6, "cursor": "f" * 100000}, "reason number": {"action": "cancel", "expected": 6, "reason": 7}, "reason map": {"action": "cancel", "expected": 6, "reason": {}}, "owner": {"action": "cancel", "dryRun": True, "owner": "evil/eve"}, "states": {"action": "cancel", "dryRun": True, "state": ["PENDING"]}}
    for name, body in odd.items():
        s, said = bulk(v, who, **body)
        check(T, f"a filter with {name} is refused with a reason", 400 <= s < 500 and good(said), (s, said))
    for name, body in {"agent unknown": {"agent": "nobody"}, "session unknown": {"session": "nope"}, "session of another agent": {"session": "s1", "agent": "slow"}, "since the future": {"since": 2**53 - 1}, "until the beginning": {"until": 0}, "an empty range": {"since": 2000, "until": 1000}, "q nowhere": {"q": "nowhere-at-all"}, "q of wildcards": {"q": "can*"}, "q of an expression": {"q": "canary.*"}, "q of zero": {"q": "\u0000"}, "q long": {"q": "x" * 100000}, "no state": {"status": []} if False else {"q": "%"}}.items():
        for action in ("cancel", "redrive"):
            s, said = bulk(v, who, action=action, dryRun=True, **body)
            check(T, f"{action} with {name} takes none", s == 200 and said.get("matched") == 0 or 400 <= s < 500 and good(said), (s, said))
    for name, body in {"since 0": {"since": 0}, "until the far future": {"until": 2**53}, "until 2^63-1": {"until": 2**63 - 1}, "until 2^64-1": {"until": 2**64 - 1}, "all states": {"status": ["PENDING", "STARTED", "PAUSED", "INPUT_REQUIRED", "AUTH_REQUIRED"]}, "a state a thousand times": {"status": ["PENDING", "STARTED"] * 1000}, "small letters": {"status": ["pending", "started"]}, "the agent": {"agent": "slow"}, "q": {"q": "CANARY-bulk"}}.items():
        s, said = bulk(v, who, action="cancel", dryRun=True, **body)
        check(T, f"cancel with {name} counts the six", s == 200 and said.get("matched") == 6 or s == 400 and good(said), (s, said))
    for name, body in {"no filter": {}, "its code": {"code": ["TASK_FAILED"]}, "many codes": {"code": [f"X_{i}" for i in range(2000)]}, "its agent": {"agent": "fails"}, "its state": {"status": ["FAILED"]}}.items():
        s, said = bulk(v, who, action="redrive", dryRun=True, **body)
        check(T, f"redrive with {name} has an answer", s == 200 and said.get("matched") in (0, 5) or s == 400 and good(said), (s, said))
    far = int(time.time() * 1000) + 10**7
    for name, body in {"since": {"since": float(far)}, "until": {"until": 1000.0}, "since in other form": {"since": 1e15}}.items():
        s, said = bulk(v, who, action="cancel", dryRun=True, **body)
        check(T, f"a whole number as a float in {name} counts or is refused", s == 400 or said.get("matched") == 0, (s, said))
    for path, value in (("w/cas", 1), ("w/cas", 2)):
        v.write(path, value, **who)
    for expect in (99.0, 1e30, 1.0, 0.0, -0.0):
        s, said = v.run("lattice/write", {"path": "w/cas", "value": 3, "expect": expect}, **who)
        check(T, f"a write that expects {expect} of version 2 is refused", s in (400, 409), (s, said))
    s, said = v.run("agent/update", {"agentId": "slow", "config": {"description": "x"}, "expect": 77.0}, **who)
    check(T, "a change that expects version 77.0 is refused", s in (400, 409), (s, said))
    s, said = v.http("PATCH", "/agents/slow", {"config": {"description": "y"}, "expect": 77.0}, **who)
    check(T, "a patch that expects version 77.0 is refused", s in (400, 409), (s, said))
    v.write("w/ten", list(range(10)), **who)
    s, said = v.run("lattice/slice", {"path": "w/ten", "limit": 2.0, "offset": 2.0}, **who)
    check(T, "a slice from 2.0 of 2.0 is that or refused", s == 400 or said.get("values") == [2, 3], (s, said))
    s, said = v.run("lattice/read", {"path": "w/ten", "maxSize": 2.0}, **who)
    check(T, "a read of 2.0 bytes at most is that or refused", s == 400 or not said.get("value"), (s, said))
    for raw in (b'{"action":"cancel","dryRun":true,"expected":6,"dryRun":false}', b'{"action":"cancel","expected":6', b"[]", b'"cancel"', b"", b'{"action":"cancel","since":NaN,"dryRun":true}', b'{"action":"cancel","until":1e400,"dryRun":true}'):
        s, said = v.http("POST", "/jobs", raw=raw, **who)
        check(T, f"the body {raw[:40]} is refused", 400 <= s < 500 and good(said), (s, said))
    check(T, "after all of these the six are open", all(status(v, i, who) in ("PENDING", "STARTED") for i in open_), [status(v, i, who) for i in open_])
    check(T, "and the failed were not driven again", len(v.http("GET", "/jobs?agent=fails", **who)[1]["items"]) == 5, v.http("GET", "/jobs?agent=fails", **who))


def others(v, who, eve, open_, failed, hers):
    for action in ("cancel", "redrive"):
        for body in ({}, {"agent": "slow"}, {"agent": "fails"}, {"q": "canary-bulk"}, {"q": open_[0]}, {"session": "s-" + open_[0][:16]}):
            s, said = bulk(v, eve, action=action, dryRun=True, **body)
            check(T, f"another owner's {action} with {str(body)[:30]} counts his own alone", said.get("matched", 0) <= 1, (s, said))
            s, said = bulk(v, eve, action=action, expected=6, **body)
            check(T, f"and with her number {action} does nothing", s == 409 and "6" in json.dumps(said), (s, said))
    s, said = bulk(v, who, action="cancel", expected=6, limit=1, status=["PENDING"], q="nothing-of-this")
    check(T, "a number of other jobs does nothing", s == 409, (s, said))
    # A cursor of hers, of another action, of another filter.
    s, one = bulk(v, who, action="cancel", dryRun=True, agent="slow")
    s, page = v.http("GET", "/jobs?q=canary-bulk&limit=2", **who)
    for name, cursor in {"a list's": page.get("next"), "a job": open_[0], "the last job": open_[-1], "hers": hers}.items():
        if cursor:
            for he, whose in ((eve, "another owner"), (who, "she")):
                s, said = bulk(v, he, action="redrive", expected=0, cursor=str(cursor))
                check(T, f"{whose} with the cursor {name} is refused or does nothing", 400 <= s < 500 or said.get("done", 0) == 0, (s, said))
    check(T, "after this the six are open", all(status(v, i, who) in ("PENDING", "STARTED") for i in open_))


def narrow(v, who, open_, failed):
    ann = who["token"]
    one = {"token": v.issue("acme/ann", ["j:crud/read", f"j/{open_[0]}:job/cancel", f"j/{failed[0]}:job/redrive"])}
    for name, he in {"nothing": {"token": v.issue("acme/ann", [])}, "to cancel and not to read": {"token": v.issue("acme/ann", ["j:job/cancel"])}, "to read": {"token": v.issue("acme/ann", ["j:crud/read"])}, "to pause": {"token": v.issue("acme/ann", ["j:crud/read", "j:job/pause"])}}.items():
        for action in ("cancel", "redrive"):
            for n in (0, 5, 6):
                s, said = bulk(v, he, action=action, expected=n)
                check(T, f"with rights to {name} {action} of {n} does nothing", s >= 400 and s < 500 or said.get("done", 0) == 0, (s, said))
    check(T, "with these rights nothing was done", all(status(v, i, who) in ("PENDING", "STARTED") for i in open_), [status(v, i, who) for i in open_])
    if any(status(v, i, who) not in ("PENDING", "STARTED") for i in open_):
        return
    s, said = bulk(v, one, action="cancel", dryRun=True)
    s, said = bulk(v, one, action="cancel", expected=said.get("matched", 6))
    check(T, "who may cancel one of six cancels one and is told of the others", s == 200 and said.get("done") == 1 and said.get("denied") == 5, (s, said))
    check(T, "the others are open", status(v, open_[0], who) == "CANCELLED" and all(status(v, i, who) in ("PENDING", "STARTED") for i in open_[1:]))
    s, said = bulk(v, one, action="redrive", dryRun=True)
    s, said = bulk(v, one, action="redrive", expected=said.get("matched", 5))
    check(T, "who may redrive one of five does one", s == 200 and said.get("done") == 1 and said.get("denied") == 4, (s, said))
    open_[0] = v.http("POST", "/agents/slow/tasks", {"input": "canary-bulk-0"}, **who)[1]["job"]
    # Who drives a job again is not who asked: its authority is the job's, and its output is not his to read.
    v.write("w/hid", "canary-redrive", **who)
    v.write("w/pub", "public", **who)
    steps = [[("fail_task", {"error": "once"})], [("lattice_read", {"path": "w/hid"}), ("lattice_read", {"path": "w/pub"})], "I saw canary-redrive"]
    v.agent(steps, name="again", **who)
    m = v.last_model
    j = fail(v, "again", 1, who)[0]
    mine = v.issue("acme/ann", ["j:crud/read", "j:job/redrive"])
    s, said = v.http("PUT", f"/jobs/{j}/redrive", token=mine)
    new = said.get("job")
    check(T, "who may drive it again does", s == 200 and new, (s, said))
    s, end = v.http("GET", f"/jobs/{new}?wait=8000", token=mine)
    check(T, "but isn't told what it said", "canary" not in json.dumps(end) and s < 500, end)
    s, end = v.http("GET", f"/jobs/{new}", token=ann)
    check(T, "who asked first is", "canary-redrive" in json.dumps(end.get("output")), end)
    v.agent(steps, name="again2", **who)
    m = v.last_model
    j = fail(v, "again2", 1, who, context=[{"with": "w/pub", "can": "crud/read"}])[0]
    s, said = v.http("PUT", f"/jobs/{j}/redrive", token=ann)
    s, end = v.http("GET", f"/jobs/{said.get('job')}?wait=8000", token=ann)
    check(T, "driven again by the owner it can no more than its request could", "canary-redrive" not in json.dumps([x["messages"] for x in v.model.seen[m]]).replace("I saw canary-redrive", ""), v.model.seen[m][-1:])
    t = v.issue("acme/ann", ["g/again3:agent/request", "w/hid:crud/read"])
    v.agent(steps, name="again3", **who)
    m = v.last_model
    j = fail(v, "again3", 1, {"token": t})[0]
    v.run("policy/revoke", {"path": "w/hid"}, token=ann)
    s, said = v.http("PUT", f"/jobs/{j}/redrive", token=ann)
    v.http("GET", f"/jobs/{said.get('job')}?wait=8000", token=ann)
    check(T, "what was revoked since isn't read by what is driven again", "canary-redrive" not in json.dumps([x["messages"] for x in v.model.seen[m]]).replace("I saw canary-redrive", ""), v.model.seen[m][-1:])
    for r in v.run("policy/show", {}, token=ann)[1].get("revocations", []):
        v.run("policy/restore", {"id": r.get("id")}, token=ann)
    # A budget anew is one budget, and twice is once.
    v.agent([[("lattice_read", {"path": "w/pub"})]] * 50, name="again4", **who)
    m = v.last_model
    j = fail(v, "again4", 1, who, budget={"turns": 2})[0]
    got = [v.http("PUT", f"/jobs/{j}/redrive", token=ann)[1].get("job") for _ in range(4)]
    v.http("GET", f"/jobs/{got[0]}?wait=8000", token=ann)
    check(T, "four redrives are one job under one budget", len(set(got)) == 1 and len(v.model.seen[m]) <= 4, (got, len(v.model.seen[m])))


def counts(v, who, open_):
    s, said = bulk(v, who, action="cancel", dryRun=True, agent="slow")
    n = said["matched"]
    until = said.get("until")
    late = v.http("POST", "/agents/slow/tasks", {"input": "late"}, **who)[1]["job"]
    s, said = bulk(v, who, action="cancel", expected=n, agent="slow")
    check(T, "a job that came in between makes the number another: nothing is done", s == 409 and status(v, late, who) in ("PENDING", "STARTED"), (s, said))
    s, said = bulk(v, who, action="cancel", expected=n, agent="slow", until=until, limit=2, reason="tidy")
    check(T, "up to the time of the count two are done", s == 200 and said.get("done") == 2, (s, said))
    done, cursor = said.get("done", 0), said.get("next")
    for _ in range(10):
        if not cursor:
            break
        s, said = bulk(v, who, action="cancel", expected=n, agent="slow", until=until, limit=2, cursor=cursor)
        if s != 200:
            break
        done, cursor = done + said.get("done", 0), said.get("next")
    check(T, "the pages are all of them, and no more", s == 200 and done == n and status(v, late, who) in ("PENDING", "STARTED"), (s, said, done, n))
    check(T, "each is cancelled with its reason", all(status(v, i, who) == "CANCELLED" for i in open_), [status(v, i, who) for i in open_])
    v.http("PUT", f"/jobs/{late}/cancel", {}, **who)


def races(v, who):
    v.agent([[("fail_task", {"error": "x"})]] * 12 + ["fine"] * 50, name="race", **who)
    ids = [v.http("POST", "/agents/race/tasks", {"input": i, "sessionId": "one"}, **who)[1]["job"] for i in range(12)]
    for i in ids:
        v.http("GET", f"/jobs/{i}?wait=8000", **who)
    failed = sum(status(v, i, who) == "FAILED" for i in ids)
    got = []
    threads = [threading.Thread(target=lambda: got.append(bulk(v, who, action="redrive", expected=failed, agent="race"))) for _ in range(6)]
    threads += [threading.Thread(target=lambda i=i: got.append(v.http("PUT", f"/jobs/{i}/redrive", **who))) for i in ids]
    [t.start() for t in threads]
    [t.join() for t in threads]
    check(T, "six bulk redrives and twelve single ones at once: no error of the server", all(x[0] in (200, 409) for x in got), got[:5])
    time.sleep(3)
    s, said = v.http("GET", "/jobs?details=true&agent=race", **who)
    new = [x for x in said["items"] if x.get("redriveOf")]
    check(T, "each failed job was driven again once", len(new) == failed == len({x["redriveOf"] for x in new}), (failed, len(new)))
    for x in new:
        end = v.http("GET", f"/jobs/{x['id']}?wait=8000", **who)[1]
        check(T, "what was driven again has an end", end.get("status") in ("COMPLETE", "FAILED"), end)
    # Cancelled in bulk while they end by themselves: each has one end.
    v.agent([lambda b: (time.sleep(0.2), "x")[1]] * 60, name="quick", **who)
    ids = [v.http("POST", "/agents/quick/tasks", {"input": i}, **who)[1]["job"] for i in range(16)]
    got = []

    def some():
        n = bulk(v, who, action="cancel", dryRun=True, agent="quick")[1].get("matched", 0)
        got.append(bulk(v, who, action="cancel", expected=n, agent="quick"))
    threads = [threading.Thread(target=some) for _ in range(5)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    ends = [v.http("GET", f"/jobs/{i}?wait=8000", **who)[1].get("status") for i in ids]
    check(T, "cancelled in bulk while they end: each has one end", all(e in ("COMPLETE", "CANCELLED") for e in ends) and all(x[0] in (200, 409) for x in got), (ends, got))
    check(T, "what was counted as cancelled is", sum(x[1].get("done", 0) for x in got if x[0] == 200) == ends.count("CANCELLED"), (ends, got))
    s, said = bulk(v, who, action="redrive", dryRun=True, agent="quick")
    check(T, "cancelled jobs aren't failed ones", said.get("matched") == 0, said)


def by_command(v):
    for args in (("dead", "redrive"), ("dead", "redrive", "--agent", "fails"), ("dead", "redrive", "--since", "x", "--yes"), ("dead", "redrive", "--code", "no such", "--yes"), ("dead", "redrive", "--since", "-1d", "--yes"), ("job", "cancel"), ("job", "cancel", "--state", "complete", "--yes"), ("job", "cancel", "--state", "nope", "--yes"), ("job", "cancel", "--agent", "../x", "--yes"), ("job", "cancel", "0" * 32, "--state", "pending", "--yes"), ("dead", "redrive", "zz"), ("job", "pause", "zz"), ("job", "message", "0" * 32, "x")):
        done = v.cli(*args)
        text = done.stderr.decode()
        check(T, f"trellis {' '.join(args)[:40]} is refused with a reason", done.returncode not in (0, 1) and len(text) > 10 and "panicked" not in text, (done.returncode, text, done.stdout))
    check(T, "and has done nothing", not [x for x in v.http("GET", "/jobs?details=true&agent=fails")[1]["items"] if x.get("redriveOf")])
