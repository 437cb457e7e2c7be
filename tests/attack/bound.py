"""Attacks bound arguments and the values behind them: models that name a bound argument, its tool by other names, through `job/run`, pins, aliases,
agents that they make, fork, change, ask or wake; reads of `v/context` by every operation and spelling; errors, ledgers, approvals and copies;
values that change while a person is asked. Expected: a bound argument is what its source says, and no value of it reaches a model."""

import json
import time

from venue import check

T = "bound"
SETS = ["catalog.test=true"]
C = "canarybd"
PATH = "v/context/project"


def attack(v):
    who = {"token": v.issue("acme/ann")} if v.mode == "jwt" else {}
    root = {"token": v.issue("acme/root"), "owner": "acme/ann"} if v.mode == "jwt" else {}
    user = "ann" if v.mode == "jwt" else "me"
    for path, value in ((PATH, {"hidden": C + "-p", "place": f"w/{C}-w/x", "host": f"http://{C}-h.example/x", "number": 5, "list": ["a", "b"], "map": {"a": {"b": C}}, "id": "0" * 32, "empty": "", "nil": None, "kind": "PROJECT"}), (f"v/context/users/{user}", {"mine": f"w/{C}-n/y", "kind": "USER"})):
        s, said = v.write(path, value, **root)
        check(T, f"an operator writes {path[:18]}", s == 200, said)
    hidden(v, who)
    others_make(v, who)
    named(v, who)
    order(v, who)
    errors(v, who)
    approved(v, who, root)
    applied(v, who)


def hidden(v, who):
    """Reads of the values by an agent that binds arguments."""
    bound = {"toolArgInjection": {"lattice_write": {"path": "mine"}}}
    spellings = [PATH, "v/context", "v", "", "/", "v/context/", "v//context/project", "/v/context/project", "v/context/project/hidden", "v/./context/project", "v/context/../context/project", "V/context/project", "v/Context/project", "v/context/%70roject", "v%2Fcontext%2Fproject",
                 ["v", "context", "project"], ["v", "context", "project", "hidden"], ["v/context", "project"], ["v", "context/project"], "v/context/users", "v/context/users/me", "v/context/users/ann", "/local/me/v/context/project", "/acme/ann/v/context/project", "local/me/v/context/project", "v/ops/../context/project", "v\u200b/context/project", "ｖ/context/project", "v/context/project\u0000", " v/context/project", "v/context/*", "*", "did:web:attack.example/v/context/project"]
    for path in spellings:
        ops = [("lattice_read", {"path": path}), ("lattice_read", {"paths": [path]}), ("lattice_inspect", {"path": path}), ("lattice_list", {"path": path}), ("lattice_slice", {"path": path}), ("json_select", {"path": path, "select": "hidden"}), ("schema_infer", {"path": path}), ("schema_validate", {"path": path, "schema": {"const": 1}}),
               ("lattice_copy", {"from": path, "to": "w/copied"}), ("asset_pin", {"path": path, "name": "bdpin"}), ("lattice_aggregate", {"path": path, "groupBy": "hidden"}), ("context_load", {"path": path if isinstance(path, str) else "/".join(path)}), ("covia_read", {"path": path}), ("asset_store", {"content": {"$ref": path}}), ("agent_create", {"agentId": "bdmade", "config": path}), ("agent_create", {"agentId": "bdmade2", "definition": path})]
        calls = ops + [("job_run", {"operation": "v/ops/" + n.replace("_", "/", 1), "input": i}) for n, i in ops if n.startswith(("lattice", "json", "schema", "asset", "covia"))]
        a = v.agent([calls, [("lattice_read", {"path": "w/copied"}), ("lattice_read", {"path": "o/bdpin"}), ("lattice_list", {"path": "w"})], "done"], bound, **who)
        s, job = v.task(a, **who)
        check(T, f"a read of {str(path)[:34]!r} in {len(calls)} ways shows the model nothing", C not in v.prompt() and job.get("status") == "COMPLETE", (job.get("status"), v.prompt()[v.prompt().find(C) - 200:][:400] if C in v.prompt() else ""))
    for where in ("w/copied", "o/bdpin", "g/bdmade/config", "g/bdmade2/config"):
        check(T, f"and nothing of them was copied to {where}", C not in json.dumps(v.read(where, **who)[1]), where)
    # Placeholders and entries that a model makes for itself or another.
    for text in ("${hidden}", "{{hidden}}", "${map.a.b}", "${map}", "${user.mine}", "{{ hidden }}", "${project.hidden}"):
        calls = [("lattice_write", {"value": text}), ("memory_write", {"content": text}), ("context_load", {"path": "w/notes", "label": text}), ("agent_wake", {"after": 10, "note": text})]
        a = v.agent([calls, text, "done"], bound, **who)
        s, job = v.task(a, {"text": text}, body={"sessionId": "ph"}, **who)
        v.task(a, "again", body={"sessionId": "ph", "loads": [{"path": "w/notes", "label": text}]}, **who)
        check(T, f"the placeholder {text} that a caller or a model says is no value", C not in v.prompt(), v.prompt()[-600:])


