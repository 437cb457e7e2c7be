"""Attacks caps on spending: settings and limits that are no numbers, and ways past a cap: other sessions, agents, forks, names, children,
messages, timers, redrives, invocations, many at once, prices of one's own; and what callers learn of what others have spent. Expected:
what is used stays below each cap, a malformed number is refused with its place, and an owner sees his own spending alone."""

import json
import threading
import time

from venue import check

T = "spend_caps"
OWNERS = "acme/a:tokens=1500, acme/b:tokens=1500, acme/c:tokens=2500, acme/d:cost=0.001, acme/e:tokens=3000, acme/f:tokens=1, capt:tokens=1500, acme/free:none"
SETS = ["catalog.test=true", "spend.session=tokens=4000", "spend.owner=tokens=1000000", f"spend.owners={OWNERS}", "spend.models=scripted/never:tokens=9000, local:tokens=400000", "spend.prices=scripted/echo:input=1:output=1, local/priced:input=1000000:output=1000000"]
ECHO = {"model": {"provider": "scripted", "name": "echo", "maxTokens": 16}, "defaultTools": False, "tools": []}


def good(said):
    text = said.get("detail") if isinstance(said, dict) else ""
    return isinstance(text, str) and len(text) > 8 and not any(w in text for w in ("panicked", "unwrap", "Err(", "Some(", "src/", "serde"))


def as_(v, owner):
    return {"token": v.issue(owner)} if v.mode == "jwt" else {"owner": owner}


def used(v, who):
    s, said = v.http("GET", "/spend", **who)
    spent = said.get("spent") or {}
    return spent.get("input", 0) + spent.get("output", 0), said


def attack(v):
    if v.mode == "up":
        settings(v)
    numbers(v, as_(v, "acme/num"))
    owner(v, as_(v, "acme/a"))
    parallel(v, as_(v, "acme/b"))
    session(v, as_(v, "acme/sess"))
    children(v, as_(v, "acme/c"))
    money(v, as_(v, "acme/d"))
    others(v)


def settings(v):
    ok = {"spend.zone": ["UTC", "Europe/Berlin", "America/New_York"], "spend.session": ["", "tokens=1", "tokens=200000:cost=2.5"]}
    bad = {"spend.zone": ["", "Nowhere/X", "../../etc/passwd", "/etc/localtime", "UTC+2", "europe/berlin ", "x" * 5000, "Europe/Berlin, UTC", "\u0000"],
           "spend.session": ["tokens", "tokens=", "tokens=-1", "tokens=NaN", "tokens=1e3", "tokens=1.5", "tokens=99999999999999999999999", "cost=NaN", "cost=inf", "cost=-0.1", "cost=-inf", "cost=1e400", "cost=", "tokens=1:tokens=2", "turns=5", "tokens=1,cost=2", "none", "5", "=", ":", "tokens=0x10", "tokens=１０"],
           "spend.owner": ["tokens=-5", "cost=NaN", "acme:tokens=5"], "spend.owners": ["acme", "acme:", "acme/ann:tokens=x", "acme/ann:tokens=5, acme/ann:tokens=9", "/:tokens=5", "a/b/c:tokens=5", ":tokens=5", "acme/*:tokens=5", "acme/ann:tokens=5 acme/bob:tokens=5"],
           "spend.models": ["openai", "openai:", "openai/gpt:tokens=-1", ":tokens=5", "/x:tokens=5", "openai/gpt:concurrency=5", "openai:tokens=5, openai:tokens=6", "nobody:tokens=5, ,"], "spend.prices": ["openai/gpt", "openai/gpt:input=-1:output=1", "openai/gpt:input=NaN:output=1", "openai/gpt:input=inf:output=1", "openai/gpt:input=1", "openai:input=1:output=1:output=2", "openai/gpt:input=1e400:output=1"], "spend.reached": ["", "stop", "WAIT", "fail,wait", "0"]}
    for key, values in bad.items():
        for value in values:
            done = v.cli("config", "show", "--set", f"{key}={value}") if "\u0000" not in value else None
            if done:
                text = done.stderr.decode()
                check(T, f"the setting {key}={value[:30]!r} is refused by its name", done.returncode == 2 and key in text and "panicked" not in text, (done.returncode, text[:300]))
    for key, values in ok.items():
        for value in values:
            done = v.cli("config", "show", "--set", f"{key}={value}", "--set", "spend.prices=x/y:input=1:output=1")
            check(T, f"the setting {key}={value!r} is taken", done.returncode == 0, done.stderr)


