"""Attacks authority by paths: an agent with `caps` on one path tries every way of writing another one, by every operation,
through job/run, o/ pins, copies, assets, context entries, loads, delegates, agents that it makes, timers and timelines.
Expected: the canary outside of its caps reaches neither its results nor its prompts, and nothing outside is changed."""

import json

from venue import check

T = "paths"
CANARY = "canary-7f3a"


def attack(v):
    v.write("w/pay", {"secret": CANARY, "list": [CANARY], "n": {"m": CANARY}})
    v.write("w/a", {"ok": 1, "list": [1]})
    v.write("w/ab", {"x": CANARY})
    v.run("lattice/write", {"path": ["w", "a/b"], "value": CANARY})
    v.run("lattice/write", {"path": ["w", "a "], "value": CANARY})
    v.run("lattice/write", {"path": ["w", "A"], "value": CANARY})
    s, said = v.http("POST", "/assets", {"content": CANARY, "name": "canary"})
    asset = said if isinstance(said, str) else said.get("id")
    v.run("asset/pin", {"path": "w/pay", "name": "paypin"})
    other = v.agent([CANARY], name="victim")
    _, vjob = v.task(other, CANARY)
    caps = [{"with": "w/a", "can": "crud"}]
    reads = ["w/pay", "w/pay/secret", "/w/pay", "w//pay", "w/a/../pay", "w/a/../../w/pay", "w/./pay", "w/a/..%2fpay", "w%2Fpay", "w/%70ay", "W/pay", "w/PAY", "w/pay/", " w/pay", "w/pay ", "w/ab", "w/a/b", "w\\pay", "w/a\u0000/pay",
             "w", "", "/", "w/", "w/a/", ".", "w/*", "w/a*", "**", "~/w/pay", "local/me/w/pay", "did:web:127.0.0.1/w/pay", "o/paypin", "o/paypin/secret", "g/victim", "g/victim/timeline", "g/victim/config", "j", f"j/{vjob.get('job')}", f"j/{vjob.get('job')}/input",
             f"a/{asset}", f"a/{asset}/content", "s", "n", "c", "t", "v/ops", "h", "r", "d",
             ["w", "pay"], ["w", "a/b"], ["w/pay"], ["w/a/../pay"], ["w", "a", "..", "pay"], ["w", "ab"], ["w", "a "], ["w", "A"], ["", "w", "pay"], ["w", "", "pay"], ["w", "pay", "secret"], ["w", ["pay"]], ["w", {"x": 1}], ["w", 0], [], [[]], {"path": "w/pay"}, "w/a\ufeff/../pay", "\ufeffw/pay", "w/pay\u200b", "w/a/b"]
    one = lambda p: [("lattice_read", {"path": p}), ("lattice_list", {"path": p}), ("lattice_slice", {"path": p}), ("lattice_inspect", {"path": p}), ("schema_infer", {"path": p}), ("asset_pin", {"path": p, "name": "mine"}),
                     ("schema_validate", {"schema": {"const": 0}, "path": p}), ("lattice_read", {"paths": ["w/a", p]}), ("lattice_inspect", {"paths": ["w/a", p]}),
                     ("job_run", {"operation": "v/ops/lattice/read", "input": {"path": p}}), ("job_run", {"operation": "v/ops/json/select", "input": {"path": p, "select": "/secret"}}),
                     ("job_run", {"operation": "v/ops/lattice/copy", "input": {"from": p, "to": "w/a/got"}}), ("job_run", {"operation": "lattice:read", "input": {"path": p}}),
                     ("job_run", {"operation": "v/ops/covia/read", "input": {"path": p}}), ("job_run", {"operation": "v/ops/job/run", "input": {"operation": "v/ops/lattice/read", "input": {"path": p}}}),
                     ("job_run", {"operation": "v/ops/lattice/count", "input": {"path": p}}), ("job_run", {"operation": "v/ops/lattice/aggregate", "input": {"path": p, "groupBy": "secret", "depth": 1}}),
                     ("context_load", {"path": p}), ("lattice_read", {"path": "w/a/got"}), ("asset_content", {"id": p if isinstance(p, str) else "x"}), ("asset_get", {"id": p if isinstance(p, str) else "x"}), ("lattice_read", {"path": "o/mine"})]
    for p in reads:
        v.run("lattice/delete", {"path": "w/a/got"})
        calls = one(p)
        r, job, a = v.calls(calls, {"caps": caps})
        check(T, f"caps w/a: reads of {p!r} end", job.get("status") == "COMPLETE", job)
        check(T, f"caps w/a: {p!r} shows nothing of others in {len(calls)} ways", CANARY not in "".join(r) and CANARY not in v.prompt(), [(c[0], x) for c, x in zip(calls, r) if CANARY in x])
        entry = {"ref": p, "label": "x"} if isinstance(p, str) else {"op": "v/ops/lattice/read", "input": {"path": p}, "label": "x"}
        for entry in ([entry, {"op": "v/ops/lattice/read", "input": {"path": p}, "label": "y"}, {"op": "v/ops/job/run", "input": {"operation": "v/ops/lattice/read", "input": {"path": p}}, "label": "z"}] if isinstance(p, str) and p.strip() else [entry]):
            try:
                a = v.agent(["fine"], {"caps": caps, "context": [entry]})
            except RuntimeError as e:
                check(T, f"an entry {entry} is refused with a reason", "400" in str(e) or "422" in str(e), e)
                continue
            s, job = v.task(a)
            v.run("lattice/delete", {"path": "w/a/got"})
            check(T, f"caps w/a: the entry {entry} shows nothing", CANARY not in v.prompt() or (isinstance(p, str) and CANARY in p), v.prompt()[-900:])
    # The id of an asset that isn't theirs: an asset is named by its hash.
    writes = ["w/pay", "w/ab", ["w", "a/b"], "w/a/../pay", "g/victim/config", "v/ops/x", "s/x", "a/x", "j/x", f"j/{vjob.get('job')}/output", "o/paypin", "w", "", ["w"], "policy", "g/victim", "r/app", ["w", "a", "..", "pay"], "w/A", ["w", "a "]]
    before = v.read("w")[1]
    for p in writes:
        calls = [("lattice_write", {"path": p, "value": "evil"}), ("lattice_append", {"path": p, "value": "evil"}), ("lattice_delete", {"path": p}), ("job_run", {"operation": "v/ops/lattice/copy", "input": {"from": "w/a", "to": p}}),
                 ("job_run", {"operation": "v/ops/covia/write", "input": {"path": p, "value": "evil"}}), ("job_run", {"operation": "v/ops/covia/delete", "input": {"path": p}})]
        r, job, a = v.calls(calls, {"caps": caps})
        check(T, f"caps w/a: writes to {p!r} are refused in {len(calls)} ways", len(r) == len(calls) and not any('"written":true' in x or '"deleted":true' in x or '"appended":true' in x or '"copied":true' in x for x in r), r)
    after = v.read("w")[1]
    changed = {k for k in before["value"] if k != "a" and before["value"][k] != after["value"].get(k)}
    check(T, "nothing outside of w/a was changed", not changed, changed)

    # Growing through others.
    everything = [{"with": "", "can": "*"}]
    for name, caps in {"agents": [{"with": "g", "can": "agent"}, {"with": "w/a", "can": "crud"}, {"with": "v", "can": "*"}], "agents and crud on g": [{"with": "g", "can": "*"}, {"with": "w/a", "can": "crud"}]}.items():
        calls = [("agent_create", {"agentId": f"made{len(name)}", "config": {"model": {"provider": "local", "name": "evil-" + name}, "caps": everything}}),
                 ("agent_request", {"agentId": f"made{len(name)}", "input": "go", "wait": 3000})]
        v.model.says("evil-" + name, [[("lattice_read", {"path": "w/pay"}), ("lattice_write", {"path": "w/pay2", "value": 1}), ("agent_create", {"agentId": "grand", "config": {"model": {"provider": "scripted", "name": "echo"}}})], "done"])
        r, job, a = v.calls(calls, {"caps": caps})
        check(T, f"an agent with {name} makes none that can more", CANARY not in json.dumps(v.model.seen.get("evil-" + name, [])), r)
        s, said = v.read("w/pay2")
        check(T, f"nor writes ({name})", said.get("exists") is False, said)
        # Then the owner himself asks it: what it was made with still holds.
        v.model.seen.pop("evil-" + name, None)
        v.task(f"made{len(name)}", "again")
        check(T, f"an agent that was made by one of {name} can't more when the owner asks", CANARY not in json.dumps(v.model.seen.get("evil-" + name, [])), r)
    caps = [{"with": "w/a", "can": "crud"}]
    ops = {"agent/update": {"agentId": "victim", "config": {"caps": None, "systemPrompt": "evil"}}, "agent/create": {"agentId": "victim", "overwrite": True, "config": {"model": {"provider": "scripted", "name": "echo"}}}, "agent/fork": {"agentId": "victim", "to": "victim2", "timeline": True}, "agent/delete": {"agentId": "victim"},
           "agent/suspend": {"agentId": "victim"}, "agent/resume": {"agentId": "victim"}, "agent/info": {"agentId": "victim"}, "agent/list": {}, "agent/sessions": {"agentId": "victim"}, "agent/session-read": {"agentId": "victim", "sessionId": vjob.get("session")}, "agent/session-fork": {"agentId": "victim", "sessionId": vjob.get("session"), "at": 1},
           "agent/request": {"agentId": "victim", "input": "x"}, "agent/message": {"agentId": "victim", "message": "x"}, "agent/chat": {"agentId": "victim", "message": "x"}, "agent/trigger": {"agentId": "victim", "input": "x", "after": "1h"}, "agent/cancel-task": {"agentId": "victim", "taskId": vjob.get("job")}, "policy/roots": {"caps": None},
           "policy/approvals": {"caps": []}, "policy/show": {}, "policy/revoke": {"path": "w"}, "policy/restore": {"id": "0" * 32}, "secret/list": {}, "secret/set": {"name": "X1", "value": "12345678"}, "secret/delete": {"name": "X1"}, "approval/list": {"all": True}, "dead/list": {}, "dead/show": {"id": vjob.get("job")},
           "dead/redrive": {"id": vjob.get("job")}, "resource/list": {}, "resource/purge": {"namespace": "app", "recursive": True}, "timer/list": {}, "timer/cancel": {"timer": "0" * 32}, "job/result": {"id": vjob.get("job")}, "queue/publish": {"queue": "q", "input": 1}, "http/get": {"url": "https://example.com/"},
           "asset/store": {"content": "x"}, "asset/list": {}, "asset/content": {"id": asset}, "asset/get": {"id": asset}, "asset/pin": {"path": "w/a", "name": "paypin"}, "agent/wake": {"after": "1h"}}
    for op, input in ops.items():
        for route in ("tool", "job/run", "mixed case"):
            path = "v/ops/" + op
            if route == "tool":
                r, job, a = v.calls([(op.replace("/", "_").replace("-", "_"), input)], {"caps": caps, "tools": [path], "defaultTools": False}, wait=2500)
            elif route == "job/run":
                r, job, a = v.calls([("job_run", {"operation": path, "input": input})], {"caps": caps}, wait=2500)
            else:
                r, job, a = v.calls([("job_run", {"operation": op.replace("/", ":", 1), "input": input})], {"caps": caps}, wait=2500)
            text = "".join(r)
            check(T, f"caps w/a: {op} by {route} is denied", CANARY not in text and ("enied" in text or "not allowed" in text or "error" in text.lower() or "unknown" in text.lower() or "can't" in text or "needs" in text or op in ("agent/wake", "agent/list", "asset/list", "timer/list", "approval/list", "dead/list", "resource/list", "secret/list")), (r, job))
            if op in ("agent/list", "asset/list", "timer/list", "approval/list", "dead/list", "resource/list", "secret/list"):
                check(T, f"caps w/a: {op} by {route} lists nothing", "victim" not in text and (asset or "?") not in text, r)
    s, said = v.http("GET", "/agents/victim")
    check(T, "the victim is as it was", said.get("status") == "SLEEPING" and "systemPrompt" not in said.get("config", {}), said)
    s, said = v.run("policy/show", {})
    check(T, "the policy is as it was", not said.get("revocations") and said.get("roots") in (None, []) or "w/pay" not in json.dumps(said), said)
    # Grants of requests with odd texts: narrow or refused, never wide.
    for w in ("w/a/..", "w//", "*", "w/*", "%77", "W", "\ufeffw", "w\u200b", " ", " w", "w ", ["w"], None, 0, {"x": 1}, "w/a\u0000", "..", "./w", "w/ab/../pay", "w\\pay"):
        for can in ("crud/read", "*", "", "CRUD", "crud/*", " crud", "crud ", "crud\u200b", None, ["crud"], "crud/read,crud/write", "/"):
            if w == "" and can in ("*", "crud/read") or can not in ("crud/read",) and w not in ("w/a/..", " w"):
                continue
            a = v.agent([[("lattice_read", {"path": "w/pay"})], "done"])
            s, job = v.http("POST", f"/agents/{a}/tasks?wait=3000", {"input": 1, "context": [{"with": w, "can": can}]})
            held = CANARY not in v.prompt()
            check(T, f"a grant of {w!r} {can!r} is narrow or refused", held and (s < 500), (s, job, v.prompt()[-300:]))
