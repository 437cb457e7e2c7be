"""Attacks who a request is said to be, and whose values a turn has: `user_id` and its kin in every spelling and nesting, by tasks, messages, chats,
agents, previews and timers; `tenant_id`; values of one request in another of the same session, of a message in a task that it does not belong to,
of children; users whose names are paths. Expected: the token alone says who sends, and a value lives in its own request only."""

import json
import time

from venue import check

T = "identity"
F = "forgedid"
SPELLED = ["user_id", "user.id", "userId", "userID", "UserId", "USER_ID", "user-id", "User-Id", "user id", "userid", "uid", "UID", "user.ID", "User.id", "user..id", "user.id.", ".user.id", "user/id", "user:id", "user_id ", " user_id", "user__id", "_user_id", "user_Id", "ｕser_id", "user_ıd", "user\u200b_id", "us\u00ader_id", "user.i\u0307d", "user_name", "userName", "user.name", "user_email", "userEmail", "user.email", "USER.EMAIL"]
NESTED = [{"user": {"id": F}}, {"user": {"ID": F}}, {"User": {"id": F}}, {"user": {"user_id": F}}, {"user": {"user": {"id": F}}}, {"user": [{"id": F}]}, {"user": {"id": {"id": F}}}, {"user": {"id": [F]}}, {"user": json.dumps({"id": F})}, {"user": F}, {"session": {"user_id": F}}, {"user": {"i": {"d": F}}}, {"user.": {"id": F}}, {"user": {"name": F, "email": F, "id": F}}, {"project": {"user_id": F}}, {"agent": {"user": {"id": F}}}, {"_global": {"user_id": F}}]
TEXT = "${user_id}|${user.id}|${userId}|${uid}|${user_name}|${user.name}|${userName}|${user_email}|${user.email}|{{user_id}}|${session.user_id}|${session.user.id}|${user}|${tenant_id}"


def attack(v):
    if v.mode != "jwt":
        unnamed(v)
        return crossed(v, {}, {})
    who = {"token": v.issue("acme/ann", name="Ann Real", email="ann@real.example")}
    narrow = {"token": v.issue("acme/ann", att=["g:agent/request", "g:agent/message", "g:agent/chat", "g:crud/read", "j:crud/read", "g:agent/trigger"], name="Ann Real")}
    root = {"token": v.issue("acme/root"), "owner": "acme/ann"}
    named(v, who, narrow)
    bound(v, who, narrow)
    users(v, root)
    crossed(v, who, narrow)


def forms():
    return [{k: F} for k in SPELLED] + NESTED


def named(v, who, narrow):
    """Forged names by every entrance, with a token that says who it is."""
    v.agent(["ok"], {"systemPrompt": "I am " + TEXT}, name="idp", **who)
    model = v.last_model
    for form in forms():
        v.model.says(model, ["ok"])
        s, job = v.task("idp", body={"sessionContext": form}, **narrow)
        told = json.dumps(v.model.seen[model])
        first = next(iter(form))
        check(T, f"a task with {json.dumps(form)[:60]} is taken or refused with a reason", 200 <= s < 300 or 400 <= s < 500 and job.get("error"), (s, job))
        check(T, f"a task with {json.dumps(form)[:60]} is nobody else", F not in told, told[:300])
        if 200 <= s < 300:
            check(T, f"a task with {json.dumps(form)[:60]} is still ann", '"I am ann|ann|' in told.replace("I am ann|ann|ann|", "I am ann|ann|"), told[:200])
        v.model.says(model, ["ok"])
        v.http("POST", "/agents/idp/messages", {"input": "hi", "sessionId": "m1", "sessionContext": form}, **narrow)
        v.run("agent/chat", {"agentId": "idp", "message": "hi", "timeout": 3000, "sessionContext": form}, **narrow)
        told = json.dumps(v.model.seen[model])
        check(T, f"a message and a chat with {json.dumps(form)[:60]} are nobody else", F not in told, told[:300])
        s, said = v.http("POST", "/agents/idp/context", {"task": "x", "sessionContext": form}, **narrow)
        check(T, f"a preview with {json.dumps(form)[:60]} shows nobody else", s < 500 and F not in json.dumps(said.get("request", said)).replace(json.dumps(said.get("ignored")), ""), (s, str(said)[:300]))
    for form in ({"tenant_id": F}, {"tenantId": F}, {"TENANT_ID": F}, {"tenant.id": F}, {"tenant-id": F}, {"tenant": {"id": F}}, {"tenantid": F}, {"Tenant": {"ID": F}}, {"tenant_id": None}, {"tenant_id": {}}):
        s, job = v.task("idp", body={"sessionContext": form}, **narrow)
        told = json.dumps(v.model.seen[model][-1])
        check(T, f"{json.dumps(form)} is refused, or no tenant", 400 <= s < 500 or F not in told, (s, job))
    # An agent forges for another.
    for form in forms()[::2]:
        v.model.says(model, ["ok"])
        v.agent([[("agent_request", {"agentId": "idp", "input": "x", "wait": 3000, "sessionContext": form})], "done"], name="idmaker", **who)
        v.task("idmaker", **narrow)
        told = json.dumps(v.model.seen[model])
        check(T, f"an agent that asks with {json.dumps(form)[:50]} is nobody else", F not in told, told[:300])


