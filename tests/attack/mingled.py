"""Attacks by features put together: attachments named in values, pins, memories, answers and outputs by who may not read them; timers that send for
others, into others' sessions, with more than their maker holds; placeholders in what fills placeholders; experiments and deletions at a full
quota, of sessions that are gone. Expected: each part keeps its rule inside of the others, and what is refused is refused with a reason."""

import json
import time

from venue import check

T = "mingled"
SETS = ["catalog.test=true"]
C = "canarymi"
NARROW = [{"with": "w/pub", "can": "crud"}, {"with": "g", "can": "*"}, {"with": "j", "can": "crud"}]


def attack(v):
    who = {"token": v.issue("acme/ann")} if v.mode == "jwt" else {}
    root = {"token": v.issue("acme/root"), "owner": "acme/ann"} if v.mode == "jwt" else {}
    attached(v, who, root)
    filled(v, who, root)
    timers(v, who)
    full(v, who, root)


def sent(v, model=None):
    """All that a model was sent, with what stands in Base64 read."""
    import base64
    import re
    text = json.dumps(v.model.seen.get(model or v.last_model, []), ensure_ascii=False)
    more = ""
    for m in re.findall(r"[A-Za-z0-9+/]{40,}={0,2}", text):
        try:
            more += base64.b64decode(m + "=" * (-len(m) % 4)).decode("utf-8", "replace")
        except ValueError:
            pass
    return text + more


def attached(v, who, root):
    """References to an asset that the request may not read, in each place from which a reference is shown."""
    bob = {"token": v.issue("acme/bob")} if v.mode == "jwt" else {"owner": "local/bob"}
    text = C + "-asset " + "lorem ipsum " * 10
    s, said = v.http("POST", "/assets", {"content": text}, **who)
    asset = said if isinstance(said, str) else said.get("id")
    asset = asset if asset.startswith("a/") else "a/" + asset
    s, said = v.http("POST", "/assets", {"content": C + "-bobs asset, which is his"}, **bob)
    his = said if isinstance(said, str) else said.get("id")
    his = his if his.startswith("a/") else "a/" + his
    for label, ref, wide in (("a narrow request's", asset, False), ("another owner's", his, True)):
        r = {"$asset": ref}
        v.write("w/pub", {"v": r, "t": f"see {json.dumps(r)}"}, **who)
        v.run("asset/pin", {"path": "w/pub", "name": "mipin"}, **who)
        ways = {
            "an input": ({}, {"text": "x", "attachments": [r]}, {}),
            "a text of an input": ({}, json.dumps(r), {}),
            "a value of the request": ({"systemPrompt": "see ${pic}"}, 1, {"sessionContext": {"pic": r}}),
            "a value in an entry": ({"context": [{"label": "pic", "text": "see ${pic}"}]}, 1, {"sessionContext": {"pic": r}}),
            "an entry of a path": ({"context": [{"ref": "w/pub", "label": "p"}]}, 1, {}),
            "an entry of a pin": ({"context": [{"ref": "o/mipin", "label": "p"}]}, 1, {}),
            "an entry that is filled in": ({"context": [{"ref": "${pic}", "label": "p"}]}, 1, {"sessionContext": {"pic": ref}}),
            "an entry of a call": ({"context": [{"op": "v/ops/asset/content", "input": {"id": "${pic}"}, "label": "p"}]}, 1, {"sessionContext": {"pic": ref}}),
            "an entry of itself": ({"context": [ref]}, 1, {}),
            "loads": ({}, 1, {"loads": {ref: {}}}),
            "loads of a value": ({}, 1, {"loads": {"w/pub": {}}}),
            "a result of a tool": ({}, 1, {}),
            "a bound argument": ({"tools": ["v/ops/asset/content"], "defaultTools": False, "toolArgInjection": {"asset_content": {"id": "pic"}}}, 1, {"sessionContext": {"pic": ref}}),
            "a task's type": ({}, 1, {"responseSchema": {"type": "object", "description": json.dumps(r), "default": r}}),
            "a memory": ({"resources": {"memory": {"mode": "read-write"}}}, 1, {}),
        }
        for name, (config, input, body) in ways.items():
            steps = [[("lattice_read", {"path": "w/pub"}), ("lattice_read", {"path": ref}), ("asset_content", {"id": ref}), ("asset_get", {"id": ref}), ("asset_content", {}), ("memory_write", {"content": json.dumps(r)}), ("context_load", {"path": ref})], "done"]
            try:
                a = v.agent(steps, config, **who)
            except RuntimeError as e:
                check(T, f"{label} asset in {name}: its agent is refused with a reason", ": 4" in str(e), e)
                continue
            s, said = v.task(a, input, 8000, body={**({"context": NARROW + (["app/user/u1"] if name == "a memory" else [])} if not wide else {"context": ["app/user/u1"]} if name == "a memory" else {}), "sessionId": "s", **body}, **who)
            check(T, f"{label} asset in {name} has an answer", s and s < 500, (s, said))
            check(T, f"{label} asset in {name}: no byte reaches the model", C not in sent(v), (s, sent(v)[max(0, sent(v).find(C) - 300):][:500]))
            v.task(a, "again", 8000, body={**({"context": NARROW} if not wide else {}), "sessionId": "s"}, **who)
            check(T, f"{label} asset in {name}: nor in the next turn", C not in sent(v), (s, sent(v)[max(0, sent(v).find(C) - 300):][:500]))
    # What a narrow one asks a wide one to show, and back.
    v.agent([lambda b: json.dumps({"$asset": asset})], name="miout", **who)
    v.agent([[("agent_request", {"agentId": "miout", "input": {"attachments": [{"$asset": asset}]}, "wait": 5000})], "done"], {"tools": ["v/ops/agent/request"]}, name="miasks", **who)
    s, said = v.task("miasks", 1, 9000, body={"context": NARROW}, **who)
    check(T, "an output that names an asset shows a narrow caller no byte of it", C not in sent(v), said)


