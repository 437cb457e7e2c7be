"""Attacks approvals and budgets: answers twice, by the wrong digest, with other arguments, injected ones, after a revocation; questions
with no such answers; budgets of nothing, split over children, in parallel; limits raised by the agent itself. Expected: an answer counts
once and changes only what a person may change; a budget is the most that is spent."""

import json
import threading
import time

from venue import check

T = "people"


def waits(v, job):
    for _ in range(60):
        s, said = v.http("GET", "/approvals")
        for a in said if isinstance(said, list) else said.get("items") or said.get("approvals") or []:
            if a.get("job") == job:
                return a
        time.sleep(0.1)
    return {}


def ask(v, call=None, config=None, body=None):
    a = v.agent([[call or ("lattice_write", {"path": "w/p", "value": 1})], "done"], {"tools": [{"operation": "v/ops/lattice/write", "approval": "ask"}, "v/ops/human/ask"], "defaultTools": False, **(config or {})})
    s, job = v.http("POST", f"/agents/{a}/tasks", {"input": 1, **(body or {})})
    return a, job, waits(v, job.get("job"))


def attack(v):
    a, job, w = ask(v)
    check(T, "a call waits for a person", w.get("id"), w)
    for name, body in {"nothing": {}, "both": {"approve": {}, "reject": {}}, "all": {"approve": {}, "answers": {}}, "approve true": {"approve": True}, "wrong digest": {"approve": {}, "digest": "0" * 64}, "digest list": {"approve": {}, "digest": []}, "digest null": {"approve": {}, "digest": 7}, "answers to a call": {"answers": {"a": "x"}}, "arguments list": {"approve": {"arguments": ["w/x"]}}, "arguments text": {"approve": {"arguments": "{}"}}, "arguments wrong": {"approve": {"arguments": {"nope": 1}}}, "arguments empty": {"approve": {"arguments": {}}},
                       "operation": {"approve": {"operation": "v/ops/lattice/delete"}}, "tool": {"approve": {"tool": "x"}}, "by": {"approve": {}, "by": "root"}, "scopes": {"approve": {"scopes": ["transcript"]}}, "scopes text": {"approve": {"scopes": "input"}}, "verdict": {"verdict": "approved"}}.items():
        s, said = v.http("POST", f"/approvals/{w.get('id')}", body)
        check(T, f"an answer with {name} is refused", 400 <= s < 500, (s, said))
    s, still = v.http("GET", f"/jobs/{job.get('job')}")
    check(T, "after all of these it still waits", still.get("status") == "INPUT_REQUIRED", still)
    check(T, "and nothing is written", v.read("w/p")[1].get("exists") is False)
    got = []
    threads = [threading.Thread(target=lambda i=i: got.append(v.http("POST", f"/approvals/{w['id']}", {"approve": {}} if i % 2 else {"reject": {"reason": "no"}}))) for i in range(10)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    end = v.http("GET", f"/jobs/{job['job']}?wait=6000")[1]
    check(T, "ten answers at once: one counts", sum(x[0] < 300 for x in got) in (1, 5), sorted(x[0] for x in got))
    check(T, "and the task ends", end.get("status") == "COMPLETE", end)
    s, said = v.http("POST", f"/approvals/{w['id']}", {"approve": {"arguments": {"path": "w/late", "value": 1}}})
    check(T, "a late answer with other arguments is refused", 400 <= s < 500 and v.read("w/late")[1].get("exists") is False, (s, said))
    # Edited out of the agent's authority; injected arguments; fixed ones.
    a, job, w = ask(v, config={"caps": [{"with": "w/ok", "can": "crud"}]}, call=("lattice_write", {"path": "w/ok/a", "value": 1}))
    s, said = v.http("POST", f"/approvals/{w.get('id')}", {"approve": {"arguments": {"path": "w/pay-edit", "value": 1}}})
    v.http("GET", f"/jobs/{job['job']}?wait=5000")
    check(T, "an edit does not leave the agent's authority", v.read("w/pay-edit")[1].get("exists") is False, (s, said))
    a, job, w = ask(v, config={"toolArgInjection": {"lattice_write": {"path": "target"}}, "contextMapping": {"target": "session.target"}}, call=("lattice_write", {"value": 1}), body={"sessionContext": {"target": "w/inj/fixed"}})
    if w.get("id"):
        s, said = v.http("POST", f"/approvals/{w['id']}", {"approve": {"arguments": {"path": "w/inj/other", "value": 2}}})
        v.http("GET", f"/jobs/{job['job']}?wait=5000")
        check(T, "an edit does not change what is injected", v.read("w/inj/other")[1].get("exists") is False, (s, said))
    else:
        check(T, "an injected call waits", False, v.http("GET", f"/jobs/{job.get('job')}"))
    # Revoked in between.
    a, job, w = ask(v, call=("lattice_write", {"path": "w/gone/x", "value": 1}))
    v.run("policy/revoke", {"path": "w/gone"})
    s, said = v.http("POST", f"/approvals/{w.get('id')}", {"approve": {}})
    v.http("GET", f"/jobs/{job['job']}?wait=5000")
    check(T, "what was revoked in between is not written", v.read("w/gone/x")[1].get("exists") is False, (s, said))
    # The agent answers itself.
    v.run("policy/approvals", {"caps": [{"with": "w/prod", "can": "crud/write"}]})
    for i, call in enumerate([("lattice_write", {"path": "w/prod/x", "value": 1}), ("lattice_write", {"path": ["w", "prod", "x"], "value": 1}), ("lattice_write", {"path": "/w//prod/x", "value": 1}), ("lattice_write", {"path": "w", "value": {"prod": {"x": 1}}}), ("lattice_write", {"path": "w/prod", "value": {"x": 1}}), ("job_run", {"operation": "v/ops/lattice/write", "input": {"path": "w/prod/x", "value": 1}}), ("job_run", {"operation": "v/ops/covia/write", "input": {"path": "w/prod/x", "value": 1}}), ("job_run", {"operation": "v/ops/job/run", "input": {"operation": "v/ops/lattice/write", "input": {"path": "w/prod/x", "value": 1}}}), ("job_run", {"operation": "v/ops/lattice/copy", "input": {"from": "w/ok", "to": "w/prod/x"}}), ("job_run", {"operation": "v/ops/policy/approvals", "input": {"caps": []}}), ("lattice_append", {"path": "w/prod/x", "value": 1}), ("lattice_delete", {"path": "w/prod"}), ("agent_request", {"agentId": "writer", "input": 1, "wait": 3000})]):
        if i == 12:
            v.agent([[("lattice_write", {"path": "w/prod/x", "value": 1})], "done"], name="writer")
        agent = v.agent([[call], "done"], {"caps": [{"with": "w", "can": "crud"}, {"with": "g", "can": "agent"}]} if i != 12 else {})
        s, job = v.task(agent, wait=2500)
        found = v.read("w/prod/x")[1]
        check(T, f"policy: call {i} {call[0]} {str(call[1])[:70]} writes nothing unasked", found.get("exists") is False or "agent_append" in call[0] and False, (job, found))
        v.run("lattice/delete", {"path": "w/prod"})
    check(T, "the policy is as it was", "w/prod" in json.dumps(v.run("policy/show", {})[1]), v.run("policy/show", {}))
    v.run("policy/approvals", {"caps": []})
    # Questions.
    a, job, w = ask(v, call=("human_ask", {"title": "T", "asks": [{"id": "size", "type": "choice", "prompt": "p", "choices": ["S", "L"]}, {"id": "ok", "type": "approval", "prompt": "q"}]}))
    check(T, "a question waits", w.get("id"), v.http("GET", f"/jobs/{job.get('job')}"))
    for name, answers in {"none": {}, "one": {"size": "L"}, "other choice": {"size": "XXL", "ok": True}, "other type": {"size": "L", "ok": "maybe"}, "more": {"size": "L", "ok": True, "extra": 1}, "list": ["L", True], "deep": {"size": {"a": [1]}, "ok": True}, "null": {"size": None, "ok": None}}.items():
        s, said = v.http("POST", f"/approvals/{w.get('id')}", {"answers": answers})
        check(T, f"answers with {name} are refused", 400 <= s < 500, (s, said))
    s, said = v.http("POST", f"/approvals/{w.get('id')}", {"approve": {}})
    check(T, "a question can't be approved", 400 <= s < 500, (s, said))
    s, said = v.http("POST", f"/approvals/{w.get('id')}", {"answers": {"size": "L", "ok": True}})
    check(T, "good answers are taken", s == 200, (s, said))
    # Budgets.
    more = [[("lattice_read", {"path": "w/ok"})]] * 60
    for body, most in (({"budget": {"turns": 3}}, 3), ({"budget": {"tokens": 40}}, 4), ({"budget": {"turns": 1}}, 1), ({"budget": {"wallClock": 1}}, 60)):
        agent = v.agent(more)
        m = v.last_model
        s, job = v.task(agent, body=body, wait=9000)
        check(T, f"{body} ends", job.get("status") == "FAILED" and job.get("errorCode") in ("BUDGET_EXCEEDED", "LIMIT_REACHED"), job)
        check(T, f"{body} makes {most} calls at most", len(v.model.seen.get(m, [])) <= most, len(v.model.seen.get(m, [])))
    for budget in ({"turns": 0}, {"tokens": 0}, {"cost": 0}, {"wallClock": 0}):
        s, job = v.task(v.agent(["x"]), body={"budget": budget}, wait=3000)
        check(T, f"a budget of {budget} is refused or ends at once", 400 <= s < 500 or job.get("status") == "FAILED", (s, job))
    # Children share it; a child can't ask for more.
    kid = v.agent(more, name="kid")
    mk = v.last_model
    parent = v.agent([[("agent_request", {"agentId": "kid", "input": i, "wait": 10, "budget": {"turns": 999, "tokens": 99999999}}) for i in range(8)], "waiting", "waiting"] + ["fine"] * 9)
    s, job = v.task(parent, body={"budget": {"turns": 6}}, wait=9000)
    time.sleep(2)
    check(T, "eight children with budgets of their own spend no more than the request's", len(v.model.seen.get(mk, [])) <= 6, len(v.model.seen.get(mk, [])))
    v.model.seen.pop(mk, None)
    parent = v.agent([[("agent_message", {"agentId": "kid", "message": i}) for i in range(8)], "fine"])
    s, job = v.task(parent, body={"budget": {"turns": 4}}, wait=6000)
    time.sleep(3)
    check(T, "messages spend no more than the request's budget", len(v.model.seen.get(mk, [])) <= 60, len(v.model.seen.get(mk, [])))
    agent = v.agent([[("agent_update", {"agentId": "greedy", "config": {"limits": {"turns": 1000}}}), ("job_run", {"operation": "v/ops/agent/update", "input": {"agentId": "greedy", "config": {"limits": {"turns": 1000}}}})]] * 40, {"limits": {"turns": 5}, "tools": ["v/ops/agent/update"], "caps": [{"with": "w", "can": "crud"}]}, name="greedy")
    s, job = v.task(agent, wait=8000)
    check(T, "an agent does not raise its own limit", len(v.model.seen.get(v.last_model, [])) <= 6, len(v.model.seen.get(v.last_model, [])))
    v.http("DELETE", "/agents/kid")