def bound(v, who, narrow):
    """Arguments that `_auto` and sources fill in from who sends."""
    for source, key in (("_auto", "user_id"), ("user_id", "user_id"), ("session.user_id", "user_id"), ("user.id", "user_id"), ("session.user.id", "x"), ("user.user_id", "x")):
        for form in ({"user_id": F}, {"userId": F}, {"user": {"id": F}}, {"uid": F}, {"x": F}):
            if key in form or source.startswith("session") and "x" in form:
                pass
            v.run("lattice/delete", {"path": "w/idv"}, **who)
            v.agent([[("lattice_write", {"path": "w/idv", "value": F})], "done"], {"tools": ["v/ops/lattice/write"], "defaultTools": False, "contextMapping": [{"key": key, "source": source}], "toolArgInjection": {"lattice_write": {"value": key}}}, name="idb", **who)
            v.task("idb", body={"sessionContext": form}, **{"token": who["token"]})
            got = v.read("w/idv", **who)[1]
            check(T, f"a row {key} = {source} with {json.dumps(form)} writes ann or nothing", got.get("value") in ("ann", None) or key == "x" and source.startswith("session") and "x" not in form, got)


def users(v, root):
    """Users whose names are paths read their own values alone."""
    v.write("v/context/users/ann", {"card": "of-ann"}, **root)
    v.write("v/context/users/bob", {"card": "of-bob"}, **root)
    v.write("v/context/project", {"card2": "of-all"}, **root)
    for sub, mine in (("acme/ann", "of-ann"), ("acme/bob", "of-bob"), ("acme/eve", ""), ("acme/ann.x", ""), ("acme/an", ""), ("acme/Ann", ""), ("acme/ann%2Fx", ""), ("acme/..", ""), ("acme/ann\u200b", ""), ("acme/../ann", ""), ("acme/users", ""), ("acme/b%6Fb", "")):
        token = v.issue(sub)
        try:
            v.agent(["ok"], {"systemPrompt": "card ${card} end"}, name="idu", token=token)
        except RuntimeError as e:
            check(T, f"the subject {sub!r} is refused with a reason", any(c in str(e) for c in (": 4", "401")), e)
            continue
        s, job = v.task("idu", token=token)
        prompt = v.prompt()
        check(T, f"the subject {sub!r} has the values of himself alone", ("of-ann" not in prompt or mine == "of-ann") and ("of-bob" not in prompt or mine == "of-bob"), prompt[:200])
    # What a user reads of another by its path.
    eve = {"token": v.issue("acme/eve", att=["w:crud", "g:crud", "g:agent/request"])}
    for path in ("v/context/users/ann", "v/context/users", "v/context", "v/context/users/ann/card", "v"):
        for op in ("read", "inspect", "list", "slice"):
            s, said = v.run("lattice/" + op, {"path": path}, **eve)
            check(T, f"a narrow token: {op} of {path} shows no user", "of-ann" not in json.dumps(said), (s, said))
        s, said = v.run("lattice/copy", {"from": path, "to": "w/stolen"}, **eve)
        check(T, f"a narrow token: {path} is not copied", "of-ann" not in json.dumps(v.read("w/stolen", **eve)[1]), said)
        s, said = v.write(path, {"card": "evil"}, **{"token": v.issue("acme/eve")})
        check(T, f"who is no operator writes nothing to {path}", 400 <= s < 500, (s, said))


