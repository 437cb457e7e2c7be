"""Attacks the limit of a tenant's users: many new ones at once, by every way in, under names that look alike, with the shared values
of the tenant, by reading. Expected: never one more than the limit, reading makes none, and those that are known go on."""

import json
import threading

from venue import check

T = "tenant_users"
SETS = ["quota.tenant_users=6"]
ECHO = {"model": {"provider": "scripted", "name": "echo"}}


def attack(v):
    jwt = v.mode == "jwt"
    tenant = "crowd"
    tokens = {}

    def who(user):
        if not jwt:
            return {"owner": f"{tenant}/{user}"}
        if user not in tokens:
            tokens[user] = v.issue(f"{tenant}/{user}")
        return {"token": tokens[user]}

    def used():
        return v.http("GET", "/quota", **who("first"))[1].get("tenantUsers", {}).get("used")

    v.write("w/x", 1, **who("first"))
    check(T, "the first is known", used() == 1, used())
    reads = ["/jobs", "/agents", "/timers", "/approvals", "/outcomes", "/secrets", "/assets", "/spend", "/quota", "/why?path=w/x", "/values/read?path=w/x", "/values/list?path=w", "/agents/x", "/jobs/" + "0" * 32]
    for path in reads:
        v.http("GET", path, **who("reader"))
        check(T, f"reading {path[:24]} makes no one known", used() == 1, used())
    for operation, given in [("lattice/read", {"path": "w"}), ("policy/show", {}), ("lattice/delete", {"path": "w/x"}), ("secret/delete", {"name": "K"}), ("job/result", {"id": "0" * 32}),
                             ("json/merge", {"values": []}), ("timer/cancel", {"timer": "0" * 32}), ("agent/delete", {"agentId": "x"}), ("policy/restore", {"id": "x"})]:
        v.run(operation, given, **who("reader"))
        check(T, f"{operation} of nothing makes no one known", used() == 1, used())

    users = [f"r{n}" for n in range(16)]
    for user in users:
        who(user)
    answers = []

    def write(user):
        answers.append(v.http("POST", "/run", {"operation": "v/ops/lattice/write", "input": {"path": "w/x", "value": 1}}, **who(user))[0])

    threads = [threading.Thread(target=write, args=(user,)) for user in users]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check(T, "of many at once no more than the limit are taken", answers.count(200) == 5 and answers.count(507) == 11, sorted(answers))
    check(T, "the tenant is full", used() == 6, used())
    ways = [("PUT", "/agents/a", ECHO), ("POST", "/assets", {"content": "x"}), ("PUT", "/secrets/K", {"value": "x" * 12, "hosts": ["a.example"]}), ("POST", "/agents/a/tasks", {"input": 1}), ("POST", "/agents/a/messages", {"input": 1}),
            ("POST", "/agents/a/timers", {"input": 1, "after": "1h"}), ("POST", "/invoke", {"operation": "v/ops/lattice/write", "input": {"path": "w/a", "value": 1}}), ("POST", "/invoke", {"operation": "v/ops/lattice/read", "input": {"path": "w/a"}})]
    ways += [("POST", "/run", {"operation": "v/ops/" + o, "input": i}) for o, i in [
        ("policy/revoke", {"path": "w/x"}), ("resource/purge", {"namespace": "app/user", "recursive": True}), ("lattice/append", {"path": "w/x", "value": 1}), ("lattice/copy", {"from": "v/ops/lattice/read", "to": "o/x"}),
        ("agent/create", {"agentId": "x", "config": ECHO}), ("lattice/write", {"path": f"/{tenant}/first/w/x", "value": 2}), ("lattice/write", {"path": "v/context/users/me", "value": {"a": 1}}), ("job/bulk", {"action": "cancel", "dryRun": True})]]
    for n, (method, path, body) in enumerate(ways):
        s, said = v.http(method, path, body, **who(f"late{n}"))
        check(T, f"{method} {path} {body.get('operation', '')} makes no one more", used() == 6 and s < 600, (s, used(), json.dumps(said)[:200]))
    looks = ["First", "FIRST", "f%69rst", "first.", "firѕt", "ﬁrst", "*", ">", "first%20", "a b", "-", "_"]
    for name in looks:
        try:
            s, said = v.write("w/x", 1, **who(name))
        except (UnicodeError, ValueError):
            continue
        check(T, f"`{name}` makes no one more", used() == 6, (s, used()))
    for user in ["first", *users]:
        s, _ = v.write("w/y", 1, **who(user))
        check(T, f"{user} is as before", s in (200, 507), s)
    check(T, "the known go on", v.write("w/z", 1, **who("first"))[0] == 200)
    other = {"token": v.issue("elsewhere/ann")} if jwt else {"owner": "elsewhere/ann"}
    check(T, "another tenant isn't touched", v.write("w/x", 1, **other)[0] == 200)
    check(T, "six in the end", used() == 6, used())
