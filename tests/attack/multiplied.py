"""Attacks by what multiplies: prompts that show prompts, lists of capabilities that meet, alternatives of schemas, patterns times entries, tools times
bindings, lists that are compared with each other, texts that are read again and again; and texts that make lines of their own in a terminal.
Expected: each request has an answer within seconds, the venue lives and has taken little memory, nobody else waits, and no line is forged."""

import json
import time

from venue import check, peak_memory

T = "multiplied"
SECONDS = 15
# What is left when nothing multiplies; one of these requests took 17 GB.
MEMORY = 1500


def attack(v):
    who = {"token": v.issue("acme/ann", ttl="55m")} if v.mode == "jwt" else {}
    prompts(v, who)
    authority(v, who)
    tools(v, who)
    schemas(v, who)
    texts(v, who)
    lists(v, who)
    lines(v, who)
    peak = peak_memory(v)
    check(T, "no process has taken much memory", all(used < MEMORY for used in peak.values()), peak)


def quick(v, name, call, statuses=(200, 201, 202, 400, 413)):
    """The request is answered soon, with one of these; and so is a small one of somebody else behind it."""
    began = time.time()
    status, said = call()
    took = time.time() - began
    check(T, f"{name}: answered within seconds", took < SECONDS and status in statuses, (round(took, 1), status, str(said)[:300]))
    began = time.time()
    status, _ = v.http("GET", "/livez", root=True, timeout=SECONDS)
    check(T, f"{name}: the venue lives", status == 200 and time.time() - began < SECONDS, status)
    return said


def put(v, who, name, config):
    return v.http("PUT", f"/agents/{name}", {"model": {"provider": "local", "name": name}, **config}, timeout=60, **who)


def preview(v, who, name, body=None):
    return v.http("POST", f"/agents/{name}/context", body or {"task": 1}, timeout=60, **who)


def prompts(v, who):
    """Prompts that show prompts."""
    shows = lambda agent: {"op": "v/ops/agent/context", "input": {"agentId": agent}}
    nested = {"op": "v/ops/job/run", "input": {"operation": "v/ops/agent/context", "input": {"agentId": "munest"}}}
    v.write("w/mushow", {"operation": {"adapter": "agent:context"}}, **who)
    agents = {"mumirror": [shows("mumirror")], "muping": [shows("mupong")] * 3, "mupong": [shows("muping")] * 3, "munest": [nested],
              "mupin": [{"op": "w/mushow", "input": {"agentId": "mupin"}}],
              "mureload": [{"op": "v/ops/agent/reload-context", "input": {"agentId": "mureload", "sessionId": "s"}}]}
    for at in range(12):
        agents[f"muchain{at}"] = [shows(f"muchain{at + 1}")] * 8
    agents["muchain12"] = [{"text": "leaf", "label": "leaf"}]
    for name, context in agents.items():
        v.agent(["fine"], {"context": context}, name=name, **who)
    for name in [n for n in agents if not n.startswith("muchain")] + ["muchain0"]:
        said = quick(v, f"preview of {name}", lambda: v.run("agent/context", {"agentId": name}, timeout=60, **who))
        check(T, f"the preview of {name} says why the piece is missing", "can't be a piece of another" in str(said), str(said)[-500:])
        s, job = v.task(name, wait=8000, **who)
        check(T, f"a task of {name} ends", job.get("output") == "fine", job)
        quick(v, f"reload of {name}", lambda: v.run("agent/reload-context", {"agentId": name, "sessionId": job.get("session", "s")}, timeout=60, **who))
    results, job, _ = v.calls([("agent_context", {"agentId": "muping"})], {"tools": ["v/ops/agent/context"]}, **who)
    check(T, "a model that looks at a prompt with a prompt gets an answer", len(results) == 1 and job.get("output") == "done", (results, job))


