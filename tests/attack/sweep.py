"""Attacks every operation that the venue lists, by who may nothing, by another owner, by agents without rights and by nobody, with arguments that name
what is another's; the header that names a task; what is answered without a token; and aliases. Expected: an operation under any of its names
tells and changes nothing for who has no right, whatever it is asked with, and what everybody may read names nobody."""

import json
import time

from venue import check

T = "sweep"
SETS = ["catalog.test=true"]
C = "canarysw"


def attack(v):
    ann = {"token": v.issue("acme/ann")}
    things = made(v, ann)
    ops = [o["name"] for o in listed(v)]
    check(T, "operations are listed", len(ops) > 100, len(ops))
    before = state(v, ann, things)
    tokens = {"nothing granted": {"token": v.issue("acme/ann", [])}, "another place": {"token": v.issue("acme/ann", ["w/elsewhere:crud"])}, "bob": {"token": v.issue("acme/bob")}, "bob as ann": {"token": v.issue("acme/bob"), "owner": "acme/ann"}, "eve": {"token": v.issue("evil/eve")}}
    for who, more in tokens.items():
        for op in ops:
            if op in ("v/ops/test/never", "v/ops/test/delay", "v/ops/test/error"):
                continue
            s, said = v.run(op, arguments(v, op, things), timeout=20, **more)
            text = json.dumps(said)
            check(T, f"{who}: {op[6:]} tells nothing of ann's", C not in text and s < 500, (s, text[:300]))
        now = state(v, ann, things)
        check(T, f"{who}: all operations have changed nothing of ann's", now == before, [(k, before[k], now[k]) for k in before if before[k] != now[k]])
        before = now
    opaque(v, ann, tokens, things)
    agent(v, ann, ops, things, before)
    header(v, ann, tokens)
    nobody(v, ann)


def listed(v):
    said = v.http("GET", "/operations", token=v.issue("acme/ann"))[1]
    return said if isinstance(said, list) else said.get("items") or said.get("operations")


def made(v, ann):
    v.write("w/sw", {"k": C, "list": [C]}, **ann)
    asset = v.http("POST", "/assets", {"content": C + "-asset"}, **ann)[1]
    v.http("PUT", "/secrets/SWKEY", {"value": C + "-secret-value", "hosts": ["x.example"]}, **ann)
    v.agent([lambda b: C + "-said"], name="swann", **ann)
    s, job = v.task("swann", C + "-in", body={"sessionId": "s1"}, **ann)
    v.agent([[("fail_task", {"error": C})]], name="swfails", **ann)
    s, failed = v.task("swfails", C, body={"sessionId": "s1"}, **ann)
    ask = [("human_ask", {"title": C, "asks": [{"id": "a", "type": "text", "prompt": C}]})]
    v.agent([lambda b: "x" if any(m["role"] == "assistant" for m in b["messages"]) else ask], {"tools": ["v/ops/human/ask"]}, name="swasks", **ann)
    waiting = v.http("POST", f"/agents/swasks/tasks", {"input": C, "sessionId": "s1"}, **ann)[1]["job"]
    timer = v.http("POST", f"/agents/swann/timers", {"input": C, "after": "20m", "name": "swt"}, **ann)[1]["timer"]
    s, handle = v.run("scheduler/schedule", {"operation": "v/ops/lattice/append", "input": {"path": "w/swscheduled", "value": 1}, "at": int((time.time() + 1200) * 1000)}, **ann)
    time.sleep(1.5)
    approval = next((x["id"] for x in v.http("GET", "/approvals", **ann)[1]["items"]), "")
    v.run("policy/revoke", {"path": "w/swrevoked"}, **ann)
    revocation = v.run("policy/show", {}, **ann)[1]["revocations"][0]["id"]
    v.run("asset/pin", {"path": "w/sw", "name": "swpin"}, **ann)
    return {"asset": asset if isinstance(asset, str) else asset.get("id"), "job": job["job"], "failed": failed["job"], "waiting": waiting, "timer": timer, "approval": approval, "revocation": revocation, "handle": (handle.get("handle") or handle.get("timer") or timer) if isinstance(handle, dict) else timer}


