"""Attacks who reads a job: the submitter with another token, other owners, readers with `crud/read` on jobs or agents alone. Jobs that
were served by agents, invoked, failed, waited for people, ran as children and by timers, each with canaries in its input, output and
error. Expected: what a reader could not have reached is in no record, list, search, count, group, page, stream, wait, copy, schema,
prompt, approval, metric, audit or error; who asked reads it under the same rights, and nobody learns whether there is a job."""

import http.client
import json
import time

from venue import check

T = "job_readers"
SETS = ["catalog.test=true"]
C = "canaryjr"


def attack(v):
    who = {"token": v.issue("acme/ann")} if v.mode == "jwt" else {}
    jobs = made(v, who)
    others(v, who, jobs)
    if v.mode == "jwt":
        readers(v, who, jobs)
        submitters(v, who)
        oracles(v, who, jobs)


def made(v, who):
    """Jobs of each kind, by their kind."""
    v.write("w/pay", C + "-pay", **who)
    jobs = {}
    v.agent([[("lattice_read", {"path": "w/pay"})], f"said {C}-output"], name="jr", **who)
    s, j = v.task("jr", {"x": C + "-input"}, body={"sessionId": "s1"}, **who)
    jobs["complete"] = j["job"]
    v.agent([[("fail_task", {"error": C + "-error"})], "x"], name="jf", **who)
    s, j = v.task("jf", {"x": C + "-input"}, **who)
    jobs["failed"] = j["job"]
    s, j = v.http("GET", f"/jobs/{j['job']}?wait=5000", **who)
    check(T, "the failing job failed with its text", j.get("status") == "FAILED" and C in json.dumps(j.get("error")), j)
    v.agent([[("human_ask", {"title": C + "-title", "asks": [{"id": "a", "type": "text", "prompt": C + "-prompt"}]})], "x"], {"tools": ["v/ops/human/ask"]}, name="jw", **who)
    s, j = v.http("POST", "/agents/jw/tasks", {"input": C + "-input"}, **who)
    jobs["waiting"] = j["job"]
    v.agent([[("agent_request", {"agentId": "jr", "input": C + "-childinput", "wait": 4000})], C + "-done"], name="jp", **who)
    s, j = v.task("jp", C + "-input", **who)
    jobs["parent"] = j["job"]
    for kind, op, input in (("invoked", "v/ops/test/echo", {"x": C + "-input"}), ("invoked and failed", "v/ops/test/error", {"message": C + "-error"}), ("invoked read", "v/ops/lattice/read", {"path": "w/pay"}), ("invoked and running", "v/ops/test/delay", {"delay": 300000, "x": C + "-input"})):
        s, j = v.http("POST", "/invoke", {"operation": op, "input": input, **({"wait": 4000} if "running" not in kind else {})}, **who)
        jobs[kind] = j["id"]
    v.agent([lambda b: (time.sleep(60), C)[1]], name="js", **who)
    s, j = v.http("POST", "/agents/js/tasks", {"input": C + "-input"}, **who)
    jobs["running"] = j["job"]
    s, said = v.http("GET", "/jobs?details=true&agent=jr", **who)
    jobs["child"] = next((x["id"] for x in said["items"] if x.get("parent")), jobs["complete"])
    for _ in range(40):
        if v.http("GET", f"/jobs/{jobs['waiting']}", **who)[1].get("status") == "INPUT_REQUIRED":
            break
        time.sleep(0.2)
    return jobs


def stream(v, path, token=None, owner=None):
    c = http.client.HTTPConnection("127.0.0.1", v.port, timeout=1.5)
    h = {"Authorization": "Bearer " + token} if token else {}
    if owner:
        h["X-Trellis-Owner"] = owner
    got = b""
    try:
        c.request("GET", "/api/v1" + path, None, h)
        r = c.getresponse()
        got = str(r.status).encode() + b" "
        while len(got) < 20000:
            b = r.read1(4096)
            if not b:
                break
            got += b
    except OSError:
        pass
    c.close()
    return got.decode("utf-8", "replace")