def authority(v, who):
    """Lists of capabilities that meet: the paths of one with the abilities of another."""
    for paths, abilities in ((16, 16), (256, 256), (1024, 256)):
        caps = [{"with": f"w/k{i}", "can": "crud"} for i in range(paths)]
        v.agent(["fine"], {"caps": caps}, name="muwide", **who)
        grants = [{"with": "w", "can": f"crud/a{i}"} for i in range(abilities - 1)] + [{"with": "g/muwide", "can": "agent"}]
        quick(v, f"{paths} x {abilities} capabilities in a preview", lambda: preview(v, who, "muwide", {"task": 1, "context": grants}))
        s, job = v.http("POST", "/agents/muwide/tasks?wait=15000", {"input": 1, "context": grants}, timeout=60, **who)
        check(T, f"a task under {paths} x {abilities} capabilities ends", job.get("status") in ("COMPLETE", "FAILED"), job)
    few = [{"with": f"w/k{i}", "can": "crud"} for i in range(20)]
    v.agent(["fine"], {"caps": few, "context": ["w/k7/x", "w/other"]}, name="mufew", **who)
    v.write("w/k7/x", "canary-held", **who)
    v.write("w/other", "canary-not", **who)
    s, said = preview(v, who, "mufew", {"task": 1, "context": [{"with": "w", "can": "crud/read"}, {"with": "w/k7", "can": "crud/read"}]})
    check(T, "an intersection still permits what both lists permit, and no more", "canary-held" in str(said) and "canary-not" not in str(said), str(said)[-600:])
    for key in ("caps", "delegable"):
        s, said = put(v, who, "mumany", {key: [{"with": f"w/{i}", "can": "crud"} for i in range(1025)]})
        check(T, f"more than 1,024 `{key}` are refused with the number", s == 400 and "at most 1024 capabilities" in str(said), (s, said))
    if not who:
        s, said = v.run("policy/approvals", {"caps": [{"with": f"w/{i}", "can": "crud"} for i in range(1025)]})
        check(T, "more than 1,024 capabilities of a policy are refused", s == 400 and "at most 1024" in str(said), (s, said))
    s, said = v.http("POST", "/agents/mufew/tasks", {"input": 1, "context": [{"with": f"w/{i}", "can": "crud"} for i in range(257)]}, **who)
    check(T, "more than 256 grants are refused", s == 400 and "at most 256" in str(said), (s, said))


def tools(v, who):
    """Tools times what each of them costs."""
    s, said = put(v, who, "mutools", {"tools": [{"operation": "v/ops/lattice/read", "name": f"t{i}"} for i in range(8000)]})
    check(T, "8,000 tools are refused with the number", s == 400 and "at most 512" in str(said), (s, str(said)[:300]))
    some = [{"operation": "v/ops/lattice/read", "name": f"t{i}"} for i in range(512)]
    binds = {"contextMapping": [{"key": f"path_{i}", "source": "_auto"} for i in range(256)], "toolArgInjection": {"_global": {f"a{i}": "session.x" for i in range(256)}}}
    for name, config in (("512 tools", {"tools": some}), ("512 tools with 512 bindings", {"tools": some, **binds}),
                         ("a binding of a long name", {"tools": some, "toolArgInjection": {"x" * 400_000: {"path": "session.x"}}}),
                         ("250 bindings of long names", {"tools": some, "toolArgInjection": {f"n{i}" + "x" * 1500: {"path": "session.x"} for i in range(250)}})):
        quick(v, f"{name} applied", lambda: put(v, who, "mutools", config))
        quick(v, f"{name} in a prompt", lambda: preview(v, who, "mutools"), (200, 404, 409))
    large = {"type": "object", "properties": {f"p{i}": {"type": "string", "pattern": "^a{100}$"} for i in range(1200)}}
    v.write("w/mulargeop", {"operation": {"adapter": "json:merge", "input": large}}, **who)
    quick(v, "512 tools of one large pin applied", lambda: put(v, who, "mupins", {"tools": [{"operation": "w/mulargeop", "name": f"t{i}"} for i in range(512)]}))
    quick(v, "512 tools of one large pin in a prompt", lambda: preview(v, who, "mupins"), (200, 409))
    entries = [{"op": "w/mulargeop", "input": {"values": []}, "label": f"l{i}"} for i in range(200)]
    quick(v, "200 entries of one large pin", lambda: put(v, who, "mupins", {"context": entries}))
    quick(v, "200 entries of one large pin in a prompt", lambda: preview(v, who, "mupins"), (200, 409))