def arguments(v, op, t):
    """Arguments that name ann's things, for an operation of any name."""
    name = op[6:]
    agent = "swann"
    fixed = {
        "agent/cancel-task": {"agentId": "swasks", "taskId": t["waiting"]}, "agent/chat": {"agentId": agent, "message": "x", "sessionId": "s1", "timeout": 500}, "agent/compact-session": {"agentId": agent, "sessionId": "s1", "summary": "evil"}, "agent/complete-task": {"agentId": "swasks", "taskId": t["waiting"], "result": "evil"}, "agent/create": {"agentId": agent, "config": {"model": {"provider": "scripted", "name": "echo"}}, "overwrite": True}, "agent/fail-task": {"agentId": "swasks", "taskId": t["waiting"], "error": "evil"},
        "agent/fork": {"agentId": agent, "to": "swfork", "timeline": True}, "agent/message": {"agentId": agent, "message": "evil", "sessionId": "s1"}, "agent/request": {"agentId": agent, "input": "x", "sessionId": "s1", "wait": 500}, "agent/session-fork": {"agentId": agent, "sessionId": "s1", "at": 1, "to": "evil"}, "agent/trigger": {"agentId": agent}, "agent/update": {"agentId": agent, "config": {"description": "evil"}}, "agent/wake": {"agentId": agent, "after": "10s"}, "agent/rename-session": {"agentId": agent, "sessionId": "s1", "title": "evil"},
        "approval/answer": {"id": t["approval"], "answers": {"a": "evil"}}, "hitl/respond": {"id": t["approval"], "answers": {"a": "evil"}}, "approval/approve": {"id": t["approval"]}, "approval/reject": {"id": t["approval"], "reason": "evil"}, "approval/list": {"all": True}, "hitl/list": {}, "asset/pin": {"path": "w/sw", "name": "swpin"}, "asset/store": {"content": "x"}, "asset/list": {}, "job/bulk": {"action": "cancel", "dryRun": True}, "job/message": {"id": t["waiting"], "message": "evil"}, "job/run": {"operation": "v/ops/lattice/read", "input": {"path": "w/sw"}}, "grid/run": {"operation": "v/ops/lattice/read", "input": {"path": "w/sw"}}, "grid/invoke": {"operation": "v/ops/lattice/read", "input": {"path": "w/sw"}},
        "lattice/copy": {"from": "w/sw", "to": "w/elsewhere/x"}, "covia/copy": {"from": "w/sw", "to": "w/elsewhere/x"}, "lattice/write": {"path": "w/sw", "value": "evil"}, "covia/write": {"path": "w/sw", "value": "evil"}, "lattice/append": {"path": "w/sw/list", "value": "evil"}, "covia/append": {"path": "w/sw/list", "value": "evil"}, "policy/approvals": {"caps": []}, "policy/roots": {"caps": None}, "policy/restore": {"id": t["revocation"]}, "policy/revoke": {"path": "w"}, "quota/set": {"bytes": 1}, "resource/purge": {"namespace": "app", "recursive": True}, "resource/list": {"namespace": "app"},
        "scheduler/cancel": {"handle": t["handle"]}, "scheduler/trigger": {"handle": t["handle"]}, "scheduler/schedule": {"operation": "v/ops/lattice/write", "input": {"path": "w/sw", "value": "evil"}, "at": int((time.time() + 11) * 1000)}, "secret/set": {"name": "SWKEY", "value": "evil-value-12", "hosts": ["evil.example"], "overwrite": True}, "secret/delete": {"name": "SWKEY"}, "secret/extract": {"name": "SWKEY", "ref": "s/SWKEY"}, "timer/cancel": {"timer": t["timer"]}, "timer/list": {"all": True}, "worker/drain": {"worker": "none"}, "job/settle": {"id": t["waiting"], "happened": False}, "dead/redrive": {"id": t["failed"]}, "dead/show": {"id": t["failed"]},
        "queue/publish": {"queue": "x", "input": 1}, "http/get": {"url": "http://127.0.0.1:1/"}, "http/post": {"url": "http://127.0.0.1:1/", "body": 1}, "human/ask": {"title": "x", "asks": []}, "hitl/request": {"title": "x", "asks": []}, "venue/audit": {}, "venue/doctor": {}, "venue/backup": {"path": "/tmp/never"}, "json/select": {"path": "w/sw", "select": "k"}, "schema/infer": {"path": "w/sw"}, "schema/validate": {"path": "w/sw", "schema": {"const": 1}},
    }
    if name in fixed:
        return fixed[name]
    if name.startswith("agent/"):
        return {"agentId": agent, **({"sessionId": "s1"} if "session" in name and name != "agent/sessions" else {})}
    if name.startswith(("lattice/", "covia/")):
        return {"path": "w/sw", **({"groupBy": "k"} if "aggregate" in name else {})}
    if name.startswith("asset/"):
        return {"id": t["asset"]}
    if name.startswith(("job/", "grid/")):
        return {"id": t["waiting"]}
    return {}