def surfaces(jobs):
    """(name, method, path, body): what shows of jobs there may be."""
    yield from ((f"{p}", "GET", p, None) for p in ("/jobs", "/jobs?details=true&limit=1000", "/jobs?details=true&agent=jr", "/jobs?details=true&session=s1&agent=jr", "/jobs?details=true&status=FAILED,COMPLETE", f"/jobs?q={C}", f"/jobs?q={C}&details=true", f"/jobs?q={C}&limit=1", "/approvals", "/approvals?all=true", "/agents/jr/turns?limit=100", f"/agents/jr/turns?q={C}", "/agents/jr/sessions", "/agents/jr/sessions/s1", "/agents/jr", "/agents/jw", "/agents/js", "/agents", "/timers?all=true", "/spend", "/spend?agentId=jr&sessionId=s1", "/why?path=j", "/why?path=w/pay", "/values/read?path=j", "/values/inspect?path=j&budget=200000", "/values/list?path=j&limit=1000", "/values/slice?path=j&limit=1000", "/values/count?path=j&depth=3", "/values/aggregate?path=j&groupBy=input", "/values/aggregate?path=j&groupBy=output", "/values/aggregate?path=j&groupBy=error", "/values/aggregate?path=j&groupBy=input/x", "/values/read?path=g/jr/timeline", "/values/read?path=g/jp/timeline"))
    for kind, i in jobs.items():
        yield from ((f"{kind}: {p}", "GET", p.replace("ID", i), None) for p in ("/jobs/ID", "/jobs/0xID", "/jobs/ID?wait=100", "/values/read?path=j/ID", "/values/read?path=j/ID/input", "/values/read?path=j/ID/output", "/values/read?path=j/ID/error", "/values/list?path=j/ID", "/values/inspect?path=j/ID", "/values/slice?path=j/ID", "/values/aggregate?path=j/ID&groupBy=x", "/why?path=j/ID"))
        for op, input in (("job/result", {"id": i}), ("job/result", {"id": i, "wait": 50}), ("grid/job-status", {"id": i}), ("dead/show", {"id": i}), ("schema/infer", {"path": f"j/{i}"}), ("schema/validate", {"path": f"j/{i}", "schema": {"properties": {"input": {"const": 1}, "output": {"const": 1}, "error": {"const": 1}}}}), ("json/select", {"path": f"j/{i}", "select": "/input"}), ("lattice/read", {"paths": [f"j/{i}", f"j/{i}/output"]}), ("lattice/read", {"path": ["j", i, "input"]}), ("lattice/copy", {"from": f"j/{i}", "to": "w/copied"}), ("asset/pin", {"path": f"j/{i}", "name": "pinned"})):
            yield f"{kind}: {op} {list(input.values())[-1] if len(str(input)) < 80 else ''}", "POST", "/run", {"operation": "v/ops/" + op, "input": input}
    for op, input in (("dead/list", {}), ("approval/list", {"all": True}), ("agent/session-read", {"agentId": "jr", "sessionId": "s1"}), ("agent/sessions", {"agentId": "jr"}), ("venue/audit", {}), ("spend/today", {}), ("job/bulk", {"action": "cancel", "dryRun": True, "q": C}), ("agent/list", {}), ("lattice/list", {"path": "j"})):
        yield op, "POST", "/run", {"operation": "v/ops/" + op, "input": input}


def others(v, who, jobs):
    if v.mode == "jwt":
        strangers = {"another user": {"token": v.issue("acme/bob")}, "another tenant": {"token": v.issue("evil/eve")}, "no token": {}}
    else:
        strangers = {"another user": {"owner": "local/bob"}, "another tenant": {"owner": "evil/eve"}, "like hers": {"owner": "local/Me"}}
    for name, he in strangers.items():
        for what, method, path, body in surfaces(jobs):
            s, said = v.http(method, path, body, timeout=10, **he)
            text = json.dumps(said).replace(json.dumps(body) if body else "\0", "")
            check(T, f"{name}: {what} has nothing of it and is no error of the server", C + "-" not in text and s < 500, (s, text[:300]))
        for kind, i in jobs.items():
            got = stream(v, f"/jobs/{i}/sse", **he)
            check(T, f"{name}: the stream of the {kind} job is no stream", got[:3] in ("401", "403", "404") and C not in got, got[:200])
    s, said = v.http("GET", "/metrics", root=True)
    check(T, "the metrics name no agent, job or text", C not in str(said) and not any(i in str(said) for i in jobs.values()), str(said)[:300])