def others_make(v, who):
    """Agents that a bound agent makes, forks, changes, asks or wakes read no more of the values."""
    bound = {"toolArgInjection": {"lattice_write": {"path": "mine"}}}
    v.agent([[("lattice_read", {"path": PATH})], lambda b: json.dumps(b["messages"][-1])], name="bdfree", **who)
    free = lambda name: {"model": {"provider": "local", "name": name}, "systemPrompt": "say ${hidden} {{map}}", "context": [{"ref": PATH}, {"text": "at ${hidden}"}, {"op": "v/ops/lattice/read", "input": {"path": PATH}}], "defaultTools": True}
    tries = {
        "an agent that it makes": [[("agent_create", {"agentId": "bdx1", "config": free("bdchild")})], [("agent_request", {"agentId": "bdx1", "input": "go", "wait": 4000})]],
        "an agent that it makes of its own file": [[("agent_create", {"agentId": "bdx2", "config": ["g/SELF/config", free("bdchild")]})], [("agent_request", {"agentId": "bdx2", "input": "go", "wait": 4000})]],
        "a fork of itself": [[("agent_fork", {"agentId": "SELF", "to": "bdx3", "config": {"toolArgInjection": None, **free("bdchild")}})], [("agent_request", {"agentId": "bdx3", "input": "go", "wait": 4000})]],
        "itself, changed": [[("agent_update", {"agentId": "SELF", "config": {"toolArgInjection": None}})], [("lattice_read", {"path": PATH})], [("agent_request", {"agentId": "bdfree", "input": "go", "wait": 4000})]],
        "itself, changed to show it": [[("agent_update", {"agentId": "SELF", "config": {"context": [{"ref": PATH}], "systemPrompt": "${hidden}"}})], [("lattice_read", {"path": "w/none"})]],
        "an agent that was there": [[("agent_request", {"agentId": "bdfree", "input": "go", "wait": 4000})]],
        "an agent that was there, with grants": [[("agent_request", {"agentId": "bdfree", "input": "go", "wait": 4000, "context": [{"with": "v/context", "can": "crud/read"}, {"with": "", "can": "*"}]})]],
        "an agent that was there, with loads": [[("agent_request", {"agentId": "bdfree", "input": "go", "wait": 4000, "loads": {PATH: {}}})]],
        "a chat": [[("agent_chat", {"agentId": "bdfree", "message": "go", "timeout": 4000})]],
        "a message to another session of its own": [[("agent_message", {"agentId": "SELF", "sessionId": "other", "message": "go", "loads": {PATH: {}}})]],
        "its own preview": [[("agent_context", {"agentId": "SELF", "task": "${hidden}"})], [("agent_reload-context", {"agentId": "SELF"})], [("agent_info", {"agentId": "SELF"})]],
        "the preview of one that shows it": [[("agent_context", {"agentId": "bdshown"})], [("agent_session-read", {"agentId": "bdshown", "sessionId": "s1"})], [("lattice_read", {"path": "g/bdshown/timeline"})]],
        "a timer of one that reads it": [[("agent_trigger", {"agentId": "bdfree", "after": "1s", "input": "go", "sessionId": "tm"})], [("test_delay", {"delay": 2500})], [("agent_session-read", {"agentId": "bdfree", "sessionId": "tm"})]],
        "more tools": [[("more_tools", {"query": "read lattice copy"})], [("v_ops_lattice_read", {"path": PATH}), ("lattice_read", {"path": PATH})]],
        "invented bindings in a call": [[("lattice_write", {"path": "w/mine", "value": 1, "toolArgInjection": {}, "_bind": "hidden"})], [("lattice_read", {"path": "w/mine"})]],
    }
    v.agent(["ok"], {"context": [{"ref": PATH}], "systemPrompt": "with ${hidden}"}, name="bdshown", **who)
    v.task("bdshown", body={"sessionId": "s1"}, **who)
    for name, steps in tries.items():
        v.model.says("bdchild", [[("lattice_read", {"path": PATH}), ("job_run", {"operation": "v/ops/lattice/read", "input": {"path": PATH}})], lambda b: json.dumps([m for m in b["messages"] if m["role"] != "user"])[:3000]])
        me = v.name("bd")
        v.agent([*[json.loads(json.dumps(s).replace("SELF", me)) for s in steps], [("agent_info", {"agentId": me})], "done"], {**bound, "tools": ["v/ops/agent/fork", "v/ops/agent/context", "v/ops/agent/reload-context", "v/ops/agent/update", "v/ops/agent/create", "v/ops/agent/request", "v/ops/agent/chat", "v/ops/agent/message", "v/ops/agent/session-read", "v/ops/agent/info", "v/ops/agent/trigger", "v/ops/test/delay", "more_tools"]}, name=me, **who)
        mine = v.last_model
        s, job = v.task(me, wait=15000, **who)
        seen = json.dumps([b["messages"] for b in v.model.seen.get(mine, [])])
        check(T, f"{name} shows the model no hidden value", C not in seen and 200 <= s < 300, (s, job.get("status"), seen[max(0, seen.find(C) - 300):][:400]))
        made = json.dumps([b["messages"] for b in v.model.seen.get("bdchild", [])])
        if name.startswith(("an agent that it", "a fork")):
            reads = [m for b in v.model.seen.get("bdchild", []) for m in b["messages"] if m["role"] == "tool"]
            check(T, f"{name} reads none by calls of its own", C not in json.dumps(reads), reads)
            check(T, f"{name} has none in its own prompt", C not in made, made[max(0, made.find(C) - 300):][:500])


