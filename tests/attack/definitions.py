"""Attacks what is named by a path: configurations and definitions that lie where the caller can't read, at other owners, at themselves, in
values that are huge, deep, no maps, many, or change meanwhile; pins of operations that change under an agent; and owners' DIDs in
paths, grants and tokens: others', malformed, percent-encoded, in other case, with dots. Expected: nothing is read by a name that its
caller can't read, a name is one thing or refused with a reason, and no name costs more than what it names."""

import json
import threading
import time
import urllib.parse

from venue import check, nested, peak_memory

T = "definitions"
SETS = ["catalog.test=true", "auth.did_keys=*"]
ECHO = {"model": {"provider": "scripted", "name": "echo"}}


def good(said):
    text = said.get("detail") if isinstance(said, dict) else ""
    return isinstance(text, str) and len(text) > 8 and not any(w in text for w in ("panicked", "unwrap", "Err(", "Some(", "src/", "serde"))


def attack(v):
    who = {"token": v.issue("acme/ann")} if v.mode == "jwt" else {}
    eve = {"token": v.issue("evil/eve")} if v.mode == "jwt" else {"owner": "evil/eve"}
    mine = "acme/ann" if v.mode == "jwt" else "local/me"
    places(v, who, eve, mine)
    values(v, who)
    pins(v, who)
    by_agents(v, who)
    dids(v, who, eve, mine)
    if v.mode == "jwt":
        narrow(v, who)
        keys(v)


def places(v, who, eve, mine):
    v.write("w/agents/base", {**ECHO, "description": "canary-def"}, **who)
    v.write("w/agents/base", {**ECHO, "description": "eves"}, **eve)
    s, said = v.run("agent/create", {"agentId": "base", "definition": "w/agents/base"}, **who)
    check(T, "an agent is made by a path", s == 200 and v.http("GET", "/agents/base", **who)[1]["config"].get("description") == "canary-def", said)
    for name in ("w/nope", "w/agents", "w/agents/base/description", "w/agents/base/model", "v/ops", "v/ops/lattice/read", "j/" + "0" * 32, "s/KEY", "g", "g/base", "g/base/timeline", "c/x", "t/x", "n/x", "o/none", "a/" + "0" * 64, "a/x", "", "/", "//", ".", "..", "../x", "w/../w/agents/base", "w/./agents/base", "w/agents/base\u0000", "w/agents/base\u200b", "\ufeffw/agents/base", "W/agents/base", "w%2Fagents%2Fbase", "w/agents%2Fbase", "w\\agents\\base", "http://127.0.0.1/x", "file:///etc/passwd", "/etc/passwd", "~/x", f"/{mine.upper()}/w/agents/base", "/evil/other/w/agents/base", "/evil/eve2/w/agents/base", "evil/eve/w/agents/base", "did:web:127.0.0.1/w/agents/base", "x" * 100000, "w/" + "a/" * 5000, "base", "*", "w/*", "{}", "[]", '{"model": {"provider": "scripted", "name": "echo"}}', "null"):
        for op, key, input in (("agent/create", "definition", {"agentId": "other"}), ("agent/create", "config", {"agentId": "other"}), ("agent/update", "config", {"agentId": "base"}), ("agent/fork", "config", {"agentId": "base", "to": "other"})):
            s, said = v.run(op, {**input, key: name}, **who)
            check(T, f"{op} with {key} {name[:24]!r} is refused with a reason", 400 <= s < 500 and good(said), (s, str(said)[:300]))
    check(T, "and no agent was made of these", v.http("GET", "/agents/other", **who)[0] == 404, v.http("GET", "/agents/other", **who))
    for he, name in ((eve, f"/{mine}/w/agents/base"), (eve, f"/{mine}/g/base/config"), (who, "/evil/eve/w/agents/base")):
        for op, key in (("agent/create", "definition"), ("agent/create", "config")):
            s, said = v.run(op, {"agentId": "stolen", key: name}, **he)
            check(T, f"{name} of another owner is no {key}", s in (403, 404) and good(said) and "canary" not in json.dumps(said), (s, said))
    for op in ("agent/create", "agent/update", "agent/fork"):
        s, said = v.run(op, {"agentId": "base", "to": "f1", "config": [{}, None]} if op == "agent/fork" else {"agentId": "base", "config": [{}, None]}, **who)
        check(T, f"a list with null is refused by {op}", 400 <= s < 500 and good(said), (s, said))
    for both in ({"config": ECHO, "definition": "w/nope"}, {"config": "w/nope", "definition": ECHO}):
        s, said = v.run("agent/create", {"agentId": "both", **both}, **who)
        check(T, f"of config and definition one that isn't there is refused: {both}", 400 <= s < 500 and good(said), (s, said))