def readers(v, who, jobs):
    i = jobs["complete"]
    narrow = {"nothing": [], "jobs": ["j:crud/read"], "this job": [f"j/{i}:crud/read"], "everything on jobs": ["j:*"], "jobs and public": ["j:crud/read", "w/pub:crud/read"], "jobs and what is beside": ["j:*", "w/copied:crud", "o:crud", "a:*"], "agents": ["g:crud/read"], "one agent": ["g/jr:crud/read"], "jobs and agents": ["j:crud/read", "g:crud/read"], "all on agents": ["g:*", "j:*"], "who asks": ["g/jr:agent/request", "j:crud/read"]}
    for name, att in narrow.items():
        t = v.issue("acme/ann", att)
        for what, method, path, body in surfaces(jobs):
            s, said = v.http(method, path, body, timeout=10, token=t)
            text = json.dumps(said)
            # Who may approve a call sees that call.
            if name in ("everything on jobs", "jobs and what is beside", "all on agents") and ("approval" in what or what.startswith("waiting: ")):
                text = text.replace(C + "-title", "").replace(C + "-prompt", "")
            check(T, f"a reader of {name}: {what} hides what he could not reach", C + "-" not in text and s < 500, (s, text[:300]))
            if body and body["operation"].endswith(("copy", "pin")) and s == 200:
                s, said = v.read("w/copied" if body["operation"].endswith("copy") else "o/pinned", **who)
                check(T, f"a reader of {name}: {what} copies nothing of it", C + "-" not in json.dumps(said), said)
        for kind, j in jobs.items():
            got = stream(v, f"/jobs/{j}/sse", t)
            check(T, f"a reader of {name}: the stream of the {kind} job hides it", C not in got, got[:300])
    # What he may: a job that could reach nothing.
    v.agent(["plain"], name="jn", **who)
    s, j = v.task("jn", "seen-input", body={"context": []}, **who)
    s, said = v.http("GET", f"/jobs/{j['job']}", token=v.issue("acme/ann", ["j:crud/read"]))
    check(T, "a job without any authority is shown to a reader of jobs", said.get("input") == "seen-input" and said.get("output") == "plain", said)
    # Agents that are asked with narrow rights, and read it for the asker.
    t = v.issue("acme/ann", ["g/jx:agent/request", "j:crud/read", "g:crud/read"])
    calls = [call for j in list(jobs.values())[:6] for call in (("lattice_read", {"path": f"j/{j}"}), ("job_result", {"id": j}), ("lattice_inspect", {"path": f"j/{j}"}), ("context_load", {"path": f"j/{j}/output"}), ("job_run", {"operation": "v/ops/job/result", "input": {"id": j}}))]
    v.agent([calls, "done"], {"context": [{"ref": f"j/{i}", "label": "job"}, {"ref": f"j/{i}/output", "label": "out"}, {"op": "v/ops/job/result", "input": {"id": i}, "label": "op"}, {"job": i, "label": "kind"}] if False else [{"ref": f"j/{i}", "label": "job"}, {"ref": f"j/{i}/output", "label": "out"}, {"op": "v/ops/job/result", "input": {"id": i}, "label": "op"}]}, name="jx", **who)
    m = v.last_model
    s, said = v.task("jx", "go", body={"loads": [{"path": f"j/{i}", "budget": 5000}]}, token=t)
    seen = json.dumps(v.model.seen.get(m, []))
    check(T, "an agent that a reader asks is shown nothing of it, by entries, loads or calls", C + "-" not in seen, (s, said, seen[seen.find(C) - 200:seen.find(C) + 200]))


def submitters(v, who):
    ann = who["token"]
    v.agent([f"{C}-mine"] * 50, name="jm", **who)
    rights = ["g/jm:agent/request"]
    t = v.issue("acme/ann", rights)
    s, j = v.task("jm", C + "-input", token=t)
    i = j.get("job")
    s, k = v.http("POST", "/invoke", {"operation": "v/ops/test/echo", "input": {"x": C + "-inv"}, "wait": 3000}, token=t)
    for what, path in (("its record", f"/jobs/{i}"), ("its list", "/jobs?details=true"), ("what it finds", f"/jobs?details=true&q={C}-input"), ("a wait", f"/jobs/{i}?wait=500"), ("its operation", f"/jobs/{k.get('id')}")):
        for name, token in (("the same token", t), ("a renewed one", v.issue("acme/ann", rights)), ("the owner", ann)):
            s, said = v.http("GET", path, token=token)
            check(T, f"who asked reads {what} with {name}", s == 200 and C + "-in" in json.dumps(said), (s, said))
    for name, att in {"other rights": ["g/jm:agent"], "more": rights + ["w/x:crud/read"], "less": [], "others": ["w:crud"], "the same twice": rights * 2, "read on another job": rights + ["j/" + "0" * 32 + ":crud/read"]}.items():
        other = v.issue("acme/ann", att)
        for path in (f"/jobs/{i}", f"/jobs/{k.get('id')}", "/jobs?details=true", f"/jobs?q={C}-input", f"/jobs/{i}/sse"):
            s, said = v.http("GET", path, token=other, timeout=3)
            if name == "the same twice":
                check(T, f"the rights named twice: {path[:14]} is answered", s in (200, 403, 404), (s, said))
            else:
                check(T, f"who asked, with {name}: {path[:14]} isn't read without crud/read", C not in json.dumps(said) and s < 500, (s, said))
        for method, path, body in (("PUT", f"/jobs/{i}/delete", None), ("PUT", f"/jobs/{i}/redrive", None), ("PUT", f"/jobs/{i}/cancel", {}), ("POST", f"/jobs/{i}", {"x": 1})):
            s, said = v.http(method, path, body, token=other)
            check(T, f"with {name}: {path[-7:]} is denied", s in (403, 404) and C not in json.dumps(said), (s, said))
    s, said = v.http("GET", f"/jobs/{i}", token=ann)
    check(T, "it is still there", said.get("status") == "COMPLETE", said)