def named(v, who):
    """A model that names the bound argument, or its tool otherwise."""
    target = f"w/{C}-n/y"
    v.run("asset/pin", {"path": "v/ops/lattice/write", "name": "bdw"}, **who)
    for name, (tools, inject, call) in {
        "by its name": (["v/ops/lattice/write"], {"lattice_write": {"path": "mine"}}, ("lattice_write", {"path": "w/evil", "value": 1})),
        "by its path": (["v/ops/lattice/write"], {"v/ops/lattice/write": {"path": "mine"}}, ("lattice_write", {"path": "w/evil", "value": 1})),
        "under another name": ([{"operation": "v/ops/lattice/write", "name": "save"}], {"save": {"path": "mine"}}, ("save", {"path": "w/evil", "value": 1})),
        "under another name, by its path": ([{"operation": "v/ops/lattice/write", "name": "save"}], {"v/ops/lattice/write": {"path": "mine"}}, ("save", {"path": "w/evil", "value": 1})),
        "a pin": (["o/bdw"], {"o/bdw": {"path": "mine"}}, ("bdw", {"path": "w/evil", "value": 1})),
        "a pin, by its operation": (["o/bdw"], {"v/ops/lattice/write": {"path": "mine"}}, ("bdw", {"path": "w/evil", "value": 1})),
        "of all tools": (["v/ops/lattice/write"], {"_global": {"path": "mine"}}, ("lattice_write", {"path": "w/evil", "value": 1})),
        "of all tools, a pin": (["o/bdw"], {"_global": {"path": "mine"}}, ("bdw", {"path": "w/evil", "value": 1})),
        "an alias": (["v/ops/covia/write"], {"v/ops/lattice/write": {"path": "mine"}}, ("covia_write", {"path": "w/evil", "value": 1})),
        "two names of one operation": (["v/ops/lattice/write", {"operation": "v/ops/lattice/write", "name": "again"}], {"v/ops/lattice/write": {"path": "mine"}}, ("again", {"path": "w/evil", "value": 1})),
    }.items():
        for extra in ({}, {"Path": "w/evil"}, {"path ": "w/evil"}, {"path": ["w", "evil"]}, {"path": None}, {"_scopes": ["input"]}):
            v.write(target, "before", **who)
            try:
                a = v.agent([lambda b, c=call, e=extra: [(next((t["function"]["name"] for t in b.get("tools", []) if c[0] in t["function"]["name"]), c[0]), {**c[1], **e})], "done"], {"tools": tools, "defaultTools": False, "toolArgInjection": inject}, **who)
            except RuntimeError as e:
                check(T, f"a binding {name} is refused with a reason", ": 4" in str(e), e)
                break
            s, job = v.task(a, **who)
            b = v.model.seen[v.last_model][0]
            tool = next((t for t in b.get("tools", []) if call[0] in t["function"]["name"]), {})
            check(T, f"a binding {name}, and {extra}: nothing is written where the model says", v.read("w/evil", **who)[1].get("exists") is False, v.prompt()[-500:])
            check(T, f"a binding {name}: its argument is not offered", tool and "path" not in tool["function"]["parameters"].get("properties", {}), tool)
            check(T, f"a binding {name}, and {extra}: the model is shown no value", C not in v.prompt(), v.prompt()[-400:])
            v.run("lattice/delete", {"path": "w/evil"}, **who)