def crossed(v, who, narrow):
    """Values of one request in another of the same session."""
    conf = {"systemPrompt": "to ${target} for ${secretv}", "tools": ["v/ops/lattice/write", "v/ops/human/ask"], "defaultTools": False, "toolArgInjection": {"lattice_write": {"path": "target"}}}
    # After it, in another request.
    v.agent(["ok"], conf, name="cr1", **who)
    v.task("cr1", body={"sessionId": "s1", "sessionContext": {"target": "w/cr1", "secretv": "canarycr-one"}}, **who)
    v.task("cr1", body={"sessionId": "s1"}, **who)
    last = v.model.seen[v.last_model][-1]
    check(T, "the next request of a session has no value of the one before", "canarycr-one" not in json.dumps(last["messages"][0]), last["messages"][0])
    # Beside it: messages and tasks that come while a task is under way.
    for n, (kind, body) in enumerate((("messages", {"input": "hi", "sessionContext": {"target": "w/evil", "secretv": "evil"}}), ("tasks", {"input": "other", "sessionContext": {"target": "w/evil", "secretv": "evil"}}), ("tasks", {"input": "other", "priority": 1, "sessionContext": {"target": "w/evil"}}))):
        name = f"cr2{n}"
        sent = []

        def first(b, name=name, kind=kind, body=body):
            if not sent:
                sent.append(v.http("POST", f"/agents/{name}/{kind}", {**body, "sessionId": "s1"}, **(narrow or who)))
                time.sleep(0.5)
            return [("lattice_write", {"value": "first"})]

        v.agent([first, [("lattice_write", {"value": "second"})], [("lattice_write", {"value": "third"})], "done"], conf, name=name, **who)
        model = v.last_model
        s, job = v.task(name, body={"sessionId": "s1", "sessionContext": {"target": f"w/cr2/{n}", "secretv": "mine"}}, **who)
        check(T, f"{kind} beside a task ({n}): they are taken", sent and sent[0][0] < 300, sent)
        tools = [m["content"] for m in v.model.seen[model][-1]["messages"] if m["role"] == "tool"]
        check(T, f"{kind} beside a task ({n}): the task ends", job.get("status") == "COMPLETE", job)
        mine = [b for b in v.model.seen[model][:4]]
        check(T, f"{kind} beside a task ({n}): its calls go where it said", v.read("w/evil", **who)[1].get("exists") is False, (v.read("w/evil", **who), tools))
        check(T, f"{kind} beside a task ({n}): its prompts have its values", all("to w/evil" not in b["messages"][0]["content"] for b in mine), [b["messages"][0]["content"][:60] for b in mine])
        v.run("lattice/delete", {"path": "w/evil"}, **who)
    # While it waits for a person: what was asked is done with its own values.
    v.agent([[("human_ask", {"title": "t", "asks": [{"id": "a", "type": "text", "prompt": "p"}]})], [("lattice_write", {"value": "after"})], "done"], conf, name="cr3", **who)
    s, job = v.http("POST", "/agents/cr3/tasks", {"input": "x", "sessionId": "s1", "sessionContext": {"target": "w/cr3"}}, **who)
    w = {}
    for _ in range(60):
        w = next((x for x in v.http("GET", "/approvals", **who)[1].get("items", []) if x.get("job") == job.get("job")), {})
        if w:
            break
        time.sleep(0.1)
    v.http("POST", "/agents/cr3/messages", {"input": "hi", "sessionId": "s1", "sessionContext": {"target": "w/evil"}}, **(narrow or who))
    v.http("POST", f"/jobs/{job['job']}", {"target": "w/evil", "sessionContext": {"target": "w/evil"}}, **who)
    v.http("POST", f"/approvals/{w.get('id')}", {"answers": {"a": "yes"}}, **who)
    end = v.http("GET", f"/jobs/{job['job']}?wait=8000", **who)[1]
    check(T, "a message while a person is asked changes no value of the task", v.read("w/evil", **who)[1].get("exists") is False and v.read("w/cr3", **who)[1].get("value") == "after", (end, v.read("w/cr3", **who)))
    # A child has no values but those that it is given.
    v.agent(["ok"], {"systemPrompt": "child ${secretv} ${target}"}, name="cr4c", **who)
    child = v.last_model
    v.agent([[("agent_request", {"agentId": "cr4c", "input": "x", "wait": 4000})], "done"], {"systemPrompt": "nothing"}, name="cr4", **who)
    v.task("cr4", body={"sessionContext": {"secretv": "canarycr-four", "target": "w/x"}}, **who)
    check(T, "a child is given no value of its parent's request unasked", "canarycr-four" not in json.dumps(v.model.seen.get(child)), str(v.model.seen.get(child))[:300])
    # Values that nothing has shown are in no record.
    v.agent(["ok"], {}, name="cr5", **who)
    s, job = v.task("cr5", body={"sessionId": "s1", "sessionContext": {"unshown": "canarycr-five"}}, **who)
    for path in ("/jobs/" + job["job"], "/agents/cr5/sessions/s1", "/agents/cr5/turns", "/agents/cr5/turns/s1/1", "/agents/cr5/turns/s1/1?prompt=true", "/jobs?details=true", "/jobs?q=canarycr-five", "/agents/cr5"):
        s, said = v.http("GET", path, **who)
        check(T, f"a value that nothing has shown is not in {path[:24]}", "canarycr-five" not in json.dumps(said.get("items", said) if "q=" in path else said), str(said)[:300])


def unnamed(v):
    """Without tokens each caller of an owner is one: what is said of him is his word, and no tenant's."""
    v.agent(["ok"], {"systemPrompt": "I am " + TEXT}, name="idp")
    model = v.last_model
    for form in forms():
        v.model.says(model, ["ok"])
        s, job = v.task("idp", body={"sessionContext": form})
        check(T, f"without tokens, {json.dumps(form)[:60]} is taken or refused with a reason", 200 <= s < 300 or 400 <= s < 500 and job.get("error"), (s, job))
        if 200 <= s < 300:
            check(T, f"without tokens, {json.dumps(form)[:60]}: the task ends", job.get("status") == "COMPLETE", job)