def values(v, who):
    for name, value in {"a text": "w/agents/base", "its own name": "w/d/self", "a list of itself": ["w/d/list"], "a number": 5, "null": None, "true": True, "an empty list": [], "an empty map": {}, "deep": nested(60), "many": {f"k{i}": i for i in range(20000)}, "an unknown key": {**ECHO, "canary-key": 1}, "one in it": {**ECHO, "model": {"provider": "scripted", "name": "echo", "config": "w/agents/base"}}}.items():
        v.write("w/d/self", value, **who)
        v.write("w/d/list", value, **who)
        for path in ("w/d/self", ["w/d/list"], ["w/d/self", "w/d/list"], [ECHO, "w/d/self"]):
            t = time.time()
            s, said = v.run("agent/create", {"agentId": "val", "config": path, "overwrite": True}, **who)
            check(T, f"a definition {path if isinstance(path, str) else len(path)} that is {name} is refused with a reason at once", (s == 200 and name == "an empty map" and path == [ECHO, "w/d/self"] or 400 <= s < 500 and good(said)) and time.time() - t < 5, (s, str(said)[:300]))
    # Five MB, by pieces, and a list that names it often.
    v.run("lattice/delete", {"path": "w/big"}, **who)
    for i in range(6):
        v.write(["w", "big", f"k{i}"], "x" * 900000, **who)
    before = peak_memory(v)
    for name, path in {"five MB": "w/big", "five MB fifty times": ["w/big"] * 50, "five MB a thousand times": ["w/big"] * 1000, "a piece ten thousand times": ["w/big/k0"] * 10000, "a good one ten thousand times": ["w/agents/base"] * 10000, "maps": [{}] * 20000}.items():
        t = time.time()
        s, said = v.run("agent/create", {"agentId": "bigdef", "config": path, "overwrite": True}, timeout=60, **who)
        took = time.time() - t
        check(T, f"a definition of {name} has an answer in time", s and s != 500 and took < 8 and (s < 300 or good(said)), (s, str(said)[:300], took))
        beside = time.time()
        s, _ = v.http("GET", "/agents/base", timeout=20, **who)
        check(T, f"after a definition of {name} the venue serves", s == 200 and time.time() - beside < 3, (s, time.time() - beside))
    after = peak_memory(v)
    check(T, "definitions that are large take no more than 400 MB", all(after[k] - before.get(k, 0) < 400 for k in after), (before, after))
    v.run("lattice/delete", {"path": "w/big"}, **who)
    # What is named changes while agents are made of it.
    v.write("w/ch", {**ECHO, "description": "d0"}, **who)
    got, stop = [], time.time() + 3

    def write():
        n = 0
        while time.time() < stop:
            n += 1
            v.write("w/ch", {**ECHO, "description": f"d{n}"} if n % 3 else 5, **who)

    def make(k):
        while time.time() < stop:
            got.append(v.run("agent/create", {"agentId": f"ch{k}", "config": "w/ch", "overwrite": True}, **who))
    threads = [threading.Thread(target=write)] + [threading.Thread(target=make, args=(k,)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    check(T, "agents that are made of what changes: no error of the server", all(s in (200, 400, 409) for s, _ in got), sorted({s for s, _ in got}))


def pins(v, who):
    v.write("w/pinned", {"canary": "canary-pin"}, **who)
    for path in ("v/ops/lattice/read", "v/ops/none", "v/ops", "o/look", "v/ops/test/echo"):
        s, said = v.run("asset/pin", {"path": path, "name": "look"}, **who)
        check(T, f"a pin of {path} is made or refused with a reason", s == 200 or 400 <= s < 500 and good(said), (s, said))
    v.run("asset/pin", {"path": "v/ops/lattice/read", "name": "look"}, **who)
    s, said = v.run("o/look", {"path": "w/pinned"}, **who) if False else v.http("POST", "/run", {"operation": "o/look", "input": {"path": "w/pinned"}}, **who)
    check(T, "a pin of an operation is run by its path", s == 200 and "canary-pin" in json.dumps(said), (s, said))
    s, said = v.http("POST", "/invoke?wait=5000", {"operation": "o/look", "input": {"path": "w/pinned"}}, **who)
    check(T, "and invoked", "canary-pin" in json.dumps(said.get("output")), (s, said))
    # It is another operation when the agent calls it: what that needs is asked of the agent.
    swap = lambda b: (v.run("asset/pin", {"path": "v/ops/lattice/write", "name": "look"}, **who), [("look", {"path": "w/pinned", "value": "evil"}), ("look", {"path": "w/pinned"}), ("lattice_write", {"path": "w/pinned", "value": "evil"})])[1]
    a = v.agent([swap, "done"], {"tools": ["o/look"], "caps": [{"with": "w/pinned", "can": "crud/read"}, {"with": "o", "can": "crud/read"}]}, **who)
    s, job = v.task(a, **who)
    check(T, "a pin that becomes another operation gives an agent no more than its caps", "evil" not in json.dumps(v.read("w/pinned", **who)[1]), job)
    for target in ("v/ops/policy/roots", "v/ops/secret/list", "v/ops/agent/create", "v/ops/job/run"):
        v.run("asset/pin", {"path": target, "name": "evil"}, **who)
        a = v.agent([[("evil", {"caps": None}), ("evil", {"agentId": "byPin", "config": ECHO}), ("evil", {"operation": "v/ops/lattice/write", "input": {"path": "w/pinned", "value": "evil"}}), ("job_run", {"operation": "o/evil", "input": {"operation": "v/ops/lattice/write", "input": {"path": "w/pinned", "value": "evil"}}})], "done"], {"tools": ["o/evil"], "caps": [{"with": "w/x", "can": "crud"}, {"with": "o", "can": "crud/read"}]}, **who)
        s, job = v.task(a, **who)
        check(T, f"a pin of {target} gives an agent nothing beyond its caps", job.get("status") == "COMPLETE" and "evil" not in json.dumps(v.read("w/pinned", **who)[1]) and v.http("GET", "/agents/byPin", **who)[0] == 404, job)
    a = v.agent([[("look", {"path": "w/pinned"})], "done"], {"tools": ["o/look"], "caps": [{"with": "w", "can": "crud"}]}, **who)
    s, job = v.task(a, **who)
    seen = v.model.seen[v.last_model]
    check(T, "a pin that an agent may not read is no tool of it", "look" not in json.dumps([t.get("function", {}).get("name") for t in seen[0].get("tools", [])]), seen[0].get("tools"))
    for name in ("o/look/x", "o/", "o", "o/none", "o/../v/ops/lattice/read", "O/look", "o/look\u200b", "o//look", "o%2Flook"):
        s, said = v.http("POST", "/run", {"operation": name, "input": {"path": "w/pinned"}}, **who)
        check(T, f"the operation {name!r} is refused with a reason", 400 <= s < 500 and good(said), (s, said))


def by_agents(v, who):
    v.write("w/hid/def", {**ECHO, "description": "canary-hid", "systemPrompt": "canary-hid"}, **who)
    for i, calls in enumerate(([("agent_create", {"agentId": "kidd", "definition": "w/hid/def"})], [("agent_create", {"agentId": "kidd", "config": ["w/hid/def", {"description": "x"}]})], [("agent_update", {"agentId": "kidd", "config": "w/hid/def"})], [("agent_fork", {"agentId": "kidd", "to": "kidd2", "config": "w/hid/def"})], [("agent_create", {"agentId": "kidd", "definition": "g/base/config"})])):
        r, job, a = v.calls(calls + [("agent_info", {"agentId": "kidd"})], {"tools": ["v/ops/agent/create", "v/ops/agent/update", "v/ops/agent/fork", "v/ops/agent/info"], "caps": [{"with": "g/kidd", "can": "*"}, {"with": "g/kidd2", "can": "*"}, {"with": "w/ok", "can": "crud"}]}, **who)
        check(T, f"an agent makes none of what it can't read ({i})", "canary" not in "".join(r) and "canary" not in json.dumps(v.http("GET", "/agents/kidd", **who)[1]) and "canary" not in json.dumps(v.http("GET", "/agents/kidd2", **who)[1]), r)


def dids(v, who, eve, mine):
    """Paths that name an owner. Without tokens no owner has a key."""
    v.write("w/x", "canary-did", **who)
    z = "z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
    for p in (f"did:key:{z}/w/x", f"did:key:{z}", "did:key:/w/x", "did:", "did:key", "did:key:z/w/x", f"DID:KEY:{z}/w/x", f"did:KEY:{z}/w/x", f"did%3Akey%3A{z}/w/x", f"did:key:{z}#k/w/x", f"did:key:{z}?x=1/w/x", f"/did/{z}/w/x", f"/did:key:{z}/w/x", f"did:key:{z}/../w/x", f"did:key:{z}/w/../x", f"did:key:{z}//w/x", f"did:web:127.0.0.1%3A{v.port}/w/x", f"did:web:127.0.0.1:{v.port}/w/x", "did:web:attack.example/w/x", "did:web:attack.example:acme:ann/w/x", f"/{mine}x/w/x", f"/{mine.upper()}/w/x", f"/{mine.replace('/', '%2F')}/w/x", f"/{mine}/../{mine}/w/x", f"/./{mine}/w/x", f"//{mine}/w/x", f"/{mine}//w/x", f"/{mine}\u200b/w/x", f"/{mine}/W/x", f"{mine}/w/x", "/venue/venue/w/x", "/local/w/x", "/x/w/x", "/evil/eve/w/x", "/evil/eve/../../w/x", ["/evil/eve", "w", "x"], ["did:key:" + z, "w", "x"], ["", "evil", "eve", "w", "x"], ["evil", "eve", "w", "x"], [f"did:key:{z}/w/x"]):
        for op, input in (("lattice/read", {"path": p}), ("lattice/write", {"path": p, "value": "evil"}), ("lattice/list", {"path": p}), ("lattice/delete", {"path": p}), ("lattice/copy", {"from": "w/x", "to": p}), ("lattice/copy", {"from": p, "to": "w/copy"}), ("lattice/inspect", {"paths": [p]})):
            for he, whose in ((eve, "another"),) + (((who, "she"),) if not op.endswith(("write", "delete")) and not (op.endswith("copy") and input["to"] == p) else ()):
                s, said = v.run(op, input, **he)
                own = whose == "she"
                check(T, f"{whose}: {op} of {str(p)[:30]} is no error of the server and reveals nothing", s < 500 and (own or "canary" not in json.dumps(said)), (s, said))
                if own and s == 200 and "canary" in json.dumps(said):
                    check(T, f"{op} of {p}: a path of her own that is another form is refused", isinstance(p, str) and p.startswith((f"/{mine}", "//")) and ".." not in p, said)
        if isinstance(p, str):
            for path in (f"/values/read?path={urllib.parse.quote(p, safe='')}", f"/why?path={urllib.parse.quote(p, safe='')}"):
                s, said = v.http("GET", path, **eve)
                check(T, f"another: GET {path[:50]} reveals nothing", s < 500 and "canary" not in json.dumps(said), (s, said))
    check(T, "after all of these her value is there", "canary-did" in json.dumps(v.read("w/x", **who)[1]), v.read("w/x", **who))
    for w in (f"/{mine}/w", f"did:key:{z}/w", "/evil/eve/w", f"/{mine.upper()}/w"):
        a = v.agent([[("lattice_read", {"path": "w/x"}), ("lattice_read", {"path": f"/{mine}/w/x"})], "done"], **who)
        s, job = v.task(a, body={"context": [{"with": w, "can": "crud/read"}]}, **who)
        check(T, f"a grant of {w[:30]} is her own or nothing", ("canary-did" in v.prompt()) == (w == f"/{mine}/w") or 400 <= s < 500, (s, job, v.prompt()[-300:]))


def narrow(v, who):
    v.write("w/hid/def", {**ECHO, "description": "canary-hid"}, **who)
    for name, att in {"agents": ["g:agent"], "all of agents": ["g:*"], "beside it": ["g:*", "w/hi:*", "w/hid/deff:*"], "below it": ["g:*", "w/hid/def/description:crud/read"], "writing it": ["g:*", "w/hid:crud/write"], "pins": ["g:*", "o:*"], "asking": ["g:agent/request"]}.items():
        he = {"token": v.issue("acme/ann", att)}
        for op, input in (("agent/create", {"agentId": "nn", "definition": "w/hid/def"}), ("agent/create", {"agentId": "nn", "config": "w/hid/def", "dryRun": True}), ("agent/create", {"agentId": "nn", "config": "/acme/ann/w/hid/def"}), ("agent/create", {"agentId": "nn", "config": [ECHO, "w/hid/def"]}), ("agent/create", {"agentId": "nn", "config": ["w/none", "w/hid/def"]}), ("agent/update", {"agentId": "base", "config": "w/hid/def"}), ("agent/fork", {"agentId": "base", "to": "nn", "config": "w/hid/def"})):
            s, said = v.run(op, input, **he)
            check(T, f"who holds {name}: {op} {str(input)[-40:]} of what he can't read is denied", s in (403, 404) and "canary" not in json.dumps(said) and good(said), (s, said))
            a, b = v.run(op, {k: ("w/hid/nope" if x == "w/hid/def" else x) for k, x in input.items()}, **he), (s, said)
            if "w/hid/def" in input.values():
                check(T, f"who holds {name}: {op} tells not whether there is something", json.dumps(a).replace("w/hid/nope", "w/hid/def") == json.dumps(b), (a, b))
    check(T, "none was made", v.http("GET", "/agents/nn", **who)[0] == 404)
    # What is made by a path can no more than who made it.
    v.model.says("narrowmade", [[("lattice_read", {"path": "w/hid/def"}), ("lattice_write", {"path": "w/hid/out", "value": 1})], "done"])
    v.write("w/wide", {"model": {"provider": "local", "name": "narrowmade"}, "caps": [{"with": "", "can": "*"}]}, **who)
    s, said = v.run("agent/create", {"agentId": "wide", "definition": "w/wide"}, token=v.issue("acme/ann", ["g:*", "w/wide:crud/read"]))
    v.task("wide", **who)
    check(T, "an agent that a narrow caller makes of a wide definition can no more than he", "canary-hid" not in json.dumps(v.model.seen.get("narrowmade", [])) and v.read("w/hid/out", **who)[1].get("exists") is False, said)


def keys(v):
    """Owners that are keys."""
    made = []
    for n in range(2):
        did = v.cli("token", "keygen", str(v.folder / f"own{n}.jwk")).stdout.decode().strip()
        t = v.cli("token", "issue", "--key", str(v.folder / f"own{n}.jwk"), "--aud", "did:web:attack.example").stdout.decode().strip()
        made.append((did, {"token": t}))
    (a, anne), (b, ben) = made
    s, said = v.write(f"{a}/w/x", "canary-key", **anne)
    check(T, "a key writes behind its own DID", s == 200 and v.read("w/x", **anne)[1].get("value") == "canary-key", (s, said))
    z = a.split(":")[-1]
    for p in (f"{a}/w/x", f"/did/{z}/w/x", f"did:key:{z.lower()}/w/x", f"did:key:{z.upper()}/w/x", f"did:key:{z[:-1]}/w/x", f"did:key:{z}x/w/x", f"did:key:{z}#{z}/w/x", f"DID:key:{z}/w/x", a.replace(":", "%3A") + "/w/x", f"{a}/w/./x", f"{a}/w/../w/x", f"{b}/../{a}/w/x", f"{b}/w/x/../../../{a}/w/x", f"/did/{z}", a, [a, "w", "x"], ["did", z, "w", "x"]):
        for op, input in (("lattice/read", {"path": p}), ("lattice/write", {"path": p, "value": "evil"}), ("lattice/delete", {"path": p}), ("lattice/copy", {"from": p, "to": "w/got"}), ("agent/create", {"agentId": "k", "config": p}), ("lattice/read", {"paths": ["w", p]})):
            s, said = v.run(op, input, **ben)
            check(T, f"another key: {op} of {str(p)[:34]} reveals nothing", s < 500 and "canary" not in json.dumps(said), (s, said))
        for owner in (f"did/{z}", a, f"DID/{z}", f"did/{z.upper()}"):
            s, said = v.http("GET", "/values/read?path=w/x", owner=owner, **ben)
            check(T, f"another key as {owner[:20]} is denied", s in (400, 401, 403, 404) and "canary" not in json.dumps(said), (s, said))
    check(T, "her value is as it was", v.read("w/x", **anne)[1].get("value") == "canary-key", v.read("w/x", **anne))
    for att, reads in ((f"{a}/w:crud/read", True), (f"{b}/w:crud/read", False), (f"/did/{z}/w:crud/read", True), (f"did:key:{z.upper()}/w:crud/read", False), (f"{a}/w/../w:crud/read", False)):
        t = v.cli("token", "issue", "--key", str(v.folder / "own0.jwk"), "--aud", "did:web:attack.example", "--att", att).stdout.decode().strip()
        if t:
            s, said = v.read("w/x", token=t)
            check(T, f"a token with att {att[:12]}…{att[-14:]} reads {'it' if reads else 'nothing'}", ("canary" in json.dumps(said)) == reads or reads and s in (401, 403), (s, said))