def order(v, who):
    """A constant before a binding, that before `_global`, that before `_auto`; types and paths of values."""
    tool, name = "v/ops/test/echo", "test_echo"
    for what, config, want in (
        ("nothing but one source", {"toolArgInjection": {"lattice_write": {"value": "kind"}}}, "USER"),
        ("a constant before a source", {"contextMapping": {"constants": {"lattice_write": {"value": 7}}}, "toolArgInjection": {"lattice_write": {"value": "kind"}}}, 7),
        ("a source before _global", {"toolArgInjection": {"lattice_write": {"value": "number"}, "_global": {"value": "kind"}}}, 5),
        ("project only", {"contextMapping": [{"key": "kind", "source": "_global"}], "toolArgInjection": {"lattice_write": {"value": "kind"}}}, "PROJECT"),
        ("a place in a list", {"toolArgInjection": {"lattice_write": {"value": "list.1"}}}, "b"),
        ("a nested key", {"toolArgInjection": {"lattice_write": {"value": "map.a.b"}}}, C),
        ("a constant of false", {"contextMapping": {"constants": {"lattice_write": {"value": False}}}}, False),
        ("a constant of null", {"contextMapping": {"constants": {"lattice_write": {"value": None}}}}, None),
        ("a row's constant", {"contextMapping": [{"key": "kind", "source": "CONSTANT:{\"a\": 1}"}], "toolArgInjection": {"lattice_write": {"value": "kind"}}}, {"a": 1}),
        ("an empty text", {"toolArgInjection": {"lattice_write": {"value": "empty"}}}, ""),
    ):
        v.run("lattice/delete", {"path": "w/bdorder"}, **who)
        try:
            a = v.agent([[("lattice_write", {"path": "w/bdorder", "value": "evil"})], "done"], {"tools": ["v/ops/lattice/write"], "defaultTools": False, **config}, **who)
        except RuntimeError as e:
            check(T, f"{what} is refused with a reason", ": 4" in str(e), e)
            continue
        v.task(a, **who, body={"sessionContext": {"value": "evil"}})
        got = v.read("w/bdorder", **who)[1]
        check(T, f"{what} is what is written", got.get("exists") and got.get("value") == want, (got, v.prompt()[-300:]))
    # The caller's values fill in no row of the author's, and no auto row takes them for others.
    for key, value in (("kind", "evil"), ("kind.x", "evil"), ("Kind", "evil"), ("number", "evil"), ("map", {"a": {"b": "evil"}})):
        a = v.agent([[("lattice_write", {"path": "w/bdrow"})], "done"], {"tools": ["v/ops/lattice/write"], "defaultTools": False, "contextMapping": [{"key": "kind", "source": "CONSTANT:fixed"}, {"key": "number", "source": "_global"}, {"key": "map", "source": "project.map"}], "toolArgInjection": {"lattice_write": {"value": key.lower()}}}, **who)
        v.task(a, body={"sessionContext": {key: value}}, **who)
        check(T, f"a caller's {key} takes no place of the author's row", v.read("w/bdrow", **who)[1].get("value") != value, v.read("w/bdrow", **who))