def filled(v, who, root):
    """Placeholders in values, labels, pins, names; values that look like the venue's."""
    v.write("v/context/project", {"company": "Acme", "hidden": C, "deep": {"a": {"b": "${hidden}"}}, "ring": "{{ring}}"}, **root)
    v.write("w/pub", "${hidden} {{hidden}} ${deep.a.b}", **who)
    v.run("asset/pin", {"path": "w/pub", "name": "mitext"}, **who)
    for name, (config, body) in {
        "a value of a value": ({"systemPrompt": "for ${a}"}, {"sessionContext": {"a": "${hidden} {{hidden}}"}}),
        "a value of a project's value": ({"systemPrompt": "for ${deep.a.b} ${ring}"}, {}),
        "a map of values": ({"systemPrompt": "for ${m}"}, {"sessionContext": {"m": {"k": "${hidden}", "{{hidden}}": 1}}}),
        "a path's text": ({"context": [{"ref": "w/pub", "label": "x"}]}, {}),
        "a pin's text": ({"context": [{"ref": "o/mitext", "label": "x"}]}, {}),
        "a label that is filled in": ({"context": [{"text": "t", "label": "${a}"}]}, {"sessionContext": {"a": "${hidden}"}}),
        "a key made of two": ({"systemPrompt": "for $${a}{hidden} ${${a}} {{{a}}}"}, {"sessionContext": {"a": "hidden"}}),
        "an input": ({"systemPrompt": "x"}, {"input": "${hidden} {{hidden}}"}),
        "a row that names a caller's key": ({"systemPrompt": "for ${x}", "contextMapping": {"x": "session.a"}}, {"sessionContext": {"a": "${hidden}"}}),
        "a schema": ({"systemPrompt": "x"}, {"responseSchema": {"type": "string", "description": "${hidden}"}}),
        "loads": ({"systemPrompt": "x"}, {"loads": {"w/pub": {"label": "${hidden}"}}}),
    }.items():
        a = v.agent(["ok"], config, **who)
        s, said = v.task(a, body.pop("input", 1), 6000, body=body, **who)
        check(T, f"{name} is not read again for placeholders", C not in sent(v) and s < 500, (s, said, v.prompt()[-300:]))
    if v.mode != "jwt":
        return
    asker = {"token": v.issue("acme/ann", ["g:agent/request", "j:crud/read"])}
    for key in ("tenant_id", "tenantId", "user_id", "user", "user.name", "__proto__", "session", "project", "v/context/project", "", "a" * 10_000, "\u200buser_id", "ｕser_id", "USER_ID", "user\u0000id"):
        a = v.agent(["ok"], {"systemPrompt": "I am ${user_id} ${user.name} ${tenant_id}."}, **who)
        s, said = v.task(a, 1, 6000, body={"sessionContext": {key: C + "-lie"}}, **asker)
        check(T, f"a value called {key[:16]!r} is no identity", s < 500 and (C + "-lie" not in v.prompt() or s >= 400), (s, said, v.prompt()[:300]))


