"""Attacks pins `o/`, paths of owners in tools, context entries and configurations by path: a pin of an operation that its user has no right
to, of itself, in a ring, changed between and during turns, one that shadows a tool or goes around an approval; own and others' DIDs and owners as
paths; entries that write, that are a job's inside, a pattern, a list; `definition` by path. Expected: a pin is what it names now and gives
no right; another owner's path is denied whether or not something is there; what can't be read is said to be so, and nothing of it."""

import json
import time

from venue import check

T = "pins"
SECRET = "canary-pin"
READ = {"with": "w/a", "can": "crud"}


def attack(v):
    if v.mode == "jwt":
        return tokens(v)
    v.write("w/pay", {"s": SECRET})
    v.write("w/a", {"ok": 1, "list": [1, 2]})
    pin = lambda path, name, **more: v.run("asset/pin", {"path": path, "name": name}, **more)
    s, said = pin("v/ops/lattice/read", "look")
    check(T, "an operation is pinned", s == 200, said)
    for name, op in {"w": "v/ops/lattice/write", "del": "v/ops/lattice/delete", "sec": "v/ops/secret/list", "runit": "v/ops/job/run", "make": "v/ops/agent/create", "revoke": "v/ops/policy/revoke", "human": "v/ops/human/ask", "old": "v/ops/covia/read", "req": "v/ops/agent/request"}.items():
        pin(op, name)
    # A pin gives no right.
    for caps in ([READ], [READ, {"with": "o", "can": "crud/read"}], [READ, {"with": "o", "can": "*"}], [READ, {"with": "v", "can": "*"}, {"with": "o", "can": "*"}], []):
        tools = ["o/" + n for n in ("look", "w", "del", "sec", "runit", "make", "revoke", "old", "req")]
        evil = {"model": {"provider": "local", "name": "x"}, "caps": [{"with": "", "can": "*"}]}
        calls = [("o_look", {"path": "w/pay"}), ("look", {"path": "w/pay"}), ("o_w", {"path": "w/pay/x", "value": 1}), ("w", {"path": "w/pay/x", "value": 1}), ("del", {"path": "w/pay"}), ("runit", {"operation": "o/look", "input": {"path": "w/pay"}}), ("make", {"agentId": "evilmade", "config": evil}), ("revoke", {"path": "w"}), ("old", {"path": "w/pay"}),
                 ("job_run", {"operation": "o/look", "input": {"path": "w/pay"}}), ("job_run", {"operation": "o/runit", "input": {"operation": "o/runit", "input": {"operation": "o/look", "input": {"path": "w/pay"}}}}), ("job_run", {"operation": "o/w", "input": {"path": "w/pay", "value": 0}}), ("job_run", {"operation": "o/look/operation", "input": {}}), ("job_run", {"operation": ["o", "look"], "input": {"path": "w/pay"}})]
        r, job, a = v.calls(calls, {"caps": caps, "tools": tools})
        what = f"caps {json.dumps(caps)[:80]}"
        check(T, f"{what}: pins read nothing that is not held", SECRET not in "".join(r) + v.prompt() and job.get("status") == "COMPLETE", r)
        check(T, f"{what}: pins change nothing", v.read("w/pay")[1].get("value") == {"s": SECRET}, v.read("w/pay"))
        check(T, f"{what}: pins make no agent and revoke nothing", v.http("GET", "/agents/evilmade")[0] == 404 and not v.run("policy/show", {})[1].get("revocations"), r)
        check(T, f"{what}: each call has a result", len(r) == len(calls) and all(r), r)
    # What the tool is called: find its name, and use it.
    a = v.agent(["x"], {"tools": ["o/look"], "defaultTools": False})
    v.task(a)
    offered = [t["function"]["name"] for t in v.model.seen[v.last_model][0].get("tools", [])]
    look = next((n for n in offered if "look" in n or n == "lattice_read"), None)
    check(T, "a pin as a tool is offered", look, offered)
    # An approval is not gone around by a pin; nor is a policy.
    v.run("policy/approvals", {"caps": [{"with": "w/prod", "can": "crud/write"}]})
    for calls in ([("o_w", {"path": "w/prod", "value": 1})], [("w", {"path": "w/prod", "value": 1})], [("job_run", {"operation": "o/w", "input": {"path": "w/prod", "value": 1}})], [("job_run", {"operation": "o/runit", "input": {"operation": "o/w", "input": {"path": "w/prod", "value": 1}}})]):
        a = v.agent([calls, "done"], {"tools": ["o/w"]})
        v.task(a, wait=2000)
        check(T, f"{calls[0][0]} {str(calls[0][1])[:40]} of a pin writes nothing unasked", v.read("w/prod")[1].get("exists") is False, v.read("w/prod"))
    v.run("policy/approvals", {"caps": []})
    a = v.agent([[(n, {"path": "w/asked", "value": 1}) for n in ("o_w", "w", "lattice_write")], "done"], {"tools": [{"operation": "o/w", "approval": "ask"}], "defaultTools": False})
    v.task(a, wait=2000)
    check(T, "a pin that asks writes nothing unasked", v.read("w/asked")[1].get("exists") is False)
    # Changed between the turns, and while the approval waits: what was approved is what is done.
    pin("v/ops/lattice/read", "turned")
    a = v.agent([lambda b: (pin("v/ops/lattice/delete", "turned"), [(n, {"path": "w/a"}) for n in [t["function"]["name"] for t in b["tools"]] if "turned" in n or n in ("lattice_read", "lattice_delete")])[1], "done"], {"tools": ["o/turned"], "defaultTools": False, "caps": [{"with": "w/a", "can": "crud/read"}, {"with": "o", "can": "crud/read"}]})
    s, job = v.task(a)
    check(T, "a pin that is turned into a deletion in the turn deletes nothing that is not held", v.read("w/a")[1].get("exists") and job.get("status") == "COMPLETE", (job, v.read("w/a")))
    pin("v/ops/lattice/inspect", "swap")
    a = v.agent([lambda b: [(b["tools"][0]["function"]["name"], {"path": "w/swapped"})], "done"], {"tools": [{"operation": "o/swap", "approval": "ask"}], "defaultTools": False})
    v.write("w/swapped", "kept")
    s, job = v.http("POST", f"/agents/{a}/tasks", {"input": 1})
    w = {}
    for _ in range(40):
        w = next((x for x in v.http("GET", "/approvals")[1].get("items", []) if x.get("job") == job.get("job")), {})
        if w:
            break
        time.sleep(0.1)
    check(T, "a call of a pin waits for a person", w.get("id"), v.http("GET", f"/jobs/{job.get('job')}"))
    check(T, "and says what it is, not only how it is called", "inspect" in json.dumps(w.get("call")), w)
    pin("v/ops/lattice/delete", "swap")
    s, said = v.http("POST", f"/approvals/{w.get('id')}", {"approve": {}, "digest": w.get("digest")})
    s2, end = v.http("GET", f"/jobs/{job.get('job')}?wait=6000")
    check(T, "what was approved as one operation is not done as another", v.read("w/swapped")[1].get("value") == "kept", (s, said, end))
    check(T, "and the task ends", end.get("status") in ("COMPLETE", "FAILED"), end)
    # Rings, itself, words that are no operation.
    for name, value in {"self": {"operation": "o/self"}, "ring1": {"operation": "o/ring2"}, "ring2": {"operation": "o/ring1"}, "textual": "v/ops/lattice/read", "none": {"operation": "v/ops/none"}, "listed": {"operation": ["v/ops/lattice/read"]}, "odd": {"operation": "../v/ops/lattice/read"}, "evil": {"asset": "a/" + "0" * 64, "operation": "v/ops/secret/list"}, "deep": {"operation": {"operation": {"operation": "v/ops/lattice/read"}}}, "bare": {"operation": "lattice:read"}, "empty": {"operation": ""}, "nul": {"operation": None}, "long": {"operation": "v/ops/" + "x" * 50000}, "a/b": {"operation": "v/ops/lattice/read"}}.items():
        s, said = v.write(["o", name], value)
        check(T, f"o/{name} is written or refused with a reason", s == 200 or 400 <= s < 500, (s, said))
        for what, (s, said) in {"run": v.http("POST", "/run", {"operation": "o/" + name, "input": {"path": "w/a"}}), "invoke": v.http("POST", "/invoke", {"operation": "o/" + name, "input": {"path": "w/a"}, "wait": 2000}), "job/run": v.run("job/run", {"operation": "o/" + name, "input": {"path": "w/a"}}), "pin of it": pin("o/" + name, "p" + name.replace("/", "-")), "run of that": v.http("POST", "/run", {"operation": "o/p" + name.replace("/", "-"), "input": {"path": "w/a"}})}.items():
            check(T, f"o/{name}: {what} has a quick answer", s and s < 500, (s, said))
            check(T, f"o/{name}: {what}: an error is short", len(json.dumps(said)) < 4000, len(json.dumps(said)))
        try:
            a = v.agent([[("o_" + name, {"path": "w/a"}), (name, {"path": "w/a"})], "done"], {"tools": ["o/" + name], "context": [{"op": "o/" + name, "input": {"path": "w/pay"}}], "caps": [READ]})
            s, job = v.task(a)
            check(T, f"an agent with o/{name} ends, and sees nothing of others", job.get("status") == "COMPLETE" and SECRET not in v.prompt(), (job, v.prompt()[-400:]))
        except RuntimeError as e:
            check(T, f"an agent with o/{name} is refused with a reason", ": 4" in str(e), e)
    n = {"operation": "o/look", "input": {"path": "w/a"}}
    for _ in range(25):
        n = {"operation": "o/runit", "input": n}
    s, said = v.http("POST", "/run", n)
    check(T, "25 pins of job/run in each other have an answer", s and s < 500, (s, said))
    # Names that a pin may not have; a pin in the place of a tool of the venue.
    for name in ("", "..", ".", "a/b/c", "v/ops/lattice/read", "x" * 5000, "a\0b", "a\u200bb", "\u202e", " ", "*", "w", None, 5, ["x"]):
        s, said = v.run("asset/pin", {"path": "v/ops/lattice/read", "name": name})
        check(T, f"a pin named {str(name)[:20]!r} is no error of the server", s and s < 500, (s, said))
    for path in ("v", "v/ops", "v/ops/", "w", "o", "s", "s/x", "g", "j", "", "v/ops/lattice", "a/" + "0" * 64, ["v", "ops", "lattice", "read"], "o/none", "local/bob/w/x", None):
        s, said = v.run("asset/pin", {"path": path, "name": "odd1"})
        check(T, f"a pin of {str(path)[:20]!r} has an answer", s == 200 or 400 <= s < 500, (s, said))
    pin("v/ops/secret/list", "complete_task")
    pin("v/ops/secret/list", "lattice_read")
    for tool in ("complete_task", "lattice_read", "context_load", "more_tools"):
        for entry in (f"o/{tool}", {"operation": "o/look", "name": tool}, {"operation": "v/ops/lattice/delete", "name": tool}):
            try:
                a = v.agent([[(tool, {"path": "w/a", "result": "ended"})], "done"], {"tools": [entry]})
            except RuntimeError as e:
                check(T, f"a tool {json.dumps(entry)[:60]} is refused with a reason", ": 4" in str(e), e)
                continue
            s, job = v.task(a)
            names = [t["function"]["name"] for t in v.model.seen[v.last_model][0].get("tools", [])]
            check(T, f"a tool {json.dumps(entry)[:60]}: each name is offered once", len(names) == len(set(names)), [n for n in names if names.count(n) > 1])
            check(T, f"a tool {json.dumps(entry)[:60]}: the task ends", job.get("status") in ("COMPLETE", "FAILED"), job)
            v.write("w/a", {"ok": 1, "list": [1, 2]})
    # Owners in paths: his own is the plain path; another's is denied, whether or not anything is there.
    v.write("w/x", SECRET + "-bob", owner="local/bob")
    for path, same in (("/local/me/w/a/ok", True), ("/local/bob/w/x", None), ("/local/bob/w/none", None), ("/local/nobody/w/x", None), ("/Local/me/w/a", None), ("/local/me/../bob/w/x", None), ("/local/me/local/bob/w/x", None), ("//local/bob/w/x", None), ("did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK/w/x", None), ("/did:web:127.0.0.1/w/x", None), ("/local/%6de/w/a", None), ("/local/me", None), ("/local/me/", None), ("did:key:/w/x", None), ("did:/w", None), ("did:key:z6Mk" + "x" * 9000 + "/w", None), (["local", "bob", "w", "x"], None), (["/local/bob", "w", "x"], None)):
        r, job, a = v.calls([("lattice_read", {"path": path}), ("lattice_inspect", {"path": path}), ("lattice_list", {"path": path}), ("job_run", {"operation": "v/ops/lattice/copy", "input": {"from": path, "to": "w/a/got"}}), ("context_load", {"path": path}), ("lattice_write", {"path": path, "value": "evil"}), ("asset_pin", {"path": path, "name": "stolen"}), ("agent_create", {"agentId": "bydef", "definition": path})], {"caps": [READ, {"with": "o", "can": "*"}]})
        check(T, f"{str(path)[:40]}: shows nothing of another", SECRET not in "".join(r) + v.prompt(), r)
        check(T, f"{str(path)[:40]}: ends", job.get("status") == "COMPLETE" and len(r) == 8, (job, r))
        check(T, f"{str(path)[:40]}: {'is the plain path' if same else 'is denied'}", ('"value":1' in r[0]) if same else '"exists":true' not in r[0], r[:1])
        v.write("w/a", {"ok": 1, "list": [1, 2]})
    check(T, "what is bob's is as it was", v.read("w/x", owner="local/bob")[1].get("value") == SECRET + "-bob")
    there, none = (v.calls([("lattice_read", {"path": p}), ("lattice_write", {"path": p, "value": 1})])[0] for p in ("/local/bob/w/x", "/local/bob/w/n"))
    check(T, "whether another has something is not told", [x.replace("bob/w/x", "bob/w/n") for x in there] == none, (there, none))
    # Entries: a job's inside, dotted, a list, a map, patterns; budgets.
    s, job = v.task(v.agent(['{"a": {"b": [1, {"c": "deep-value"}]}}'], {"outputs": {"complete": {"schema": {"type": "object"}}}}))
    s, other = v.task(v.agent([SECRET + "-job"], name="bobs", owner="local/bob"), owner="local/bob")
    for entry in ({"job": job["job"], "path": "a.b"}, {"job": job["job"], "path": "output.a.b"}, {"job": job["job"], "path": "a/b/1/c"}, {"job": job["job"], "path": "a.b.99999999999999999999"}, {"job": job["job"], "path": "a.b.-1"}, {"job": job["job"], "path": ".."}, {"job": job["job"], "path": "." * 5000}, {"job": job["job"], "path": ""}, {"job": job["job"], "path": ["a", "b"]}, {"job": job["job"], "path": "../../" + other["job"]}, {"job": other["job"]}, {"job": other["job"], "path": "output"}, {"ref": "j/" + other["job"] + "/output"}, {"job": "f" * 32},
                  {"ref": "w/*"}, {"ref": "w/**"}, {"ref": "w/a/list[0]"}, {"ref": "w/a/list/0"}, {"ref": "w/a/list/99999999999999999999"}, {"ref": "w/a/list/-1"}, {"ref": "w/{a,pay}"}, {"ref": "w/a", "budget": 2**63}, {"ref": "w/a", "budget": 2**64}, {"ref": "w/a", "budget": 0}, {"ref": "w/a", "priority": 10**30}, {"ref": "w/pay", "required": True}, {"ref": "w/none", "required": True}, {"op": "o/w", "input": {"path": "w/entry", "value": 1}}, {"op": "o/del", "input": {"path": "w/a"}}, {"op": "o/human", "input": {"title": "t", "asks": [{"id": "a", "type": "text", "prompt": "p"}]}},
                  {"op": "v/ops/job/run", "input": {"operation": "o/w", "input": {"path": "w/entry", "value": 1}}}, {"op": "o/runit", "input": {"operation": "o/w", "input": {"path": "w/entry", "value": 1}}}, {"op": "o/look", "input": {"path": "w/pay"}}, {"op": "o/look", "input": [1]}, {"op": "o/look", "input": None}, {"op": "v/ops/job/result", "input": {"id": "f" * 32, "wait": 99999999}}, {"op": "v/ops/agent/context", "input": {"agentId": "self1"}}, {"text": "x" * 500_000}, {"text": "{{w/pay}}"}, {"ref": "w/a", "op": "o/look"}, {}, {"ref": ""}, {"op": "", "input": {}}, "", "w/", [["w/a"]], 7, None):
        began = time.time()
        try:
            a = v.agent(["ok"], {"context": [entry], "caps": [READ, {"with": "o", "can": "crud/read"}, {"with": "v", "can": "*"}]}, name="self1")
        except RuntimeError as e:
            check(T, f"the entry {str(entry)[:60]} is refused with a reason", ": 4" in str(e) and "context[0]" in str(e), e)
            continue
        s, done = v.task(a)
        check(T, f"the entry {str(entry)[:60]}: the task ends soon", done.get("status") in ("COMPLETE", "FAILED") and time.time() - began < 7, (done, time.time() - began))
        check(T, f"the entry {str(entry)[:60]} shows nothing of others and writes nothing", SECRET not in v.prompt() and v.read("w/entry")[1].get("exists") is False and v.read("w/a")[1].get("exists"), v.prompt()[-500:])