def errors(v, who):
    """What an error of a call says of its bound argument."""
    for tool, arg, key, call in (("lattice/read", "path", "place", {}), ("lattice/write", "path", "place", {"value": 1}), ("lattice/delete", "path", "place", {}), ("lattice/append", "path", "place", {"value": 1}), ("lattice/copy", "from", "place", {"to": "w/a/x"}), ("lattice/copy", "to", "place", {"from": "w/a"}), ("http/get", "url", "host", {}), ("http/post", "url", "host", {"body": 1}), ("agent/info", "agentId", "hidden", {}), ("agent/request", "agentId", "hidden", {"input": 1}), ("agent/message", "agentId", "hidden", {"message": 1}), ("asset/get", "id", "hidden", {}), ("job/result", "id", "hidden", {}), ("secret/delete", "name", "hidden", {}), ("policy/revoke", "path", "hidden", {}), ("queue/publish", "queue", "hidden", {"input": 1}), ("test/error", "message", "hidden", {}), ("agent/create", "agentId", "hidden", {"config": 5}), ("agent/trigger", "agentId", "hidden", {"after": "5m", "input": 1}), ("job/run", "operation", "hidden", {"input": {}}), ("lattice/inspect", "path", "place", {}), ("schema/validate", "value", "hidden", {"schema": {"type": "integer"}}), ("json/select", "value", "hidden", {"select": "a/b"}), ("json/merge", "values", "hidden", {}), ("agent/fork", "to", "place", {"agentId": "x"}), ("timer/cancel", "timer", "hidden", {}), ("resource/purge", "namespace", "hidden", {})):
        op = "v/ops/" + tool
        for caps in (None, [{"with": "w/a", "can": "*"}]):
            try:
                r, job, a = v.calls([(tool.replace("/", "_"), call)], {"tools": [op], "defaultTools": False, "toolArgInjection": {op: {arg: key}}, **({"caps": caps} if caps else {})}, **who)
            except RuntimeError as e:
                check(T, f"{tool} bound is refused with a reason", ": 4" in str(e), e)
                continue
            echoes = tool in ("test/error", "schema/validate", "json/select", "json/merge")
            check(T, f"{tool} by {'caps' if caps else 'all'}: what its result says of a bound {arg} has no value of it", echoes or C not in "".join(r), r)


def approved(v, who, root):
    """A bound value while a person is asked."""
    config = {"tools": [{"operation": "v/ops/lattice/write", "approval": "ask"}], "defaultTools": False, "toolArgInjection": {"lattice_write": {"path": "turn"}}}
    for n, edit in enumerate(({}, {"arguments": {"path": "w/evil3", "value": 1}}, {"arguments": {"value": 2}}, {"arguments": {"path": "w/ok3"}}, {"arguments": {"value": 1, "Path": "w/evil3"}}, "changed")):
        v.write(PATH + "/turn", f"w/ok3/{n}", **root)
        a = v.agent([[("lattice_write", {"value": 1})], "done"], config, **who)
        s, job = v.http("POST", f"/agents/{a}/tasks", {"input": 1}, **who)
        w = {}
        for _ in range(60):
            w = next((x for x in v.http("GET", "/approvals", **who)[1].get("items", []) if x.get("job") == job.get("job")), {})
            if w:
                break
            time.sleep(0.1)
        check(T, f"a bound call waits ({n})", w.get("id"), job)
        if edit == "changed":
            v.write(PATH + "/turn", "w/evil3/x", **root)
            edit = {}
        s, said = v.http("POST", f"/approvals/{w.get('id')}", {"approve": edit, "digest": w.get("digest")}, **who)
        check(T, f"approved with {edit} is done or refused with a reason", s == 200 or 400 <= s < 500, (s, said))
        if s != 200:
            v.http("POST", f"/approvals/{w.get('id')}", {"reject": {}}, **who)
        end = v.http("GET", f"/jobs/{job.get('job')}?wait=6000", **who)[1]
        check(T, f"approved with {edit} ({n}): nothing is written elsewhere", v.read("w/evil3", **who)[1].get("exists") is False and end.get("status") == "COMPLETE", (said, end))