def timers(v, who):
    """Timers that send more than their maker holds, into others' conversations and for others."""
    v.write("w/pay", C + "-pay", **who)
    reader = lambda b: "read" if [m for m in b["messages"] if m["role"] == "assistant"][-1:] and [m for m in b["messages"] if m["role"] == "assistant"][-1].get("tool_calls") else [("lattice_read", {"path": "w/pay"})]
    v.agent([reader], name="miwide", **who)
    wide = v.last_model
    s, said = v.task("miwide", "mine", body={"sessionId": "hers"}, **who)
    check(T, "the wide agent reads what it may", C in sent(v, wide), said)
    v.model.seen[wide] = []
    caps = [{"with": "g", "can": "*"}, {"with": "w/pub", "can": "crud"}]
    tries = {"its own": {}, "a session of another": {"sessionId": "hers"}, "grants of more": {"context": [{"with": "", "can": "*"}]}, "an output elsewhere": {"outputPath": "w/pay"}, "loads": {"loads": {"w/pay": {}}}, "another owner": {"owner": "acme/bob"}, "values": {"sessionContext": {"user_id": "root"}}, "a name of another's timer": {"name": "hers"}}
    s, hers = v.http("POST", "/agents/miwide/timers", {"input": "hers", "after": "20m", "name": "hers"}, **who)
    v.model.seen[wide] = []
    for i, (name, more) in enumerate(tries.items()):
        call = ("agent_trigger", {"agentId": "miwide", "input": f"tick {i}", "after": "10500ms", **more})
        a = v.agent([[call], "done"], {"tools": ["v/ops/agent/trigger"], "caps": caps}, **who)
        s, said = v.task(a, 1, 5000, **who)
        if name in ("its own", "a session of another"):
            check(T, f"a narrow agent sets a timer with {name}", '\\"timer\\"' in v.prompt(), v.prompt()[-500:])
    time.sleep(14)
    shown = sent(v, wide)
    check(T, "narrow agents' timers have asked the wide one", "tick 0" in shown, shown[-500:])
    check(T, "and shown it nothing that they could not read", C not in shown, shown[max(0, shown.find(C) - 300):][:500])
    check(T, "nor written elsewhere", v.read("w/pay", **who)[1].get("value") == C + "-pay", "")
    if v.mode == "jwt":
        s, hers = v.http("POST", "/agents/miwide/timers", {"input": "hers", "after": "20m", "name": "hers"}, **who)
        setter = {"token": v.issue("acme/ann", ["g/miwide:agent/trigger"])}
        s, said = v.http("DELETE", f"/timers/{hers.get('timer')}", **setter)
        if s >= 400:
            s, said = v.http("POST", "/agents/miwide/timers", {"input": "in its place", "after": "20m", "name": "hers"}, **setter)
            items = v.http("GET", "/timers", **who)[1].get("items", [])
            check(T, "who may not cancel her timer doesn't replace it by its name", hers.get("timer") in json.dumps(items) and "in its place" not in json.dumps(items), (s, said, items))
        s, hers = v.http("POST", "/agents/miwide/timers", {"input": "hers", "after": "20m"}, **who)
        narrow = {"token": v.issue("acme/ann", ["g:*", "w/pub:crud", "t:*"])}
        bob = {"token": v.issue("acme/bob")}
        for i, (name, more) in enumerate(tries.items()):
            v.model.seen[wide] = []
            s, said = v.http("POST", "/agents/miwide/timers", {"input": f"tock {i}", "after": "1s", **more}, **narrow)
            check(T, f"a narrow token's timer with {name} is set, or refused with a reason", s < 500 and (s < 300 or said.get("error")), (s, said))
            time.sleep(2.5)
            shown = sent(v, wide)
            check(T, f"a narrow token's timer with {name} shows the wide agent nothing more", C not in shown, shown[max(0, shown.find(C) - 300):][:500])
            check(T, f"a narrow token's timer with {name} writes nowhere else", v.read("w/pay", **who)[1].get("value") == C + "-pay", said)
        for who2, name in ((bob, "bob"), ({"token": v.issue("acme/ann", ["w:*"])}, "one without a right on agents")):
            s, said = v.http("DELETE", f"/timers/{hers.get('timer')}", **who2)
            check(T, f"{name} cancels no timer of hers", s in (401, 403, 404), (s, said))


