"""Attacks pauses and resumptions, one by one and in bulk: by strangers, by narrow tokens, with filters that search what they may not read, wrong
numbers, odd cursors, of jobs that run, wait, are behind, have children, timers and people; and what a paused job's session, deadline, spending
and messages do. Expected: who may not changes nothing and learns no number, what is paused runs nothing, each pause ends, none loses a job."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

from venue import check

T = "stopping"
C = "canaryst"


def attack(v):
    jwt = v.mode == "jwt"
    who = {"token": v.issue("acme/ann")} if jwt else {}
    bob = {"token": v.issue("acme/bob")} if jwt else {"owner": "local/bob"}
    gate = {"open": False}

    def slow(_):
        end = time.time() + 60
        while not gate["open"] and time.time() < end:
            time.sleep(0.1)
        return "done"

    v.agent([slow], {"concurrency": 1}, name="st", **who)
    model = v.last_model
    jobs = [v.http("POST", "/agents/st/tasks", {"input": f"{C}-{i}"}, **who)[1]["job"] for i in range(12)]
    bulk = lambda body, **more: v.http("POST", "/jobs", body, **{**who, **more})
    state = lambda: [v.http("GET", f"/jobs/{j}", **who)[1].get("status") for j in jobs]
    strangers(v, bob, jobs, bulk, state)
    if jwt:
        narrow(v, jobs, bulk, state)
    odd(v, bulk, state)
    s, said = bulk({"action": "pause", "agent": "st", "dryRun": True})
    count = said.get("matched")
    check(T, "a dry run counts the open jobs", s == 200 and 11 <= (count or 0) <= 12, (s, said))
    s, said = bulk({"action": "pause", "agent": "st", "expected": count})
    check(T, "all of them are paused", s == 200, (s, said))
    gate["open"] = True
    time.sleep(3)
    now = state()
    asked = len(v.model.seen[model])
    check(T, "what is paused asks no model", now.count("PAUSED") >= 11 and asked <= 1, (now, asked))
    inside(v, who, bob, jobs)
    s, said = bulk({"action": "resume", "agent": "st", "dryRun": True})
    count = said.get("matched")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: bulk({"action": "resume", "agent": "st", "expected": count})[0], range(8)))
    check(T, "eight that resume at once: no error of the server", all(200 <= s < 500 for s in answers), answers)
    for _ in range(20):
        s, said = bulk({"action": "resume", "agent": "st", "dryRun": True})
        left = said.get("matched")
        if not left:
            break
        bulk({"action": "resume", "agent": "st", "expected": left})
    ends = [v.http("GET", f"/jobs/{j}?wait=30000", timeout=60, **who)[1] for j in jobs]
    check(T, "each job that was paused and resumed ends once", all(e.get("status") == "COMPLETE" for e in ends), [e.get("status") for e in ends])
    check(T, "and each asked its model once", len(v.model.seen[model]) == 12, len(v.model.seen[model]))
    for action in ("pause", "resume"):
        s, said = v.http("PUT", f"/jobs/{jobs[0]}/{action}", **who)
        check(T, f"{action} of an ended job is refused with a reason", 400 <= s < 500 and said.get("error"), (s, said))
    deadlines(v, who)


def strangers(v, bob, jobs, bulk, state):
    for action in ("pause", "resume", "cancel", "redrive"):
        for more in ({}, {"agent": "st"}, {"q": C}, {"session": "s"}, {"status": ["PENDING"]}):
            s, said = bulk({"action": action, "dryRun": True, **more}, token=bob.get("token"), owner=bob.get("owner"))
            check(T, f"another owner: a dry run of {action} with {list(more)} counts none", s == 200 and said.get("matched") == 0 or 400 <= s < 500, (s, said))
            for n in (0, 1, 12):
                s, said = bulk({"action": action, "expected": n, **more}, token=bob.get("token"), owner=bob.get("owner"))
                check(T, f"another owner: {action} with {list(more)} and {n} does nothing", s < 500 and C not in json.dumps(said) and not any(j in json.dumps(said) for j in jobs), (s, said))
        for path in (jobs[0], jobs[0].upper(), "0x" + jobs[0]):
            if action in ("pause", "resume"):
                s, said = v.http("PUT", f"/jobs/{path}/{action}", **bob)
                check(T, f"another owner: {action} of {path[:6]} finds nothing", s == 404, (s, said))
                s, said = v.run("job/" + action, {"id": path}, **bob)
                check(T, f"another owner: the operation {action} of {path[:6]} finds nothing", 400 <= s < 500, (s, said))
    check(T, "strangers have paused and cancelled nothing", not {"PAUSED", "CANCELLED"} & set(state()), state())


def narrow(v, jobs, bulk, state):
    for name, att in {"reading jobs": ["j:crud/read"], "reading all": [":crud/read"], "asking": ["g:agent/request"], "cancelling": ["j:job/cancel"], "messages": ["j:job/message"], "one job": [f"j/{jobs[1]}:job/pause"], "redriving": ["j:job/redrive"], "nothing": []}.items():
        r = {"token": v.issue("acme/ann", att=att)}
        for action in ("pause", "resume"):
            s, said = bulk({"action": action, "dryRun": True}, **r)
            s2, said2 = bulk({"action": action, "dryRun": True, "q": C + "-3"}, **r)
            if name not in ("one job", "reading jobs", "reading all"):
                check(T, f"who holds {name}: a dry run of {action} counts none", s >= 400 or not said.get("matched"), (s, said))
            check(T, f"who holds {name}: a dry run of {action} with a text tells nothing of it", s2 >= 400 or json.dumps(said2) == json.dumps(bulk({"action": action, "dryRun": True, "q": "nowhere"}, **r)[1]) or "crud/read" in str(att), (s2, said2))
            for n in (1, 11, 12):
                bulk({"action": action, "expected": n}, **r)
                bulk({"action": action, "expected": n, "agent": "st"}, **r)
            for j in jobs[:3]:
                if name == "one job" and j == jobs[1]:
                    continue
                s, said = v.http("PUT", f"/jobs/{j}/{action}", **r)
                check(T, f"who holds {name}: {action} of a job is denied", s in (403, 404), (s, said))
        others = [x for i, x in enumerate(state()) if i != 1]
        check(T, f"who holds {name}: nothing else is paused", "PAUSED" not in others, others)
        v.http("PUT", f"/jobs/{jobs[1]}/resume", token=v.issue("acme/ann"))


def odd(v, bulk, state):
    before = state().count("PAUSED")
    for body in ({}, {"action": "pause"}, {"action": "stop", "dryRun": True}, {"action": None, "dryRun": True}, {"action": "pause", "dryRun": "yes"}, {"action": "pause", "expected": -1}, {"action": "pause", "expected": 1.5}, {"action": "pause", "expected": 2**64}, {"action": "pause", "expected": 999}, {"action": "pause", "dryRun": True, "expected": 12}, {"action": "pause", "expected": 12, "cursor": "x"}, {"action": "pause", "expected": 12, "cursor": "\u0000"}, {"action": "pause", "expected": 12, "limit": 0, "agent": "none"}, {"action": "pause", "dryRun": True, "limit": 10**9}, {"action": "pause", "dryRun": True, "status": ["NONE"]}, {"action": "pause", "dryRun": True, "status": []}, {"action": "pause", "dryRun": True, "status": ["PENDING"] * 5000}, {"action": "pause", "dryRun": True, "code": ["x" * 1000]}, {"action": "pause", "dryRun": True, "agent": "*"}, {"action": "pause", "dryRun": True, "agent": "../x"}, {"action": "pause", "dryRun": True, "since": 2**63}, {"action": "pause", "dryRun": True, "since": -1}, {"action": "pause", "dryRun": True, "since": 5, "until": 1}, {"action": "pause", "dryRun": True, "q": "x" * 500_000}, {"action": "pause", "dryRun": True, "q": ""}, {"action": "pause", "dryRun": True, "q": "(a+)+$"}, {"action": "resume", "expected": 12}, {"action": "pause", "dryRun": True, "reason": "x" * 500_000}, [], "pause", None):
        s, said = bulk(body)
        check(T, f"the bulk {json.dumps(body)[:60]} is answered, or refused with a reason", s == 200 or 400 <= s < 500 and said.get("error"), (s, str(said)[:200]))
    check(T, "none of these paused anything", state().count("PAUSED") == before, state())


def inside(v, who, bob, jobs):
    """What is done with jobs while they are paused."""
    j = jobs[5]
    s, said = v.http("GET", f"/jobs/{j}", **who)
    check(T, "a paused job says who paused it", (said.get("waiting") or {}).get("by"), said.get("waiting"))
    for what, (s, said) in {"a message": v.http("POST", f"/jobs/{j}", "only 2026", **who), "a pause again": v.http("PUT", f"/jobs/{j}/pause", **who)}.items():
        check(T, f"{what} of a paused job is taken, or refused with a reason", s < 500 and (s < 300 or said.get("error")), (s, said))
    s, said = v.http("PUT", f"/jobs/{j}/redrive", **who)
    check(T, "a paused job isn't driven again", 400 <= s < 500, (s, said))
    s, said = v.http("PUT", f"/jobs/{j}/delete", **who)
    check(T, "nor deleted", 400 <= s < 500, (s, said))
    check(T, "and is still paused", v.http("GET", f"/jobs/{j}", **who)[1].get("status") == "PAUSED")
    # A task behind it in its session waits, one in another session goes on.
    v.agent(["other"], name="st2", **who)
    s, a = v.http("POST", "/agents/st2/tasks", {"input": 1, "sessionId": "s1"}, **who)
    v.http("GET", f"/jobs/{a['job']}?wait=8000", **who)
    s, said = v.task("st2", **who)
    check(T, "beside paused jobs other agents go on", said.get("status") == "COMPLETE", said)


def deadlines(v, who):
    """A pause doesn't outlive a deadline; a cancelled, suspended or deleted one ends."""
    v.agent(["x"], {"limits": {"wallClock": 4}}, name="st3", **who)
    v.http("PUT", "/agents/st3/suspend", **who)
    ids = [v.http("POST", "/agents/st3/tasks", {"input": i, "sessionId": f"s{i}"}, **who)[1]["job"] for i in range(4)]
    for j in ids:
        s, said = v.http("PUT", f"/jobs/{j}/pause", **who)
        check(T, "a job of a suspended agent is paused, or refused with a reason", s == 200 or 400 <= s < 500, (s, said))
    v.http("PUT", "/agents/st3/resume", **who)
    s, said = v.http("PUT", f"/jobs/{ids[1]}/cancel", **who)
    check(T, "a paused job is cancelled", s == 200 and v.http("GET", f"/jobs/{ids[1]}?wait=5000", **who)[1].get("status") == "CANCELLED", (s, said))
    s, said = v.run("agent/delete-session", {"agentId": "st3", "sessionId": "s2"}, **who)
    check(T, "the session of a paused job is deleted, or a conflict", s in (200, 409), (s, said))
    end = v.http("GET", f"/jobs/{ids[0]}?wait=60000", timeout=90, **who)[1]
    check(T, "a paused job fails at its deadline, without another turn", end.get("status") == "FAILED" and not v.model.seen.get(v.last_model), (end, len(v.model.seen.get(v.last_model, []))))
    s, said = v.http("DELETE", "/agents/st3?remove=true", **who)
    end = v.http("GET", f"/jobs/{ids[3]}?wait=30000", timeout=60, **who)[1]
    check(T, "a paused job of a removed agent ends", end.get("status") in ("FAILED", "CANCELLED"), (s, said, end))
