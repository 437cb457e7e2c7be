"""Attacks memory and files of users: an agent that was granted one user's namespace reads, writes, forgets and finds another's by scope,
name, id, key, prefix, by the lattice, by children with wider grants, by odd grants; what is erased comes back. Expected: nothing of
another user reaches a result or a prompt, nothing of him changes, a purge leaves nothing."""

import json

from venue import check

T = "resources"
RES = {"memory": {"mode": "read-write", "preload": "all", "forgetScope": True}, "files": {"mode": "read-write"}}
READ = {"memory": {"mode": "read", "preload": "all"}, "files": {"mode": "read"}}


def attack(v):
    def run(calls, grants, res=RES, config=None):
        return v.calls(calls, {"resources": res, "defaultTools": False, "tools": ["v/ops/lattice/read", "v/ops/lattice/list", "v/ops/job/run", "v/ops/agent/request", "v/ops/agent/create"], **(config or {})}, body={"context": grants} if grants is not None else {})

    r, job, _ = run([("memory_write", {"content": "canary-u2", "topics": ["tt"]}), ("memory_put", {"key": "kk", "content": "canary-u2-key"}), ("files_write", {"path": "a.txt", "content": "canary-u2-file"})], ["app/user/u2"])
    check(T, "user 2 keeps something", len(r) == 3 and not any("error" in x for x in r), (r, job))
    ids = [x["id"] for x in [json.loads(y) for y in r if y.startswith("{")] if "id" in x] or ["x"]
    scopes = ["app/user/u2", "app/user", "app", "", "/", "app/user/u1/../u2", "../u2", "u2", "app/user/u1/..", "app/user/*", "app/user/u1u2", "app//user/u2", "/app/user/u2", "app/user/u2/", "r/app/user/u2", "app/user/u%32", "APP/user/u2", "app/user/u2\u200b", "app/user/u1/../../..", "app/user/u1/%2e%2e/u2", "*", "app/user/u2\u0000"]
    for scope in scopes:
        calls = [("memory_write", {"content": "evil " + scope, "scope": scope}), ("memory_put", {"key": "kk", "content": "evil", "scope": scope}), ("memory_forget", {"scope": scope}), ("files_write", {"path": scope + "/a.txt", "content": "evil"}), ("files_read", {"path": scope + "/a.txt"}), ("files_read", {"path": scope}), ("files_list", {"prefix": scope}), ("memory_search", {"query": "canary", "prefix": scope}), ("lattice_read", {"path": "r/" + scope}), ("lattice_list", {"path": "r/" + scope}), ("job_run", {"operation": "v/ops/resource/list", "input": {"namespace": scope}}), ("job_run", {"operation": "v/ops/resource/purge", "input": {"namespace": scope, "recursive": True}})]
        r, job, _ = run(calls, ["app/user/u1"])
        check(T, f"user 1 by the scope {scope!r} gets nothing", "canary-u2" not in "".join(r) and "canary-u2" not in v.prompt() and job.get("status") == "COMPLETE", (r, job))
    for calls in ([("memory_correct", {"id": i, "content": "evil"}), ("memory_forget", {"id": i})] for i in ids):
        r, job, _ = run(calls, ["app/user/u1"])
        check(T, "user 1 corrects and forgets nothing of user 2", "canary" not in "".join(r), r)
    r, job, _ = run([("memory_get", {"key": "kk"}), ("memory_read", {}), ("memory_search", {"query": "canary"}), ("memory_search", {"query": ""}), ("files_list", {})], ["app/user/u1"])
    check(T, "user 1 finds nothing of user 2", "canary-u2" not in "".join(r), r)
    r, job, _ = run([("memory_read", {}), ("memory_get", {"key": "kk"}), ("files_read", {"path": "a.txt"}), ("memory_search", {"query": "evil"})], ["app/user/u2"])
    check(T, "user 2 still has all of it", "canary-u2" in r[0] and "canary-u2-key" in r[1] and "canary-u2-file" in r[2] if len(r) > 2 else False, r)
    check(T, "and nothing of user 1", "evil" not in "".join(r[:3]), r)
    # Odd grants.
    for grant in ("app/user/../user/u2", "app/user/u1/../u2", "", "/", "*", "app/*", "app/user/u2\ufeff", "\u200bapp/user/u2", "app//user//u2", "app/user/u2 ", " app/user/u2", "APP/USER/U2", "app/user/u%32", {"with": "app/user/u2"}, {"with": "r/app/user/u2", "can": ""}, ["app/user/u2"], None, 5, "app/user/u2\u0000", "r/app/user/u2/../u3", "." , "..", "app/user/u2/.."):
        s, job = None, None
        a = v.agent([[("memory_read", {}), ("files_list", {})], "done"], {"resources": RES, "defaultTools": False})
        m = v.last_model
        s, job = v.http("POST", f"/agents/{a}/tasks?wait=4000", {"input": 1, "context": [grant]})
        exact = grant in ("app/user/u2",)
        check(T, f"the grant {grant!r} is refused or not user 2's", "canary-u2" not in json.dumps(v.model.seen.get(m, [])) and s < 500, (s, job, v.prompt()[-300:]))
    # Read only.
    r, job, _ = run([("memory_write", {"content": "evil-ro"}), ("memory_put", {"key": "k", "content": "evil-ro"}), ("memory_forget", {"scope": "app/user/u2"}), ("memory_forget", {"id": ids[0]}), ("memory_correct", {"id": ids[0], "content": "evil-ro"}), ("files_write", {"path": "a.txt", "content": "evil-ro"})], ["app/user/u2"], READ)
    check(T, "an agent that may read changes nothing", len(r) == 6 and all("error" in x or "nknown" in x or "enied" in x for x in r), r)
    v.agent([[("memory_write", {"content": "evil-child"}), ("files_write", {"path": "a.txt", "content": "evil-child"})], "done"], {"resources": RES, "defaultTools": False}, name="writer")
    r, job, _ = run([("agent_request", {"agentId": "writer", "input": 1, "wait": 3000}), ("job_run", {"operation": "v/ops/agent/request", "input": {"agentId": "writer", "input": 1, "wait": 3000}}), ("agent_request", {"agentId": "writer", "input": 1, "wait": 3000, "context": ["app/user/u2"]}), ("agent_request", {"agentId": "writer", "input": 1, "wait": 3000, "context": [{"with": "", "can": "*"}]})], ["app/user/u2"], READ)
    r2, _, _ = run([("memory_search", {"query": "evil"}), ("files_read", {"path": "a.txt"})], ["app/user/u2"])
    check(T, "nor do the agents that it asks", "evil" not in "".join(r2), r2)
    v.agent([[("memory_read", {}), ("files_read", {"path": "a.txt"})], "done"], {"resources": RES, "defaultTools": False}, name="reader")
    m = v.last_model
    r, job, _ = run([("agent_request", {"agentId": "reader", "input": 1, "wait": 3000, "context": ["app/user/u2"]}), ("agent_request", {"agentId": "reader", "input": 1, "wait": 3000, "context": [{"with": "r/app/user/u2", "can": "*"}]}), ("agent_request", {"agentId": "reader", "input": 1, "wait": 3000, "context": ["app"]}), ("agent_request", {"agentId": "reader", "input": 1, "wait": 3000, "contextIds": ["app/user/u2"]})], ["app/user/u1"])
    check(T, "a child is granted no more than its parent", "canary-u2" not in json.dumps(v.model.seen.get(m, [])), "")
    # A conversation that both share: what was said under user 2 is not shown under user 1.
    a = v.agent([[("memory_read", {})], "I know canary-u2", "ok", "ok"], {"resources": RES, "defaultTools": False})
    m = v.last_model
    v.task(a, "one", body={"context": ["app/user/u2"], "sessionId": "sh"})
    n = len(v.model.seen[m])
    v.task(a, "two", body={"context": ["app/user/u1"], "sessionId": "sh"})
    check(T, "user 1 in user 2's conversation sees nothing of him", "canary-u2" not in json.dumps(v.model.seen[m][n:]), json.dumps(v.model.seen[m][n:])[-600:])
    n = len(v.model.seen[m])
    v.task(a, "three", body={"sessionId": "sh", "context": [{"with": "w/x", "can": "crud/read"}]})
    check(T, "who has no user's grant neither", "canary-u2" not in json.dumps(v.model.seen[m][n:]), json.dumps(v.model.seen[m][n:])[-600:])
    # Names of files.
    for path in ("../x", "/etc/passwd", "a/../../x", "", ".", "a\u0000b", "x" * 5000, "a//b", "con", "a\nb", "a\u202eb", "~", "%2e%2e/x", "\\..\\x", "a" + "/a" * 300):
        r, job, _ = run([("files_write", {"path": path, "content": "x"}), ("files_read", {"path": path}), ("files_list", {})], ["app/user/u3"])
        check(T, f"the file {path[:20]!r} ends well", job.get("status") == "COMPLETE" and "root:" not in "".join(r), (r, job))
    # Erasure.
    s, said = v.run("resource/purge", {"namespace": "app/user/u2", "recursive": True})
    check(T, "user 2 is erased", s == 200, (s, said))
    r, job, _ = run([("memory_read", {}), ("memory_get", {"key": "kk"}), ("files_read", {"path": "a.txt"}), ("files_list", {})], ["app/user/u2"])
    check(T, "and has nothing then", "canary-u2" not in "".join(r), r)
    for path in (f"/agents/{a}/turns", f"/agents/{a}/sessions/sh", f"/agents/{a}/turns/sh/1?prompt=true", f"/agents/{a}/turns/sh/2?prompt=true", f"/values/read?path=g/{a}/timeline", "/jobs?details=true", "/jobs?q=canary-u2&details=true"):
        s, said = v.http("GET", path)
        check(T, f"after the erasure {path.split('?')[0][-30:]} shows nothing of him", "canary-u2" not in json.dumps(said), json.dumps(said)[:400])
    n = len(v.model.seen[m])
    v.task(a, "four", body={"context": ["app/user/u2"], "sessionId": "sh"})
    check(T, "nor does the conversation", "canary-u2" not in json.dumps(v.model.seen[m][n:]), json.dumps(v.model.seen[m][n:])[-600:])