def schemas(v, who):
    """Schemas whose parts multiply."""
    groups = lambda count, each, form: [{"anyOf": [form(i, j) for j in range(each)]} for i in range(count)]
    forms = {"object": lambda i, j: {"type": "object", "properties": {f"k{i}_{j}": {"type": "string"}}}, "required": lambda i, j: {"required": [f"k{i}_{j}"]},
             "const": lambda i, j: {"const": f"{i}_{j}"}, "list": lambda i, j: {"type": "array", "items": {"const": f"{i}_{j}"}}}
    for provider in ("gemini", "openai", "anthropic", "local"):
        for name, form in forms.items():
            for count, each in ((2, 24), (3, 24), (10, 8), (20, 24)):
                if provider != "gemini" and (count, each) != (10, 8):
                    continue
                schema = {"type": "object", "properties": {"x": {"allOf": groups(count, each, form)}}}
                config = {"model": {"provider": provider, "name": "x"}, "tools": [{"name": "t", "description": "d", "input": schema}]}
                quick(v, f"{count} lists of {each} alternatives ({name}) for {provider}", lambda: put(v, who, "muschema", config))
    check_schema = lambda schema, value: v.run("schema/validate", {"schema": schema, "value": value}, timeout=60, **who)
    patterns = {f"p{i}": {} for i in range(3000)}
    quick(v, "3,000 patterns times 30,000 entries", lambda: check_schema({"patternProperties": patterns}, {f"k{i}": 1 for i in range(30_000)}))
    deep = {}
    for _ in range(50):
        deep = {"next": deep, **{f"k{i}": {} for i in range(300)}}
    quick(v, "patterns times entries, inside one another", lambda: check_schema({"patternProperties": {f"p{i}": {"$ref": "#"} for i in range(3000)}}, deep))
    quick(v, "coercion by patterns", lambda: v.run("schema/coerce", {"schema": {"patternProperties": patterns}, "value": {f"k{i}": 1 for i in range(30_000)}}, timeout=60, **who))
    quick(v, "a list that must be unique", lambda: check_schema({"type": "array", "uniqueItems": True}, [{"a": i} for i in range(16_000)]))
    quick(v, "3,000 alternatives for 15,000 numbers", lambda: check_schema({"type": "array", "items": {"oneOf": [{"const": i} for i in range(3000)]}}, list(range(15_000))))


def texts(v, who):
    """Texts whose reading may take longer the more of them there is."""
    raw = lambda text: v.http("POST", "/run", raw=text.encode(), timeout=60, **who)
    for name, text in (("texts in single quotes, inside one another", "{'a':" * 100_000), ("a list of texts in single quotes", "[" + "'a'," * 100_000 + "]"),
                       ("open lists", "[" * 100_000), ("open comments", "/*" * 200_000), ("an escaped text", "{operation:'v/ops/schema/infer',input:{value:'" + "\\u0041" * 100_000 + "'}}"),
                       ("a long number", "{operation:'v/ops/schema/infer',input:{value:0." + "1" * 400_000 + "}}")):
        quick(v, f"JSON5 of {name}", lambda: raw(text))
    for begin in ("{{", "${", "{{a", "{{a}", "${a.b.", "\n[Tasks assigned to you]"):
        quick(v, f"a system prompt of many {begin!r}", lambda: put(v, who, "mutext", {"systemPrompt": (begin * 200_000)[:390_000]}))
        quick(v, f"many {begin!r} in a prompt", lambda: preview(v, who, "mutext", {"task": (begin * 100_000)[:200_000], "sessionContext": {"a": (begin * 30_000)[:50_000]}}))