def tokens(v):
    """What a narrow token gets by pins, definitions and paths of another."""
    ann, bob = v.issue("acme/ann"), v.issue("acme/bob")
    model = {"provider": "local", "name": "jwt-pins"}
    v.model.says("jwt-pins", ["ok"])
    v.write("w/pay", {"model": model, "systemPrompt": SECRET}, token=ann)
    v.write("w/bad", {"k" + SECRET: 1}, token=ann)
    v.write("w/x", {"model": model, "systemPrompt": SECRET}, token=bob)
    v.run("asset/pin", {"path": "w/pay", "name": "cfg"}, token=ann)
    s, asset = v.http("POST", "/assets", {"content": {"model": model, "systemPrompt": SECRET}}, token=bob)
    asset = asset if isinstance(asset, str) else asset.get("id") or asset.get("hash")
    did = "did:web:attack.example"
    narrow = v.issue("acme/ann", ["g:*", "w/a:crud", "o/mine:*"])
    s, said = v.run("asset/pin", {"path": "v/ops/lattice/read", "name": "mine"}, token=narrow)
    check(T, "who may write a pin pins an operation, or is told what he needs", s in (200, 403), (s, said))
    for i, where in enumerate(["w/pay", "w/bad", "o/cfg", "o/cfg/asset", "w/x", "/acme/bob/w/x", "/acme/ann/w/pay", did + "/w/pay", "a/" + str(asset), ["w/pay"], [{"model": model}, "w/pay"], ["w/pay", {"systemPrompt": "x"}], "g/hers/config", "s/KEY", "j/x", "w/none", ["w", "pay"], [["w/pay"]], [], "", "w/a/../pay", "../w/pay"] * 1):
        for op in ("agent/create", "agent/update", "agent/fork"):
            v.http("PUT", f"/agents/base{i}", {"model": model}, token=narrow)
            body = {"agentId": f"made{i}", "definition": where} if op == "agent/create" else {"agentId": f"base{i}", "config": where} if op == "agent/update" else {"agentId": f"base{i}", "to": f"fork{i}", "config": where}
            s, said = v.run(op, body, token=narrow)
            check(T, f"a narrow token, {op} from {str(where)[:40]}: no error of the server, and nothing of it", s and s < 500 and SECRET not in json.dumps(said), (s, said))
            for name in (f"made{i}", f"base{i}", f"fork{i}"):
                got = v.http("GET", f"/agents/{name}", token=ann)[1]
                check(T, f"a narrow token, {op} from {str(where)[:40]}: {name[:4]} has nothing that it may not read", SECRET not in json.dumps(got), got)
                v.http("DELETE", f"/agents/{name}?remove=true", token=ann)
    # Others' paths over HTTP, with his own DID and others', read and written; the same answer where nothing is.
    for path in ("/acme/bob/w/x", "/acme/bob/w/none", "/acme/nobody/w/x", did + "/w/x", "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK/w/x", "/evil/eve/w/x", "/ACME/ann/w/pay", "/acme/ann/acme/bob/w/x", ["acme", "bob", "w", "x"]):
        for op, input in (("lattice/read", {"path": path}), ("lattice/write", {"path": path, "value": 1}), ("lattice/copy", {"from": path, "to": "w/got"}), ("lattice/copy", {"from": "w/pay", "to": path}), ("asset/pin", {"path": path, "name": "st"}), ("agent/create", {"agentId": "bypath", "definition": path}), ("job/run", {"operation": path if isinstance(path, str) else "x", "input": {}})):
            s, said = v.run(op, input, token=ann)
            check(T, f"{op} of {str(path)[:30]} is denied", 400 <= s < 500 and SECRET not in json.dumps(said), (s, said))
    s, a1 = v.run("lattice/read", {"path": "/acme/bob/w/x"}, token=ann)
    s2, a2 = v.run("lattice/read", {"path": "/acme/bob/w/n"}, token=ann)
    check(T, "the answer is the same where nothing is", s == s2 and json.dumps(a1).replace("bob/w/x", "bob/w/n") == json.dumps(a2), (a1, a2))
    s, said = v.run("lattice/read", {"path": "/acme/ann/w/pay"}, token=ann)
    check(T, "his own owner in front is the plain path", s == 200 and said.get("exists"), (s, said))
    check(T, "what is bob's is as it was", v.read("w/x", token=bob)[1].get("value", {}).get("systemPrompt") == SECRET)
    # A key of its own: its DID in front.
    for token, path in ((ann, "did:key:z6Mk/w/x"),):
        s, said = v.run("lattice/read", {"path": path}, token=token)
        check(T, "a DID that is none is refused", 400 <= s < 500, (s, said))