def oracles(v, who, jobs):
    """A job that is there and one that isn't are told apart by nobody who may not read it."""
    none = "f" * 32
    for name, att in {"nothing": [], "agents": ["g:*"], "one other job": ["j/" + "e" * 32 + ":*"], "data": ["w:crud"]}.items():
        t = v.issue("acme/ann", att)
        for kind in ("complete", "failed", "running", "invoked"):
            i = jobs[kind]
            for method, path, body in (("GET", "/jobs/ID", None), ("GET", "/jobs/ID?wait=100", None), ("GET", "/jobs/ID/sse", None), ("PUT", "/jobs/ID/cancel", {}), ("PUT", "/jobs/ID/pause", None), ("PUT", "/jobs/ID/resume", None), ("PUT", "/jobs/ID/delete", None), ("PUT", "/jobs/ID/redrive", None), ("POST", "/jobs/ID", {"a": 1}), ("POST", "/jobs/ID", None), ("GET", "/values/read?path=j/ID", None), ("GET", "/values/list?path=j/ID", None)):
                a, b = v.http(method, path.replace("ID", i), body, token=t, timeout=4), v.http(method, path.replace("ID", none), body, token=t, timeout=4)
                check(T, f"with {name}: {method} {path} of the {kind} job is answered as for none", json.dumps(a).replace(i, "ID") == json.dumps(b).replace(none, "ID"), (a, b))
            for op, input in (("job/result", {}), ("job/pause", {}), ("job/message", {"message": 1}), ("dead/show", {}), ("dead/redrive", {}), ("agent/cancel-task", {"agentId": "jr"}), ("agent/complete-task", {"agentId": "jr", "result": 1}), ("agent/fail-task", {"agentId": "jr", "error": "x"})):
                key = "taskId" if op.startswith("agent/") else "id"
                if name == "agents" and op.startswith("agent/"):
                    continue
                a, b = v.run(op, {**input, key: i}, token=t), v.run(op, {**input, key: none}, token=t)
                check(T, f"with {name}: {op} of the {kind} job is answered as for none", json.dumps(a).replace(i, "ID") == json.dumps(b).replace(none, "ID"), (a, b))
    # Texts looked for by one who sees records but not their texts: neither hits nor counts nor pages tell.
    t = v.issue("acme/ann", ["j:crud/read"])
    for q in (C, C + "-input", C + "-output", C + "-error"):
        for path in ("/jobs?q=%s", "/jobs?q=%s&details=true", "/jobs?q=%s&status=COMPLETE,FAILED", "/jobs?q=%s&limit=1", "/jobs?q=%s&agent=jr", "/agents/jr/turns?q=%s"):
            a, b = v.http("GET", path % q, token=t), v.http("GET", path % "nowhere-at-all", token=t)
            check(T, f"{path % q} is answered as for a text that is nowhere", json.dumps(a[1]).replace(q, "") == json.dumps(b[1]).replace("nowhere-at-all", ""), (a, b))
        for action in ("cancel", "redrive"):
            a = v.http("POST", "/jobs", {"action": action, "dryRun": True, "q": q}, token=t)
            check(T, f"{action} of those with {q} counts none", a[1].get("matched", 0) == 0, a)
            a = v.http("POST", "/jobs", {"action": action, "expected": 3, "q": q}, token=t)
            b = v.http("POST", "/jobs", {"action": action, "expected": 3, "q": "nowhere-at-all"}, token=t)
            check(T, f"{action} with a wrong number tells nothing of {q}", json.dumps(a) == json.dumps(b), (a, b))
    for name, att in {"nothing": [], "to cancel": ["j:job/cancel"], "to redrive": ["j:job/redrive"], "agents": ["g:*"]}.items():
        t = v.issue("acme/ann", att)
        for action in ("cancel", "redrive"):
            s, said = v.http("POST", "/jobs", {"action": action, "dryRun": True}, token=t)
            check(T, f"with rights on {name} a dry run of {action} counts no jobs that aren't read", s in (401, 403) or said.get("matched") == 0, (s, said))