def lists(v, who):
    """Lists that are compared with one another."""
    model = {"provider": "local", "name": "x"}
    entries = lambda name: [f"w/{name}{i}" for i in range(20_000)]
    said = quick(v, "two long lists of entries", lambda: v.run("agent/create", {"agentId": "mulists", "config": {"model": model, "context": entries("a")}, "state": {"context": entries("b")}}, timeout=60, **who))
    check(T, "they are refused with the number", "at most 200 entries" in str(said), str(said)[:300])
    v.agent(["fine"], {"context": ["w/a"]}, name="muupdated", **who)
    quick(v, "a long list of entries in an update", lambda: v.run("agent/update", {"agentId": "muupdated", "state": {"context": entries("b")}}, timeout=60, **who))
    v.run("agent/update", {"agentId": "muupdated", "state": {"context": ["w/b", "w/a", "w/b"]}}, **who)
    s, said = v.http("GET", "/agents/muupdated", **who)
    check(T, "an entry that is there already is added once", said.get("config", {}).get("context") == ["w/a", "w/b"], said.get("config"))
    ids = [f"i{i:04d}" for i in range(6000)]
    quick(v, "entities times entities", lambda: put(v, who, "muentities", {"entityIdsRequired": True, "tools": [{"operation": "v/ops/lattice/read", "name": f"t{j}", "entities": ["x" + i for i in ids]} for j in range(6)]}))
    quick(v, "entities times entities in a prompt", lambda: preview(v, who, "muentities", {"task": 1, "sessionContext": {"entity_ids": ids}}), (200, 404))
    for key, value in (("resources", {f"m{i}": {"kind": "memory"} for i in range(3000)}), ("context", ["w/x"] * 5000), ("contextMapping", [{"key": f"k{i}", "source": "session.a"} for i in range(5000)])):
        s, said = put(v, who, "mumany", {key: value})
        check(T, f"too many `{key}` are refused with the number", s == 400 and "expected at most" in str(said), (s, str(said)[:200]))


def lines(v, who):
    """Texts of models that make lines of their own where a person reads."""
    token = who.get("token")
    forged = "fine\nwarning: FORGED\n" + "1" * 32 + "  payer calls v/ops/lattice/read\n  arguments  FORGED"
    mine = lambda text: [line for line in text.decode("utf-8", "replace").split("\n") if line.startswith(("warning: FORGED", "1" * 32, "  arguments  FORGED"))]
    a = v.agent([[("human_ask", {"title": forged, "asks": [{"id": "q", "type": "text", "prompt": forged}]})], "done"], {"tools": ["v/ops/human/ask"]}, **who)
    v.task(a, wait=3000, **who)
    done = v.cli("approvals", token=token)
    check(T, "the title of a question makes no line in the list of approvals", a.encode() in done.stdout and not mine(done.stdout), mine(done.stdout))
    s, listed = v.http("GET", "/approvals", **who)
    for asked in listed.get("items", []):
        v.cli("reject", asked["id"], token=token)
    failer = v.agent([[("fail_task", {"error": forged})]], **who)
    s, job = v.task(failer, wait=5000, **who)
    for args in (("job", "wait", job["job"]), ("job", "watch", job["job"]), ("job", "get", job["job"]), ("submit", failer, "x", "--wait")):
        done = v.cli(*args, token=token)
        check(T, f"the error of a task makes no line on stderr of `{args[0]} {args[1][:5]}`", not mine(done.stderr), (mine(done.stderr), done.stderr[-300:]))
    caller = v.agent([[("lattice_read" + forged, {"path": "w/x"})], "done"], **who)
    s, job = v.task(caller, wait=5000, **who)
    done = v.cli("turn", "show", f"{caller}/{job['session']}/1", token=token)
    check(T, "the name of a called tool makes no line in `turn show`", b"called" in done.stdout and not mine(done.stdout), mine(done.stdout))
    v.run("policy/revoke", {"path": "w/none", "reason": forged}, **who)
    done = v.cli("policy", "show", token=token)
    check(T, "a reason makes no line in `policy show`", b"revoked" in done.stdout and not mine(done.stdout), mine(done.stdout))