def applied(v, who):
    """Bindings in odd shapes: taken, or refused with their place; never an error of the server."""
    for inject in ({}, {"lattice_write": {}}, {"lattice_write": {"path": ""}}, {"lattice_write": {"path": 5}}, {"lattice_write": {"path": None}}, {"lattice_write": {"path": {"a": 1}}}, {"lattice_write": {"": "a"}}, {"": {"path": "a"}}, {"lattice_write": "path"}, [], "x", {"_global": {"nowhere": "a"}}, {"_global": "x"}, {"_auto": True}, {"lattice_write": {"_auto": "no"}}, {"lattice_write": {"_auto": True}}, {"lattice_write": {"_scopes": "a"}}, {"lattice_write": {"path": "a" * 100000}}, {f"t{i}": {"a": "b"} for i in range(3000)}, {"lattice_write": {f"a{i}": "b" for i in range(3000)}}, {"lattice_write": {"path": "a." * 3000}}, {"lattice_write": {"path/x": "a"}}, {"lattice_write": {"path": "LLM"}}, {"lattice_write": {"path": "CONSTANT:w/x"}}, {"lattice_write": {"path": "session."}}, {"lattice_write": {"path": "user.__proto__"}}, {"complete_task": {"result": "hidden"}}, {"more_tools": {"query": "hidden"}}, {"context_load": {"path": "place"}}, {"lattice_write": {"path": "\u202ehidden"}}):
        s, said = v.http("PUT", "/agents/bdodd", {"model": {"provider": "local", "name": "bdodd"}, "toolArgInjection": inject}, **who)
        check(T, f"bindings {json.dumps(inject)[:60]} are taken or refused with their place", s in (200, 201) or 400 <= s < 500 and "nject" in json.dumps(said), (s, said))
        check(T, f"bindings {json.dumps(inject)[:60]}: the answer is short", len(json.dumps(said)) < 20000, len(json.dumps(said)))
        if s in (200, 201):
            v.model.says("bdodd", [[("lattice_write", {"path": "w/odd", "value": 1}), ("context_load", {"path": "w/odd"})], "done"])
            s, job = v.task("bdodd", **who)
            check(T, f"bindings {json.dumps(inject)[:60]}: the task ends and shows no value", job.get("status") in ("COMPLETE", "FAILED") and C not in json.dumps([b["messages"] for b in v.model.seen["bdodd"]]), job)
    for mapping in ([], {}, "x", [5], [{}], [{"key": ""}], [{"key": "a", "source": "_auto"}, {"key": "a", "source": "_auto"}], [{"key": "user_id", "source": "CONSTANT:root"}], [{"key": "tenant_id", "source": "session.x"}], [{"key": "a", "source": "b"}, {"key": "b", "source": "a"}], [{"key": "a", "source": "a"}], {"declaredKeys": ["a"] * 5000}, {"declaredKeys": "a"}, {"constants": []}, {"constants": {"none": {"a": 1}}}, {"entityIdsKey": 5}, {"a": {"source": "x", "fallback": {"$secret": "s/x"}}}, [{"key": f"k{i}", "source": "_auto"} for i in range(2000)], [{"key": "a", "source": "CONSTANT:" + "[" * 5000}], [{"key": "a", "source": "CONSTANT:1e-400"}]):
        s, said = v.http("PUT", "/agents/bdodd", {"model": {"provider": "local", "name": "bdodd"}, "contextMapping": mapping, "systemPrompt": "${a} ${user_id} ${tenant_id}"}, **who)
        check(T, f"the mapping {json.dumps(mapping)[:60]} is taken or refused with its place", s in (200, 201) or 400 <= s < 500 and any(k in json.dumps(said) for k in ("contextMapping", "entityIdsKey")), (s, said))
        if s in (200, 201):
            v.model.says("bdodd", ["done"])
            s, job = v.task("bdodd", **who)
            check(T, f"the mapping {json.dumps(mapping)[:60]}: the task ends", job.get("status") in ("COMPLETE", "FAILED"), job)