def state(v, ann, t):
    agent = v.http("GET", f"/agents/swann", **ann)[1]
    return {"value": v.read("w/sw", **ann)[1].get("value"), "elsewhere": v.read("w/elsewhere/x", **ann)[1].get("exists"), "scheduled": v.read("w/swscheduled", **ann)[1].get("exists"), "agents": sorted(json.dumps(x) for x in v.http("GET", "/agents?includeTerminated=true", **ann)[1]["agents"]), "config": agent.get("config"), "status": agent.get("status"),
            "waiting": v.http("GET", f"/jobs/{t['waiting']}", **ann)[1].get("status"), "turns": len(v.http("GET", f"/agents/swann/turns?limit=200", **ann)[1].get("items", [])), "sessions": v.http("GET", f"/agents/swann/sessions", **ann)[1], "timers": [x.get("timer") for x in v.http("GET", "/timers", **ann)[1]["items"]], "secrets": v.http("GET", "/secrets", **ann)[1], "policy": v.run("policy/show", {}, **ann)[1],
            "quota": {k: x.get("limit") for k, x in v.http("GET", "/quota", **ann)[1].items() if isinstance(x, dict)}, "failed": [j for j in v.http("GET", f"/jobs?agent=swfails", **ann)[1].get("items", [])], "approvals": len(v.http("GET", "/approvals", **ann)[1]["items"])}


def opaque(v, ann, tokens, t):
    """What is refused by an id alone is answered as an id that nobody has."""
    for who, more in tokens.items():
        for op, key, id in (("timer/cancel", "timer", t["timer"]), ("scheduler/cancel", "handle", t["handle"]), ("scheduler/trigger", "handle", t["handle"]), ("job/result", "id", t["waiting"]), ("job/pause", "id", t["waiting"]), ("job/message", "id", t["waiting"]), ("dead/show", "id", t["failed"]), ("approval/approve", "id", t["approval"]), ("approval/answer", "id", t["approval"]), ("policy/restore", "id", t["revocation"]), ("job/settle", "id", t["waiting"])):
            rest = {"answers": {"a": "x"}} if op == "approval/answer" else {"message": "x"} if op == "job/message" else {"happened": False} if op == "job/settle" else {}
            s, said = v.run(op, {key: id, **rest}, **more)
            s2, said2 = v.run(op, {key: "0" * len(id), **rest}, **more)
            check(T, f"{who}: {op} tells of an id of ann's what it tells of one that nobody has", s == s2 and json.dumps(said).replace(id, "") == json.dumps(said2).replace("0" * len(id), ""), (s, said, s2, said2))