def full(v, who, root):
    """Experiments, deletions, redrives and answers at a full quota, and of sessions that are gone."""
    v.agent([[("lattice_read", {"path": "w/pub"})], "read"], name="mifull", **who)
    v.task("mifull", "x" * 3000, body={"sessionId": "a"}, **who)
    v.agent([[("fail_task", {"error": "x"})]], name="mifail", **who)
    s, failed = v.task("mifail", 1, **who)
    v.agent([[("human_ask", {"title": "T", "asks": [{"id": "a", "type": "text", "prompt": "p"}]})], "done"], {"tools": ["v/ops/human/ask"]}, name="miask", **who)
    asks = v.http("POST", "/agents/miask/tasks", {"input": 1}, **who)[1]["job"]
    time.sleep(1.5)
    s, q = v.http("GET", "/quota", **who)
    used = q["bytes"]["used"]
    s, said = v.http("PUT", "/quota", {"bytes": used + 10}, **root)
    check(T, "an operator sets a quota", s < 300, (s, said))
    use = lambda: v.http("GET", "/quota", **who)[1]["bytes"]["used"]
    before = use()
    for body in ({}, {"without": ["w/pub"]}, {"with": {"w/pub": "y" * 100_000}}, {"config": {"systemPrompt": "z" * 100_000, "model": {"provider": "scripted", "name": "echo"}}}):
        s, said = v.http("POST", "/agents/mifull/turns/a/2/replay", body, **who)
        check(T, f"an experiment {str(body)[:24]} at a full quota is answered", s == 200, (s, str(said)[:300]))
    check(T, "and keeps nothing", use() <= before + 200, (before, use()))
    for name, (method, path, body) in {"a redrive": ("PUT", f"/jobs/{failed['job']}/redrive", {}), "a task": ("POST", "/agents/mifull/tasks", {"input": "x" * 500}), "an asset": ("POST", "/assets", {"content": "x" * 500}), "a fork": ("POST", "/agents/mifull/fork", {"to": "miforked"}), "a timer": ("POST", "/agents/mifull/timers", {"input": "x" * 500, "after": "20m"}), "a fork of a session": ("POST", "/agents/mifull/sessions/a/fork", {"at": 1, "to": "b"})}.items():
        s, said = v.http(method, path, body, **who)
        check(T, f"{name} at a full quota is refused and names it", s == 507 and "quota" in json.dumps(said).lower(), (s, said))
    w = next((x for x in v.http("GET", "/approvals", **who)[1].get("items", []) if x.get("job") == asks), {})
    s, said = v.http("POST", f"/approvals/{w.get('id')}", {"answers": {"a": "short"}}, **who)
    e = v.http("GET", f"/jobs/{asks}?wait=8000", **who)[1]
    check(T, "a question is answered at a full quota, and its job ends", s < 300 and e.get("status") == "COMPLETE", (s, said, e))
    before = use()
    s, said = v.run("agent/delete-session", {"agentId": "mifull", "sessionId": "a"}, **who)
    check(T, "a session is deleted at a full quota, and that makes room", s == 200 and use() < before, (s, said, before, use()))
    for method, path, body in (("POST", "/agents/mifull/turns/a/2/replay", {}), ("GET", "/agents/mifull/turns/a/1", None), ("POST", "/agents/mifull/sessions/a/fork", {"at": 1, "to": "c"}), ("POST", "/agents/mifull/turns/a/2/replay", {"with": {"w/pub": 1}})):
        s, said = v.http(method, path, body, **who)
        check(T, f"{method} {path[-20:]} of the deleted session finds nothing", s == 404, (s, str(said)[:200]))
    v.http("PUT", "/quota", {"bytes": None}, **root)
    s, said = v.task("mifull", 1, body={"sessionId": "a"}, **who)
    check(T, "afterwards everything goes on", said.get("status") == "COMPLETE", said)
    root2 = {"token": v.issue("acme/root")} if v.mode == "jwt" else {}
    s, said = v.run("venue/audit", {}, **root2)
    check(T, "and what is counted is what is there", s == 200 and "quota" not in json.dumps(said.get("problems", said.get("damaged", ""))), said)