def numbers(v, who):
    for name, limits in {"tokens negative": {"session": {"tokens": -1}}, "tokens text": {"session": {"tokens": "5"}}, "tokens part": {"session": {"tokens": 1.5}}, "tokens huge": {"session": {"tokens": 10**30}}, "cost negative": {"session": {"cost": -0.5}}, "cost text": {"session": {"cost": "NaN"}}, "a number": {"session": 500}, "a list": {"session": [500]}, "an unknown key": {"session": {"turns": 5}}, "turns negative": {"turns": -1}, "turns part": {"turns": 1.5}, "tokens of the task negative": {"tokens": -5}, "cost of the task huge": {"cost": 1e308 * 10 if False else "1e309"}, "wallClock negative": {"wallClock": -1}, "wallClock huge": {"wallClock": 10**30}}.items():
        s, said = v.http("PUT", "/agents/num", {**ECHO, "limits": limits}, **who)
        check(T, f"limits with {name} are refused with their place", s == 400 and good(said) and "limits" in json.dumps(said), (s, said))
    for raw in ("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "0x10", "1_000", "+5", "01", "5.", ".5"):
        for place in ('{"input":1,"budget":{"cost":%s}}', '{"input":1,"budget":{"tokens":%s}}'):
            s, said = v.http("POST", "/agents/num/tasks", raw=(place % raw).encode(), **who)
            check(T, f"a budget of {raw} is refused", s in (400, 404) and good(said), (s, said))
    v.http("PUT", "/agents/num", ECHO, **who)
    for name, budget in {"tokens negative": {"tokens": -1}, "tokens text": {"tokens": "100"}, "tokens part": {"tokens": 0.5}, "tokens 2^64": {"tokens": 2**64}, "cost negative": {"cost": -1}, "cost minus 0": {"cost": -1e-300}, "cost text": {"cost": "1"}, "turns negative": {"turns": -1}, "wallClock negative": {"wallClock": -1}, "wallClock 2^64": {"wallClock": 2**64}, "an unknown key": {"dollars": 5}, "a list": [5], "a number": 5, "a text": "tokens=5", "deep": {"tokens": {"a": 1}}}.items():
        for path, body in (("/agents/num/tasks", {"input": 1, "budget": budget}), ("/run", {"operation": "v/ops/agent/request", "input": {"agentId": "num", "input": 1, "wait": 100, "budget": budget}}), ("/invoke", {"operation": "v/ops/agent/request", "input": {"agentId": "num", "input": 1, "budget": budget}})):
            s, said = v.http("POST", path, body, **who)
            check(T, f"a budget with {name} is refused by {path[-6:]} with its place", s == 400 and good(said) and "budget" in json.dumps(said), (s, said))
    for q in ("limit=-1", "limit=abc", "limit=99999", "limit=1e3", "agentId=num", "sessionId=x", "agentId=../x&sessionId=y", "agentId=num&sessionId=" + "x" * 5000, "agentId=num&sessionId=%00", "day=2026-01-01", "day=x", "zone=Nowhere", "owner=acme/a", "agentId=%ff&sessionId=%ff"):
        s, said = v.http("GET", "/spend?" + q, **who)
        check(T, f"spend?{q[:40]} is answered or refused with a reason", s == 200 or s in (400, 404) and good(said), (s, said))
        check(T, f"spend?{q[:40]} says nothing of another owner", s != 200 or said.get("owner") == "acme/num", said)
    # Prices of an author's own don't matter where the venue has one.
    for price in ({"input": -1, "output": -1}, {"input": "x"}, {"input": 10**400} if False else {"input": None}, 5, [1]):
        s, said = v.http("PUT", "/agents/pr", {**ECHO, "model": {**ECHO["model"], "price": price}}, **who)
        check(T, f"an agent's price {price} is refused", s == 400 and good(said), (s, said))


def owner(v, who):
    """1,500 tokens a day; a call is about 250."""
    v.http("PUT", "/agents/echo", ECHO, **who)
    ends = []
    for i in range(12):
        s, j = v.http("POST", "/agents/echo/tasks?wait=6000", {"input": f"t{i}"}, **who)
        ends.append(j)
    failed = next((j for j in ends if j.get("status") == "FAILED"), {})
    n, said = used(v, who)
    check(T, "the owner's cap is reached", failed.get("errorCode") == "LIMIT_REACHED" and ends[0].get("status") == "COMPLETE", ends[-1])
    check(T, "the error names the cap and when it resets", "cap of owner" in failed.get("error", "") and "resets at" in failed.get("error", ""), failed)
    check(T, "no more than the cap is used", 0 < n <= 1500, n)
    base = n
    v.http("PUT", "/agents/other", {**ECHO, "limits": {"session": {"tokens": 10**9}}}, **who)
    v.http("PUT", "/agents/named", {**ECHO, "model": {**ECHO["model"], "price": {"input": 0, "output": 0}}}, **who)
    v.http("POST", "/agents/echo/fork", {"to": "forked", "timeline": True}, **who)
    ways = {"another session": ("/agents/echo/tasks?wait=5000", {"input": 1, "sessionId": "new"}), "another agent": ("/agents/other/tasks?wait=5000", {"input": 1}), "a fork": ("/agents/forked/tasks?wait=5000", {"input": 1}), "a price of its own": ("/agents/named/tasks?wait=5000", {"input": 1}), "a budget": ("/agents/echo/tasks?wait=5000", {"input": 1, "budget": {"tokens": 10**9}}), "first of all": ("/agents/echo/tasks?wait=5000", {"input": 1, "priority": 1}),
            "a request": ("/run", {"operation": "v/ops/agent/request", "input": {"agentId": "echo", "input": 1, "wait": 5000}}), "a chat": ("/run", {"operation": "v/ops/agent/chat", "input": {"agentId": "echo", "message": "x", "timeout": 5000}}), "invoke": ("/invoke?wait=5000", {"operation": "v/ops/agent/request", "input": {"agentId": "echo", "input": 1}}), "invoke of run": ("/invoke?wait=5000", {"operation": "v/ops/job/run", "input": {"operation": "v/ops/agent/request", "input": {"agentId": "echo", "input": 1, "wait": 4000}}}), "a message": ("/agents/echo/messages", {"input": 1}), "a timer": ("/agents/echo/timers", {"input": 1, "after": "1s"}), "the redrive": ("/jobs", {"action": "redrive", "expected": 0})}
    for name, (path, body) in ways.items():
        s, j = v.http("POST", path, body, timeout=15, **who)
        check(T, f"at the cap {name} has an answer and no output", s < 500 and '"COMPLETE"' not in json.dumps(j).replace('"op": "v/ops/job/run", "status": "COMPLETE"', ""), (s, j))
    if failed.get("job"):
        s, j = v.http("PUT", f"/jobs/{failed['job']}/redrive", **who)
        s, j = v.http("GET", f"/jobs/{j.get('job')}?wait=5000", **who)
        check(T, "driven again it fails at the cap again", j.get("errorCode") == "LIMIT_REACHED", j)
    time.sleep(3)
    n, said = used(v, who)
    check(T, "after all of these no more than the cap is used", n <= 1500, (base, n))
    cap = next((c for c in said.get("caps", []) if "1500" in json.dumps(c)), None)
    check(T, "the caps say what is left", cap, said)
    for name in ("deleted and made again", "terminated"):
        v.http("DELETE", "/agents/echo" + ("?remove=true" if "made" in name else ""), **who)
        v.http("PUT", "/agents/echo", ECHO, **who)
        s, j = v.http("POST", "/agents/echo/tasks?wait=5000", {"input": 1}, **who)
        check(T, f"an agent that was {name} has no new day", j.get("status") != "COMPLETE", (s, j))
    n, said = used(v, who)
    check(T, "what a deleted agent spent is still counted by the cap", "1500" in json.dumps(said.get("caps")) and not any(c.get("left", {}).get("tokens", 0) > 1500 - base for c in said.get("caps", []) if isinstance(c.get("left"), dict) and "1500" in json.dumps(c)), said)


def parallel(v, who):
    v.http("PUT", "/agents/echo", {**ECHO, "concurrency": 64}, **who)
    got = []
    threads = [threading.Thread(target=lambda i=i: got.append(v.http("POST", "/agents/echo/tasks?wait=20000", {"input": "x", "sessionId": f"p{i}"}, timeout=40, **who)[1])) for i in range(40)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    n, said = used(v, who)
    check(T, "forty at once use no more than the cap", 0 < n <= 1500, n)
    check(T, "and each has its end", all(j.get("status") in ("COMPLETE", "FAILED") for j in got), [j for j in got if j.get("status") not in ("COMPLETE", "FAILED")][:3])
    check(T, "those that fail name the cap", all(j.get("errorCode") == "LIMIT_REACHED" for j in got if j.get("status") == "FAILED"), [j for j in got if j.get("errorCode") != "LIMIT_REACHED"][:3])


def session(v, who):
    """4,000 tokens of a session, for its life."""
    # A long prompt and a short reply: `echo` says as much as it hears, whatever it may.
    v.http("PUT", "/agents/s", {**ECHO, "systemPrompt": "word " * 500, "limits": {"session": {"tokens": 10**9}}}, **who)
    spent = lambda sess: sum(x["input"] + x["output"] for x in used(v, who)[1].get("sessions", []) if x.get("sessionId") == sess)
    for i in range(12):
        s, j = v.http("POST", "/agents/s/tasks?wait=6000", {"input": "t", "sessionId": "one"}, **who)
    check(T, "an agent's higher limit does not raise the venue's cap of a session", j.get("errorCode") == "LIMIT_REACHED" and spent("one") <= 4000, (j, spent("one")))
    for name, (op, input) in {"renamed": ("agent/rename-session", {"agentId": "s", "sessionId": "one", "title": "two"}), "with a summary": ("agent/compact-session", {"agentId": "s", "sessionId": "one", "summary": "x"})}.items():
        v.run(op, input, **who)
        s, j = v.http("POST", "/agents/s/tasks?wait=6000", {"input": "t", "sessionId": "one"}, **who)
        check(T, f"a session that was {name} has no new cap", spent("one") <= 4000, (j, spent("one")))
    v.http("PATCH", "/agents/s", {"config": {"limits": {"session": {"tokens": 10**12}}, "session": {"ttl": "1s"}}}, **who)
    time.sleep(1.5)
    v.http("POST", "/agents/s/tasks?wait=6000", {"input": "t", "sessionId": "one"}, **who)
    check(T, "a configuration that changes raises nothing", spent("one") <= 2 * 4000, spent("one"))
    got = []
    threads = [threading.Thread(target=lambda: got.append(v.http("POST", "/agents/s/tasks?wait=15000", {"input": "t", "sessionId": "many"}, timeout=30, **who)[1])) for _ in range(12)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    check(T, "twelve at once in one session stay below its cap", spent("many") <= 4000, spent("many"))
    s, said = v.http("GET", "/spend?agentId=s&sessionId=one", **who)
    check(T, "the cap of the session is shown", "4000" in json.dumps(said.get("caps")), said)
    v.http("PUT", "/agents/low", {**ECHO, "limits": {"session": {"tokens": 300}}}, **who)
    ends = [v.http("POST", "/agents/low/tasks?wait=6000", {"input": "t", "sessionId": "l"}, **who)[1] for _ in range(3)]
    check(T, "an agent's lower limit of a session holds", ends[-1].get("errorCode") == "LIMIT_REACHED" and spent("l") <= 300, (ends[-1], spent("l")))


def children(v, who):
    """2,500 tokens a day: an agent that asks others, messages them, makes more and sets timers."""
    v.http("PUT", "/agents/kid", ECHO, **who)
    calls = [("agent_request", {"agentId": "kid", "input": i, "wait": 3000}) for i in range(12)] + [("agent_message", {"agentId": "kid", "message": "x"}) for _ in range(6)] + [("agent_create", {"agentId": f"made{i}", "config": ECHO}) for i in range(3)] + [("agent_request", {"agentId": f"made{i}", "input": 1, "wait": 3000}) for i in range(3)] + [("agent_fork", {"agentId": "kid", "to": "kid2"}), ("agent_request", {"agentId": "kid2", "input": 1, "wait": 3000})]
    name = f"{v.mode}-parent"
    v.model.says(name, [calls, "waiting"] + ["done"] * 9)
    v.http("PUT", "/agents/parent", {"model": {"provider": "local", "name": name, "maxTokens": 16}, "tools": ["v/ops/agent/create", "v/ops/agent/fork", "v/ops/agent/request", "v/ops/agent/message"], "defaultTools": False}, **who)
    s, j = v.http("POST", "/agents/parent/tasks?wait=15000", {"input": "go"}, timeout=30, **who)
    time.sleep(4)
    n, said = used(v, who)
    check(T, "an owner's agents and those that they make use no more than his cap together", 0 < n <= 2500, (n, j))


def money(v, who):
    """A tenth of a cent a day, at a dollar for a million tokens: 1,000 tokens. Models without a price aren't called."""
    v.http("PUT", "/agents/echo", ECHO, **who)
    ends = [v.http("POST", "/agents/echo/tasks?wait=6000", {"input": "x", "sessionId": f"s{i}"}, **who)[1] for i in range(6)]
    n, said = used(v, who)
    check(T, "a cap in dollars holds", ends[0].get("status") == "COMPLETE" and ends[-1].get("errorCode") == "LIMIT_REACHED" and n <= 1000, (n, ends[-1]))
    for price in ({"input": 0, "output": 0}, {"input": 0.0000001, "output": 0.0000001}):
        v.http("PUT", "/agents/cheap", {**ECHO, "model": {**ECHO["model"], "price": price}}, **who)
        s, j = v.http("POST", "/agents/cheap/tasks?wait=6000", {"input": "x"}, **who)
        check(T, f"an author's price {price} does not pass it", j.get("status") != "COMPLETE", j)
    name = f"{v.mode}-unpriced"
    v.model.says(name, ["free"])
    s, said = v.http("PUT", "/agents/unpriced", {"model": {"provider": "local", "name": name, "price": {"input": 0, "output": 0}}}, **who)
    check(T, "a model without a price of the venue is a warning", s in (200, 201) and "price" in json.dumps(said.get("warnings")), said)
    s, said = v.http("PUT", "/agents/unpriced2?strict=true", {"model": {"provider": "local", "name": name}}, **who)
    check(T, "and an error with strict", s == 400 and "price" in json.dumps(said), (s, said))
    s, j = v.http("POST", "/agents/unpriced/tasks?wait=6000", {"input": "x"}, **who)
    check(T, "it isn't called", not v.model.seen.get(name) and j.get("status") == "FAILED", j)
    check(T, "and the error says why", "price" in json.dumps(j), j)


def others(v):
    he, she, tiny = as_(v, "acme/e"), as_(v, "acme/free"), as_(v, "acme/f")
    v.http("PUT", "/agents/canary-agent", ECHO, **he)
    v.http("POST", "/agents/canary-agent/tasks?wait=5000", {"input": 1, "sessionId": "canary-session"}, **he)
    for path in ("/spend", "/spend?limit=500", "/spend?agentId=canary-agent&sessionId=canary-session", "/spend?owner=acme/e"):
        s, said = v.http("GET", path, **she)
        check(T, f"{path} of another owner shows nothing of his", "canary" not in json.dumps(said).replace("`canary-agent`", "").replace("canary-agent/canary-session", "") and s < 500 and not (said.get("spent") or {}).get("calls"), (s, said))
    v.http("PUT", "/agents/tiny", ECHO, **tiny)
    s, j = v.http("POST", "/agents/tiny/tasks?wait=5000", {"input": 1}, **tiny)
    check(T, "a cap of one token calls no model", j.get("errorCode") == "LIMIT_REACHED" and used(v, tiny)[0] == 0, j)
    # Of a model's cap, which is everybody's: that it is, and not what others have used.
    big = {"model": {"provider": "scripted", "name": "never", "maxTokens": 8000}, "defaultTools": False, "tools": []}
    v.http("PUT", "/agents/hog", big, **as_(v, "acme/hog"))
    v.http("POST", "/agents/hog/tasks", {"input": 1}, **as_(v, "acme/hog"))
    time.sleep(1)
    v.http("PUT", "/agents/poor", {**big, "model": {**big["model"], "maxTokens": 16}}, **she)
    v.http("PUT", "/agents/poor2", big, **she)
    s, j = v.http("POST", "/agents/poor2/tasks?wait=4000", {"input": 1}, **she)
    s, said = v.http("GET", "/spend", **she)
    caps = [c for c in said.get("caps", []) if "never" in json.dumps(c)]
    if v.mode == "jwt":
        check(T, "a model's cap says nothing of what others have used", not any(k in c for c in caps for k in ("used", "held", "left")), caps)
        check(T, "nor does the error or the reason to wait", not any(str(x) in str(j.get("error")) + str(v.http("GET", f"/jobs/{j['job']}", **she)[1].get("waiting")) for x in range(8000, 9000)), j)
        for name, att in {"nothing": [], "jobs": ["j:crud/read"], "one agent": ["g/canary-agent:crud/read"]}.items():
            s, said = v.http("GET", "/spend", token=v.issue("acme/e", att))
            check(T, f"a reader of {name} is not told what was spent", s == 403 and "canary" not in json.dumps(said).replace("g/canary-agent", ""), (s, said))