def agent(v, ann, ops, things, before):
    """The same by an agent that may nothing, which calls them by name, by `job/run` and by their aliases."""
    for name, config in {"no caps": {"caps": []}, "another place": {"caps": [{"with": "w/elsewhere", "can": "crud/read"}]}}.items():
        for via in ("job_run", "grid_run"):
            calls = [[(via, {"operation": op, "input": arguments(v, op, things)}) for op in ops[i:i + 40] if op[6:] not in ("test/never", "test/delay", "human/ask", "hitl/request")] for i in range(0, len(ops), 40)]
            a = v.agent([*calls, "done"], {**config, "tools": ["v/ops/job/run", "v/ops/grid/run"], "defaultTools": False}, **ann)
            s, job = v.task(a, 1, 30000, timeout=40, **ann)
            shown = json.dumps([m for b in v.model.seen[v.last_model] for m in b["messages"] if m["role"] == "tool"])
            leaks = shown
            check(T, f"an agent with {name}: every operation by {via} tells it nothing", C not in leaks, leaks[max(0, leaks.find(C) - 300):][:600])
            v.http("DELETE", f"/agents/{a}?remove=true", **ann)
            now = state(v, ann, things)
            check(T, f"an agent with {name}: and changes nothing ({via})", {k: x for k, x in now.items() if k != "agents"} == {k: x for k, x in before.items() if k != "agents"}, [(k, before[k], now[k]) for k in before if before[k] != now[k] and k != "agents"])


def header(v, ann, tokens):
    """`X-Trellis-Task` by others, of others, with other values."""
    job = v.http("POST", f"/agents/swasks/tasks", {"input": C, "sessionId": "s2"}, **ann)[1]["job"]
    time.sleep(1)
    for who, more in tokens.items():
        for op, input in (("agent/complete-task", {"result": "evil"}), ("agent/fail-task", {"error": "evil"}), ("agent/complete-task", {"agentId": "swasks", "result": "evil"}), ("lattice/read", {"path": "w/sw"}), ("lattice/write", {"path": "w/sw", "value": "evil"}), ("agent/context", {"agentId": "swasks"})):
            for value in (job, job.upper(), f"{job},{job}", "0" * 32, "*", ""):
                s, said = v.run(op, input, headers={"X-Trellis-Task": value}, **more)
                check(T, f"{who}: {op} under the task {value[:8]!r} is denied", s >= 400 and s < 500 and C not in json.dumps(said) or op.startswith("lattice") and who in ("bob", "eve") and C not in json.dumps(said) and s < 500, (s, str(said)[:200]))
        said = v.http("GET", f"/jobs/{job}", **ann)[1]
        check(T, f"{who}: the task still waits", said.get("status") == "INPUT_REQUIRED", said)
    s, said = v.run("agent/complete-task", {"result": "hers"}, headers={"X-Trellis-Task": job}, **ann)
    check(T, "ann herself completes it so", s < 300 and v.http("GET", f"/jobs/{job}?wait=4000", **ann)[1].get("output") == "hers", (s, said))


def nobody(v, ann):
    """What is answered without a token, or with a broken one."""
    for path in ("/livez", "/readyz", "/work", "/metrics", "/.well-known/did.json", "/api/v1/openapi.json", "/api/v1/status", "/api/v1/operations", "/api/v1/agent-schema", "/api/v1/adapters/agent/operations", "/api/v1/operations/v%2Fops%2Fagent%2Frequest", "/api/v1/agents", "/api/v1/jobs", "/api/v1/spend", "/api/v1/quota", "/api/v1/values/list?path=w", "/api/v1/auth/whoami"):
        for token in (None, "x.y.z", v.issue("evil/eve")):
            s, said = v.http("GET", path, root=True, token=token)
            text = json.dumps(said)
            check(T, f"{path} for {'nobody' if not token else token[:5]} names nobody and nothing of ann's", C not in text and "acme/ann" not in text and "acme.ann" not in text and s < 500, (s, text[max(0, text.find("acme") - 100):][:300]))
