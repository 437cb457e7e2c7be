"""Attacks the border between owners and tenants with good tokens: another's agents, jobs, turns, assets, secrets, timers, approvals by
their ids and hashes, over every route, with X-Trellis-Owner; and what a reader of an agent's history sees of turns beyond his rights.
Expected: 401, 403 or 404 (or empty lists), and never another's data, nor whether it is there."""

import json
import time

from venue import check

T = "tenants"


def attack(v):
    ann, bob, eve = v.issue("acme/ann"), v.issue("acme/bob"), v.issue("evil/eve")
    canary = "canary-ten"
    v.write("w/x", canary, token=ann)
    s, asset = v.http("POST", "/assets", {"content": canary}, token=ann)
    asset = asset if isinstance(asset, str) else asset.get("id")
    v.http("PUT", "/secrets/KEY1", {"value": canary + "-12345678", "hosts": ["x.example"]}, token=ann)
    v.agent([[("lattice_read", {"path": "w/x"})], canary], name="hers", token=ann)
    s, job = v.task("hers", canary, token=ann)
    v.agent([[("human_ask", {"title": canary, "asks": [{"id": "a", "type": "text", "prompt": canary}]})], "done"], {"tools": ["v/ops/human/ask"]}, name="asks", token=ann)
    s, waits = v.http("POST", "/agents/asks/tasks", {"input": 1}, token=ann)
    s, timer = v.http("POST", "/agents/hers/timers", {"input": canary, "after": "20m"}, token=ann)
    approval = None
    for _ in range(30):
        s, said = v.http("GET", "/approvals", token=ann)
        items = said if isinstance(said, list) else said.get("approvals") or said.get("items") or []
        if items:
            approval = items[0]["id"]
            break
        time.sleep(0.2)
    check(T, "the question waits", approval, said)
    sess = job.get("session")
    j = job.get("job")
    routes = [("GET", "/agents"), ("GET", "/agents?includeTerminated=true"), ("GET", "/agents/hers"), ("PUT", "/agents/hers"), ("PATCH", "/agents/hers"), ("DELETE", "/agents/hers"), ("PUT", "/agents/hers/suspend"), ("PUT", "/agents/hers/resume"), ("POST", "/agents/hers/fork"), ("GET", "/agents/hers/sessions"), ("GET", f"/agents/hers/sessions/{sess}"), ("POST", f"/agents/hers/sessions/{sess}/fork"), ("POST", "/agents/hers/context"),
              ("GET", "/agents/hers/turns"), ("GET", f"/agents/hers/turns/{sess}/1"), ("GET", f"/agents/hers/turns/{sess}/1?prompt=true"), ("POST", f"/agents/hers/turns/{sess}/1/replay"), ("GET", "/jobs"), ("GET", "/jobs?details=true"), ("GET", "/jobs?agent=hers&details=true"), ("GET", f"/jobs/{j}"), ("GET", f"/jobs/0x{j}"), ("PUT", f"/jobs/{waits.get('job')}/cancel"), ("PUT", f"/jobs/{j}/delete"), ("GET", f"/jobs/{j}/sse"),
              ("GET", "/timers"), ("GET", "/timers?all=true"), ("DELETE", f"/timers/{timer.get('timer')}"), ("GET", "/approvals"), ("GET", "/approvals?all=true"), ("POST", f"/approvals/{approval}"), ("GET", "/why?path=w/x"), ("GET", "/why?path=w/x&agent=hers"), ("POST", "/agents/hers/tasks"), ("POST", "/agents/hers/messages"), ("POST", "/agents/hers/timers"), ("GET", "/assets"), ("GET", f"/assets/{asset}"), ("GET", f"/assets/{asset}/content"), ("GET", "/secrets"), ("DELETE", "/secrets/KEY1"),
              ("GET", "/values/read?path=w/x"), ("GET", "/values/list?path=w"), ("GET", "/values/inspect?path=w"), ("GET", "/values/read?path=g/hers/timeline"), ("GET", f"/values/read?path=j/{j}"), ("GET", "/values/read?path=s/KEY1"), ("GET", f"/values/read?path=a/{asset}"), ("GET", "/values/read?path=acme/ann/w/x"), ("GET", "/values/read?path=did:web:attack.example/w/x")]
    bodies = {"tasks": {"input": 1}, "messages": {"input": 1}, "timers": {"input": 1, "after": "1h"}, "fork": {"to": "mine", "at": 1}, "hers": {"model": {"provider": "scripted", "name": "echo"}}}
    for who, token in (("another user of the tenant", bob), ("another tenant", eve)):
        for owner in (None, "acme/ann"):
            for method, path in routes:
                if method in ("PUT", "DELETE") and owner is None and ("agents/hers" == path.strip("/") or "secrets" in path):
                    continue
                body = bodies.get(path.split("?")[0].rsplit("/", 1)[-1], {}) if method != "GET" else None
                if path.endswith("/fork") and "sessions" not in path:
                    body = {"to": "mine"}
                s, said = v.http(method, path, body, token=token, owner=owner, timeout=8)
                text = json.dumps(said)
                leaks = canary in text or (owner is None and method == "GET" and '"hers"' in text)
                # The asset is named by its content: who asks for the hash knows it; but it must not be found.
                check(T, f"{who}{' as ann' if owner else ''}: {method} {path.split('?')[0][:60]} gives nothing", not leaks and s < 500, (s, text[:300]))
                if owner:
                    check(T, f"{who} as ann: {method} {path[:60]} is denied", s in (401, 403, 404), (s, text[:200]))
                elif method != "GET" and path.startswith(("/jobs", "/timers", "/approvals")):
                    check(T, f"{who}: {method} {path[:30]} finds nothing", s in (400, 403, 404, 405), (s, text[:200]))
    s, said = v.http("GET", f"/jobs/{waits.get('job')}", token=ann)
    check(T, "the job that waits still waits", said.get("status") == "INPUT_REQUIRED", said)
    s, said = v.http("GET", "/timers", token=ann)
    check(T, "the timer is still there", timer.get("timer") in json.dumps(said), said)
    # Eve's own agent names ann's things.
    for calls in ([("agent_request", {"agentId": "hers", "input": 1})], [("agent_request", {"agentId": "acme/ann/hers", "input": 1})], [("lattice_read", {"path": "w/x"})], [("job_result", {"id": j})], [("asset_content", {"id": asset})], [("asset_get", {"id": asset})], [("agent_message", {"agentId": "hers", "message": 1})], [("job_run", {"operation": "v/ops/secret/list", "input": {}})], [("lattice_read", {"path": f"j/{j}"})], [("job_run", {"operation": "v/ops/approval/answer", "input": {"id": approval, "answers": {"a": "x"}}})], [("job_run", {"operation": "v/ops/timer/cancel", "input": {"timer": timer.get("timer")}})]):
        r, _, _ = v.calls(calls, token=eve)
        check(T, f"eve's agent: {calls[0][0]} gives nothing of ann", canary not in "".join(r) and "KEY1" not in "".join(r), r)
    # A budget of ids: the same Idempotency-Key of different owners.
    s, a1 = v.http("POST", "/agents/hers/tasks", {"input": 1}, token=ann, headers={"Idempotency-Key": "tt"})
    v.agent(["x"], name="hers", token=bob)
    s, b1 = v.http("POST", "/agents/hers/tasks", {"input": 1}, token=bob, headers={"Idempotency-Key": "tt"})
    check(T, "two owners' equal ids are two jobs", s == 202 and a1.get("job") != b1.get("job"), (a1, b1))

    # Readers of histories: turns whose authority the reader could not have read.
    v.write("w/pub", "public-1", token=ann)
    v.write("w/pay", "canary-pay", token=ann)
    v.agent(lambda b: "x", name="unused", token=ann) if False else None
    v.agent([[("lattice_read", {"path": "w/pay"})], "I saw canary-pay"] + [[("lattice_read", {"path": "w/pub"})], "I saw public-1"], {"context": [{"ref": "w/pub", "label": "p"}]}, name="hist", token=ann)
    s, h1 = v.task("hist", "canary-input", body={"sessionId": "s1"}, token=ann)
    s, h2 = v.task("hist", "two", body={"sessionId": "s1", "context": [{"with": "w/pub", "can": "crud/read"}]}, token=ann)
    narrow = {"reader of g": ["g/hist:crud/read"], "reader of g and pub": ["g/hist:crud/read", "w/pub:crud/read"], "reader of all g": ["g:crud/read"], "crud on g and timeline": ["g/hist:crud", "g/hist/timeline:*"], "asker and reader": ["g/hist:agent/request", "g/hist:crud/read"], "everything on g": ["g/hist:*"], "timeline alone": ["g/hist/timeline:crud/read"]}
    reads = [("GET", "/agents/hist"), ("GET", "/agents/hist/turns"), ("GET", "/agents/hist/turns?q=canary-pay"), ("GET", "/agents/hist/turns?q=canary"), ("GET", "/agents/hist/turns/s1/1"), ("GET", "/agents/hist/turns/s1/1?prompt=true"), ("GET", "/agents/hist/turns/s1/2"), ("GET", "/agents/hist/turns/s1/2?prompt=true"), ("GET", "/agents/hist/turns/s1/3"), ("GET", "/agents/hist/turns/s1/3?prompt=true"), ("GET", "/agents/hist/turns/s1/4?prompt=true"), ("POST", "/agents/hist/turns/s1/1/replay"), ("POST", "/agents/hist/turns/s1/2/replay"), ("POST", "/agents/hist/turns/s1/4/replay"), ("GET", "/agents/hist/sessions"), ("GET", "/agents/hist/sessions/s1"), ("GET", "/values/read?path=g/hist"),
             ("GET", "/values/read?path=g/hist/timeline"), ("GET", "/values/inspect?path=g/hist"), ("GET", "/values/list?path=g/hist/timeline"), ("GET", "/values/slice?path=g/hist/timeline"), ("GET", "/values/read?path=g/hist/sessions"), ("GET", "/values/read?path=g"), ("GET", "/values/aggregate?path=g/hist/timeline&groupBy=said"), ("GET", "/values/aggregate?path=g/hist/timeline&groupBy=heard"), ("GET", "/why?path=w/pay"), ("GET", "/why?path=w/pay&agent=hist"), ("POST", "/agents/hist/context"), ("GET", "/approvals?all=true"), ("GET", "/jobs?agent=hist&details=true"), ("GET", f"/jobs/{h1.get('job')}"), ("GET", "/jobs?q=canary"), ("GET", "/jobs?q=canary&details=true")]
    ops = [("agent/info", {"agentId": "hist"}), ("agent/sessions", {"agentId": "hist"}), ("agent/session-read", {"agentId": "hist", "sessionId": "s1"}), ("agent/session-fork", {"agentId": "hist", "sessionId": "s1", "at": 2, "to": "forked"}), ("agent/fork", {"agentId": "hist", "to": "histfork", "timeline": True}), ("lattice/copy", {"from": "g/hist/timeline", "to": "w/pub/copy"}), ("asset/pin", {"path": "g/hist/timeline", "name": "pinned"}), ("schema/infer", {"path": "g/hist/timeline"}), ("json/select", {"path": "g/hist/timeline", "select": "/0"}),
           ("schema/validate", {"path": "g/hist/timeline", "schema": {"const": 1}}), ("lattice/read", {"paths": ["g/hist/timeline", "g/hist"]}), ("lattice/count", {"path": "g/hist/timeline", "depth": 3}), ("agent/chat", {"agentId": "hist", "message": "x", "sessionId": "s1"}), ("agent/request", {"agentId": "hist", "input": "x", "sessionId": "s1", "wait": 3000})]
    for who, att in narrow.items():
        t = v.issue("acme/ann", att)
        for method, path in reads:
            body = {"session": "s1"} if path.endswith("/context") else ({} if method == "POST" else None)
            s, said = v.http(method, path, body, token=t)
            check(T, f"{who}: {method} {path[:50]} hides what it could not read", "canary-pay" not in json.dumps(said) and "canary-input" not in json.dumps(said) and s < 500, (s, json.dumps(said)[:400]))
        for op, input in ops:
            before = len(v.model.seen.get(v.last_model, []))
            s, said = v.run(op, input, token=t)
            check(T, f"{who}: {op} hides what it could not read", "canary-pay" not in json.dumps(said) and "canary-input" not in json.dumps(said) and s < 500, (s, json.dumps(said)[:400]))
            if op in ("agent/chat", "agent/request") and s < 300:
                new = v.model.seen.get(v.last_model, [])[before:]
                check(T, f"{who}: the agent that it asks does not see it either ({op})", "canary-pay" not in json.dumps(new) and "canary-input" not in json.dumps(new), json.dumps(new)[-800:])
        for path in ("/agents/hist/sessions/forked", "/agents/histfork/sessions/s1", "/agents/histfork/turns/s1/1?prompt=true", "/values/read?path=g/histfork/timeline"):
            s, said = v.http("GET", path, token=t)
            check(T, f"{who}: {path[:40]} (a fork) hides it too", "canary-pay" not in json.dumps(said) and "canary-input" not in json.dumps(said), (s, json.dumps(said)[:300]))
        # Whether a search hits tells what is there.
        hit = json.dumps(v.http("GET", "/agents/hist/turns?q=canary-pay", token=t)[1])
        miss = json.dumps(v.http("GET", "/agents/hist/turns?q=canary-zzz", token=t)[1])
        check(T, f"{who}: a search does not tell what hidden turns say", hit.count('"name"') == miss.count('"name"'), (hit[:300], miss[:200]))

    # Previews and replays as a way to read: the agent may read w/pay, who asks for its context may not.
    v.agent(["ok"], {"context": [{"ref": "w/pay", "label": "pay"}, {"op": "v/ops/lattice/read", "input": {"path": "w/pay"}, "label": "op"}]}, name="prev", token=ann)
    s, p1 = v.task("prev", "hello", body={"sessionId": "p"}, token=ann)
    evil = {"model": {"provider": "scripted", "name": "echo"}, "context": [{"ref": "w/pay", "label": "z"}, {"op": "v/ops/lattice/read", "input": {"path": "w/pay"}, "label": "y"}, {"op": "v/ops/lattice/write", "input": {"path": "w/byreplay", "value": 1}, "label": "x"}, {"ref": "g/hist/timeline", "label": "t"}], "systemPrompt": "{{w/pay}}"}
    for who, att in {**narrow, "reader of prev": ["g/prev:crud/read"], "all of prev": ["g/prev:*"], "reader of prev and pub": ["g/prev:crud/read", "w/pub:*"], "writer of agents": ["g:crud/read", "g/prev:agent"]}.items():
        t = v.issue("acme/ann", att)
        for method, path, body in (("POST", "/agents/prev/context", {}), ("POST", "/agents/prev/context", {"session": "p"}), ("POST", "/agents/prev/context", {"task": "x", "sessionContext": {"k": 1}}), ("POST", "/agents/prev/turns/p/1/replay", {}), ("POST", "/agents/prev/turns/p/1/replay", {"config": evil}), ("POST", "/agents/prev/turns/p/1/replay", {"model": "scripted/echo"}), ("POST", "/agents/prev/turns/p/1/replay", {"without": ["w/zzz"]}), ("POST", "/agents/hist/turns/s1/3/replay", {"config": evil}), ("GET", "/agents/prev/turns/p/1?prompt=true", None), ("POST", "/agents/prev/context", {"context": []}), ("POST", "/agents/prev/sessions/p/fork", {"at": 1, "to": "pf"}), ("POST", "/agents/prev/fork", {"to": "prevfork", "timeline": True}), ("GET", "/agents/prevfork/turns/p/1?prompt=true", None), ("PATCH", "/agents/prev", {"config": {"description": "x"}})):
            s, said = v.http(method, path, body, token=t)
            check(T, f"{who}: {method} {path} {str(body)[:40]} shows nothing that it could not read", "canary-pay" not in json.dumps(said) and s < 500, (s, json.dumps(said)[:500]))
    check(T, "a replay writes nothing", v.read("w/byreplay", token=ann)[1].get("exists") is False)
    # The agent changed by who may change it, but not read what it reads.
    for who, att in {"crud on the agent": ["g/prev:crud", "g/prev:agent"], "all on the agent": ["g/prev:*"]}.items():
        t = v.issue("acme/ann", att)
        v.model.says("jwt-taken", [[("lattice_read", {"path": "w/pay"}), ("lattice_write", {"path": "w/taken", "value": 1})], "done"])
        s, said = v.http("PATCH", "/agents/prev", {"config": {"model": {"provider": "local", "name": "jwt-taken"}, "context": [{"ref": "w/pay", "label": "q"}], "systemPrompt": "mine"}}, token=t)
        s2, said2 = v.http("POST", "/agents/prev/tasks?wait=5000", {"input": "x"}, token=t)
        check(T, f"{who}: its changed agent reads nothing for it", "canary-pay" not in json.dumps([said2, v.model.seen.get("jwt-taken", [])]), (s, s2, said2))
        s, said = v.http("PUT", "/agents/prev", {"model": {"provider": "local", "name": "jwt-taken"}}, token=t)
        v.model.seen["jwt-taken"] = []
        v.http("POST", "/agents/prev/tasks?wait=5000", {"input": "x"}, token=ann)
        check(T, f"{who}: an agent that it has changed is, for the owner, no wider than it", s >= 400 or "canary-pay" not in json.dumps(v.model.seen.get("jwt-taken", [])), (s, said, str(v.model.seen.get("jwt-taken", []))[-300:]))

    # What operators keep for a tenant: others read their own and write nothing.
    root = v.issue("acme/root")
    s, said = v.write("v/context/project", {"rule": "canary-shared"}, token=root, owner="acme/ann")
    s2, said2 = v.write("v/context/users/bob", {"note": "canary-bobs"}, token=root, owner="acme/bob")
    for who, token in (("ann", ann), ("bob", bob), ("eve", eve), ("narrow", v.issue("acme/ann", ["w:*"])), ("claims v", v.issue("acme/ann", ["v:*"]))):
        for op, input in (("lattice/write", {"path": "v/context/project", "value": "evil"}), ("lattice/write", {"path": "v/context/users/bob", "value": "evil"}), ("lattice/write", {"path": ["v", "context", "project", "rule"], "value": "evil"}), ("lattice/delete", {"path": "v/context/project"}), ("lattice/append", {"path": "v/context/project/list", "value": 1}), ("lattice/copy", {"from": "w", "to": "v/context/project"}), ("lattice/write", {"path": "v/context", "value": {}}), ("job/run", {"operation": "v/ops/lattice/write", "input": {"path": "v/context/project", "value": "evil"}})):
            s, said = v.run(op, input, token=token)
            check(T, f"{who} can't {op} {input.get('path') or 'v/context'}", s in (400, 401, 403, 404), (s, said))
        for path in ("v/context/users/bob", "v/context/users", "v/context", ["v", "context", "users", "bob"]):
            s, said = v.read(path, token=token)
            check(T, f"{who} reads of {path} nothing of another user", who == "bob" or "canary-bobs" not in json.dumps(said), (s, said))
            check(T, f"{who} reads of {path} nothing of another tenant", who != "eve" or "canary-shared" not in json.dumps(said), (s, said))
