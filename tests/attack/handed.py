"""Attacks what is handed on: what narrowed children, delegates and readers reach through instances, output paths, summaries, forks, sections that were
handed over, `why`, ledgers, transcripts, replays and approvals of others; approvals with edited arguments, sections and by others; rights that
are taken back while a call, a child or an approval is under way. Expected: never the canary, never more than was held, 401/403/404 to others."""

import json
import threading
import time

from venue import check

T = "handed"
PAY = "canary-pay"


def items(v, token, **k):
    return v.http("GET", "/approvals?limit=200", token=token, **k)[1].get("items", [])


def approval(v, token, job, seconds=8):
    for _ in range(int(seconds * 10)):
        w = next((a for a in items(v, token) if a.get("job") == job), None)
        if w:
            return w
        time.sleep(0.1)
    return {}


def attack(v):
    ann, bob, eve, root = v.issue("acme/ann"), v.issue("acme/bob"), v.issue("evil/eve"), v.issue("acme/root")
    v.write("w/pay", {"s": PAY, "list": [PAY]}, token=ann)
    v.write("w/pub", {"ok": 1}, token=ann)
    sees = lambda model: json.dumps(v.model.seen.get(model, []), ensure_ascii=False)
    # A child that may only w/pub, asked by a parent that has read w/pay, in every way that something could go with it.
    grabs = [("lattice_read", {"path": "w/pay"}), ("lattice_inspect", {"path": "w"}), ("lattice_read", {"path": "g/boss/timeline"}), ("lattice_read", {"path": "j"}), ("job_run", {"operation": "v/ops/agent/session-read", "input": {"agentId": "boss", "sessionId": "SES"}}), ("job_run", {"operation": "v/ops/agent/context", "input": {"agentId": "boss", "sessionId": "SES"}}), ("job_run", {"operation": "v/ops/agent/info", "input": {"agentId": "boss"}}), ("job_run", {"operation": "v/ops/approval/list", "input": {"all": True}}), ("job_run", {"operation": "v/ops/agent/fork", "input": {"agentId": "boss", "to": "bossfork", "timeline": True}}), ("job_run", {"operation": "v/ops/agent/session-fork", "input": {"agentId": "boss", "sessionId": "SES", "at": 1, "to": "f1"}}), ("job_run", {"operation": "v/ops/job/result", "input": {"id": "JOB"}}), ("job_run", {"operation": "v/ops/job/message", "input": {"id": "JOB", "message": "steer"}}),
             ("job_run", {"operation": "v/ops/agent/compact-session", "input": {"agentId": "boss", "sessionId": "SES", "summary": "evil"}}), ("job_run", {"operation": "v/ops/agent/complete-task", "input": {"taskId": "JOB", "result": "evil"}}), ("job_run", {"operation": "v/ops/spend/today", "input": {}}), ("job_run", {"operation": "v/ops/timer/list", "input": {}}), ("job_run", {"operation": "v/ops/policy/show", "input": {}}), ("context_load", {"path": "w/pay"}), ("lattice_write", {"path": "w/pub/out", "value": "child"}), ("agent_create", {"agentId": "bychild", "config": {"model": {"provider": "local", "name": "jwt-bychild"}, "context": ["w/pay"]}}), ("agent_request", {"agentId": "bychild", "input": 1, "wait": 3000})]
    v.model.says("jwt-bychild", [[("lattice_read", {"path": "w/pay"})], "done"])
    caps = [{"with": "w/pub", "can": "crud"}, {"with": "g", "can": "*"}, {"with": "j", "can": "crud"}, {"with": "v", "can": "*"}]
    for name, tool, call in (("a request", "v/ops/agent/request", ("agent_request", {"agentId": "kid", "input": "go", "wait": 6000})), ("a delegate", {"delegate": "kid"}, ("kid", {"q": 1})), ("a delegate with sections", {"delegate": "kid", "scopes": {"const": ["input", "context/pub"]}}, ("kid", {"q": 1})), ("sections of its choice", {"operation": "v/ops/agent/request", "scopes": {"enum": ["input", "context/pub"]}}, ("agent_request", {"agentId": "kid", "input": "go", "wait": 6000, "_scopes": ["transcript", "context/pay", "input", "loads/w/pay", "state", "inbox", "pending"]})), ("an anonymous one", {"delegate": "anonymous", "name": "anon", "description": "does it"}, ("anon", {"q": 1})),
                             ("an instance of another", {"delegate": "kid", "scopes": {"const": ["context/pay", "context/pub"]}}, ("kid", {"q": 1, "_instance": "two"})), ("delegable", "v/ops/agent/request", ("agent_request", {"agentId": "kid", "input": "go", "wait": 6000, "context": [{"with": "", "can": "*"}]}))):
        fill = lambda b: [(t, json.loads(json.dumps(x).replace("SES", ses[0]).replace("JOB", ses[1]))) for t, x in grabs]
        ses = ["none", "0" * 32]
        v.agent([fill, "kid done"], {"caps": caps}, name="kid", token=ann)
        kid = v.last_model
        entries = [{"ref": "w/pub", "label": "pub"}, {"ref": "w/pay", "label": "pay", **({"instance": "one"} if "instance" in name else {})}]
        v.agent([[("lattice_read", {"path": "w/pay"})], lambda b: [call], "boss done", "boss done"], {"tools": [tool], "context": entries, **({"delegable": caps} if "delegable" in name else {})}, name="boss", token=ann)
        boss = v.last_model
        s, job = v.http("POST", "/agents/boss/tasks", {"input": "go", "sessionId": "s1"}, token=ann)
        ses[:] = ["s1", job.get("job", "")]
        s, end = v.http("GET", f"/jobs/{job.get('job')}?wait=15000", token=ann)
        check(T, f"{name}: the parent's task ends by itself", end.get("status") == "COMPLETE" and end.get("output") == "boss done", end)
        handed = "sections" not in name and "instance" not in name
        check(T, f"{name}: the child sees nothing of w/pay", PAY not in sees(kid) and PAY not in sees("jwt-bychild"), sees(kid)[-900:])
        check(T, f"{name}: nor is it written where it may read", PAY not in json.dumps(v.read("w/pub", token=ann)[1]))
        check(T, f"{name}: the boss's conversation is as it was", "evil" not in json.dumps(v.http("GET", "/agents/boss/sessions/s1", token=ann)[1]), "")
        for a in ("bossfork", "bychild", "kid", "boss"):
            v.http("DELETE", f"/agents/{a}?remove=true", token=ann)
    # The parent's output goes where the child may read: only what it was told to.
    for out in ("w/pay/out", "w/pub/../pay", "g/boss/x", "s/KEY", "o/x", ["w", "pay"], "w", "/acme/bob/w/x", "j/x", "c/x", "n/x"):
        t = v.issue("acme/ann", ["g:*", "w/pub:crud"])
        v.agent(["written"], {"caps": caps}, name="outer", token=ann)
        s, job = v.http("POST", "/agents/outer/tasks?wait=4000", {"input": 1, "outputPath": out}, token=t)
        check(T, f"outputPath {out}: nothing is written beyond the rights", v.read("w/pay", token=ann)[1].get("value") == {"s": PAY, "list": [PAY]} and not v.read("w/x", token=bob)[1].get("exists"), (s, job))
        check(T, f"outputPath {out}: refused, or the task fails with CAP_DENIED", 400 <= s < 500 or job.get("errorCode") == "CAP_DENIED" or (out == "o/x" and job.get("status") == "FAILED"), (s, job))
    # Readers of history: why, ledger, transcript, replay, summary, fork of a turn that read w/pay.
    v.agent([[("lattice_read", {"path": "w/pay"}), ("lattice_read", {"path": "w/pub"})], PAY + " said", "ok"], {"context": [{"ref": "w/pay", "label": "pay"}], "systemPrompt": "x {{w/pay}}"}, name="hist", token=ann)
    s, job = v.task("hist", "first", body={"sessionId": "h"}, token=ann)
    v.task("hist", "second", body={"sessionId": "h"}, token=ann)
    v.run("agent/rename-session", {"agentId": "hist", "sessionId": "h", "title": PAY + "-title"}, token=ann)
    readers = {"reads the agent": ["g/hist:crud/read"], "all of the agent": ["g/hist:*"], "agent and jobs": ["g/hist:*", "j:*"], "agent, jobs, w/pub": ["g/hist:*", "j:*", "w/pub:*", "v:*"], "all but w": ["g:*", "j:*", "o:*", "a:*", "v:*", "n:*", "c:*", "t:*"], "below it": ["g/hist:*", "w/pay/s:crud/read"]}
    for who, att in readers.items():
        t = v.issue("acme/ann", att)
        for method, path, body in (("GET", "/why?path=w/pay", None), ("GET", "/why?path=w/pay&agent=hist", None), ("GET", "/why?path=w", None), ("GET", "/agents/hist/turns", None), ("GET", "/agents/hist/turns?q=" + PAY, None), ("GET", "/agents/hist/turns/h/1", None), ("GET", "/agents/hist/turns/h/2?prompt=true", None), ("POST", "/agents/hist/turns/h/2/replay", {}), ("POST", "/agents/hist/turns/h/2/replay", {"without": ["w/pub"]}), ("GET", "/agents/hist/sessions/h", None), ("POST", "/agents/hist/context", {"session": "h"}), ("POST", "/agents/hist/context", {"session": "h", "task": "x"}), ("GET", "/values/read?path=g/hist/timeline", None), ("GET", "/values/inspect?path=g/hist", None), ("GET", "/values/slice?path=g/hist/timeline", None), ("GET", f"/jobs/{job['job']}", None), ("GET", "/jobs?q=" + PAY + "&details=true", None), ("GET", "/jobs?agent=hist&details=true", None), ("GET", f"/values/read?path=j/{job['job']}", None), ("POST", "/run", {"operation": "v/ops/agent/session-read", "input": {"agentId": "hist", "sessionId": "h", "archiveDepth": 1}}), ("POST", "/run", {"operation": "v/ops/agent/reload-context", "input": {"agentId": "hist", "sessionId": "h"}}), ("POST", "/agents/hist/sessions/h/fork", {"at": 1, "to": "hf"}), ("GET", "/agents/hist/sessions/hf", None), ("POST", "/agents/hist/fork", {"to": "histf", "timeline": True}), ("GET", "/agents/histf/sessions/h", None), ("GET", "/agents/histf/turns/h/1?prompt=true", None), ("POST", "/agents/histf/tasks?wait=3000", {"input": "what do you know?", "sessionId": "h"})):
            s, said = v.http(method, path, body, token=t)
            text = json.dumps(said).replace("path=w/pay", "")
            secret = text.replace(PAY + "-title", "")
            check(T, f"{who}: {method} {path[:45]} shows nothing that it could not read", PAY not in secret and s < 500, (s, text[:500]))
        v.http("DELETE", "/agents/histf?remove=true", token=ann)
    # Approvals: by others, edited, with other sections, twice, of another's.
    ask = {"tools": [{"operation": "v/ops/lattice/write", "approval": "ask"}], "defaultTools": False}
    v.agent([[("lattice_write", {"path": "w/pub/asked", "value": PAY})]], ask, name="asker", token=ann)
    for who, token, may in (("bob", bob, False), ("eve", eve, False), ("nothing", v.issue("acme/ann", []), False), ("reader", v.issue("acme/ann", ["g/asker:crud/read"]), False), ("w only", v.issue("acme/ann", ["w:*"]), False), ("another agent", v.issue("acme/ann", ["g/other:*"]), False)):
        s, job = v.http("POST", "/agents/asker/tasks", {"input": 1}, token=ann)
        w = approval(v, ann, job["job"])
        mine = items(v, token)
        check(T, f"{who}: the list shows nothing of it", PAY not in json.dumps(mine), mine)
        for body in ({"approve": {}}, {"reject": {"reason": "x"}}, {"approve": {"arguments": {"path": "w/pub/evil", "value": 1}}}, {"answers": {"a": 1}}):
            s, said = v.http("POST", f"/approvals/{w['id']}", body, token=token)
            check(T, f"{who}: {list(body)[0]} of ann's approval is denied", s in (401, 403, 404) and PAY not in json.dumps(said), (s, said))
            s, said = v.run("approval/" + {"approve": "approve", "reject": "reject", "answers": "answer"}[list(body)[0]], {"id": w["id"], **({"answers": {}} if "answers" in body else {})}, token=token)
            check(T, f"{who}: {list(body)[0]} by operation is denied", s in (401, 403, 404), (s, said))
        check(T, f"{who}: it still waits", v.http("GET", f"/jobs/{job['job']}", token=ann)[1].get("status") == "INPUT_REQUIRED")
        v.http("PUT", f"/jobs/{job['job']}/cancel", {}, token=ann)
    # A narrow person edits a call beyond his own rights, and beyond the agent's.
    narrow = v.issue("acme/ann", ["g/asker:*", "w/pub:crud"])
    for i, arguments in enumerate(({"path": "w/pay", "value": "edited"}, {"path": "w/pub/../pay", "value": "edited"}, {"path": ["w", "pay"], "value": "edited"}, {"path": "w", "value": {}}, {"path": "/acme/bob/w/x", "value": "edited"}, {"path": "w/pub/x", "value": "edited", "nope": 1}, {"path": 7, "value": 1}, {}, [], None)):
        for token, who in ((narrow, "a narrow person"), (ann, "ann")):
            v.agent([[("lattice_write", {"path": "w/pub/asked", "value": 1})], "done"], {**ask, "caps": caps}, name="asker2", token=ann)
            s, job = v.http("POST", "/agents/asker2/tasks", {"input": 1}, token=v.issue("acme/ann", ["g:*", "w/pub:crud", "approval:*"]))
            w = approval(v, ann, job.get("job"))
            s, said = v.http("POST", f"/approvals/{w.get('id')}", {"approve": {"arguments": arguments}}, token=token)
            s2, end = v.http("GET", f"/jobs/{job.get('job')}?wait=5000", token=ann)
            check(T, f"{who}: edit {i} changes nothing beyond", v.read("w/pay", token=ann)[1].get("value") == {"s": PAY, "list": [PAY]} and not v.read("w/x", token=bob)[1].get("exists"), (s, said, end))
            check(T, f"{who}: edit {i} has an answer", s and s < 500, (s, said))
            if s >= 400:
                v.http("PUT", f"/jobs/{job.get('job')}/cancel", {}, token=ann)
    # Taken back during the run: a call that waits, a child under way, a write that is not committed, an approval.
    for i, revoke in enumerate(({"path": "w/mid"}, {"path": "w/mid", "holder": "agent:midboss"}, {"holder": "agent:midkid"}, {"path": ["w", "mid"]})):
        v.write("w/mid", {"s": "canary-mid"}, token=ann)
        v.agent([lambda b: (time.sleep(1.5), [("lattice_read", {"path": "w/mid"}), ("lattice_write", {"path": "w/mid/late", "value": 1})])[1], "kid done"], {"caps": [{"with": "w/mid", "can": "crud"}]}, name="midkid", token=ann)
        kid = v.last_model
        v.agent([[("lattice_write", {"path": "w/mid/early", "value": 1}), ("agent_request", {"agentId": "midkid", "input": 1, "wait": 5000})], "boss done", "boss done"], {}, name="midboss", token=ann)
        s, job = v.http("POST", "/agents/midboss/tasks", {"input": 1}, token=ann)
        time.sleep(0.9)
        s, said = v.run("policy/revoke", revoke, token=ann)
        check(T, f"revocation {i} is taken", s == 200, (s, said))
        s, end = v.http("GET", f"/jobs/{job['job']}?wait=12000", token=ann)
        check(T, f"revocation {i}: the job ends", end.get("status") in ("COMPLETE", "FAILED"), end)
        v.http("PUT", "/agents/midkid/suspend", {}, token=ann)
        check(T, f"revocation {i}: the child reads nothing of it", "canary-mid" not in sees(kid), sees(kid)[-500:])
        check(T, f"revocation {i}: the child writes nothing", not v.read("w/mid/late", token=ann)[1].get("exists"), v.read("w/mid", token=ann))
        for r in v.run("policy/show", {}, token=ann)[1].get("revocations", []):
            v.run("policy/restore", {"id": r["id"]}, token=root, owner="acme/ann")
        v.http("DELETE", "/agents/midkid?remove=true", token=ann)
        v.http("DELETE", "/agents/midboss?remove=true", token=ann)
        v.run("lattice/delete", {"path": "w/mid"}, token=ann)
    # Fifty answers to one approval while its path is taken back.
    v.agent([lambda b: "done" if any(m["role"] == "tool" for m in b["messages"]) else [("lattice_append", {"path": "w/race", "value": 1})]], {"tools": [{"operation": "v/ops/lattice/append", "approval": "ask"}], "defaultTools": False}, name="racer", token=ann)
    for i in range(3):
        s, job = v.http("POST", "/agents/racer/tasks", {"input": 1}, token=ann)
        w = approval(v, ann, job["job"])
        ts = [threading.Thread(target=lambda n=n: v.http("POST", f"/approvals/{w['id']}", {"approve": {}}, token=ann) if n % 10 else v.run("policy/revoke", {"path": "w/race"}, token=ann)) for n in range(30)]
        [t.start() for t in ts]
        [t.join() for t in ts]
        s, end = v.http("GET", f"/jobs/{job['job']}?wait=6000", token=ann)
        check(T, f"answers and revocations at once {i}: the job ends, the append is made once at most", end.get("status") in ("COMPLETE", "FAILED") and (v.read("w/race", token=ann)[1].get("value") or []) in ([], [1]), (end, v.read("w/race", token=ann)))
        for r in v.run("policy/show", {}, token=ann)[1].get("revocations", []):
            v.run("policy/restore", {"id": r["id"]}, token=root, owner="acme/ann")
        v.run("lattice/delete", {"path": "w/race"}, token=ann)
