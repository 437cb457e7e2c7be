"""Attacks by names that look like others or like the venue's own places: agents, owners, subjects of tokens, sessions, pins, secrets and buckets called
as paths, options, words of languages, other forms and alphabets; and rights on a name, tried at every name beside it and in every writing of a URL.
Expected: a name is refused with a reason or works through its whole life and touches no other; a right on one name is none on another."""

import json
import time
import unicodedata
import urllib.parse

from venue import check

T = "lookalikes"
C = "canaryll"
ECHO = {"model": {"provider": "scripted", "name": "echo", "maxTokens": 16}}
NAMES = ["config", "timeline", "sessions", "turns", "tasks", "messages", "timers", "context", "fork", "suspend", "resume", "g", "j", "w", "v", "ops", "main", "default", "null", "true", "0", "-", "--help", "-x", "__proto__", "constructor", "toString", "CON", "nul", "a:b", "agent:x", "@", "=", "+", "a=b", "a.b", "a..b", ".", "..", "...", ".hidden", "%2e%2e", "a%2Fb", "a/b", "a\\b", "*", ">", "a*", "$x", "{x}", "${x}", "~", "a b", " a", "a ", "", "x" * 64, "x" * 65, "x" * 300, "é", "e\u0301", "ａ", "а", "ı", "ß", "ẞ", "ﬁ", "\u200ba", "a\u202eb", "a\u0000", "a\nb", "😀", "👩‍👩‍👧", "ﷺ", "venue", "venue:x", "trellis", "root", "operator"]


def attack(v):
    who = {"token": v.issue("acme/ann")} if v.mode == "jwt" else {}
    agents(v, who)
    beside(v, who)
    owners(v, who)
    places(v, who)
    if v.mode == "jwt":
        rights(v, who)
        subjects(v)


def agents(v, who):
    """Each name through its whole life."""
    v.agent([C], name="clerk", **who)
    v.task("clerk", C, body={"sessionId": "s1"}, **who)
    made = []
    for name in NAMES:
        url = urllib.parse.quote(name, safe="")
        s, said = v.http("PUT", f"/agents/{url}", ECHO, **who)
        s2, said2 = v.run("agent/create", {"agentId": name, "config": ECHO}, **who)
        check(T, f"an agent {name[:20]!r} is made, or refused with a reason", s < 500 and s2 < 500 and (s < 300 or s >= 400), (s, said, s2, said2))
        if s >= 300 and name not in ("", ".", ".."):
            check(T, f"an agent {name[:20]!r} is refused in both ways", 400 <= s2 < 500 and said.get("error") and said2.get("error"), (s, said, s2, said2))
            continue
        if s >= 300 or name in ("", ".", ".."):
            check(T, f"an agent {name!r} isn't made by the operation either", 400 <= s2 < 500, (s2, said2))
            continue
        made.append(name)
        s, job = v.http("POST", f"/agents/{url}/tasks?wait=8000", {"input": "x", "sessionId": "s1"}, **who)
        check(T, f"an agent {name[:20]!r} does a task", job.get("status") == "COMPLETE", (s, job))
        s, turns = v.http("GET", f"/agents/{url}/turns", **who)
        s2, shown = v.http("GET", f"/agents/{url}/turns/s1/1", **who)
        check(T, f"the turns of {name[:20]!r} are its own", s == 200 and s2 == 200 and C not in json.dumps([turns, shown]), (s, s2, str(turns)[:200]))
        s, config = v.read(["g", name, "config"], **who)
        check(T, f"the configuration of {name[:20]!r} is read by its path", s == 200 and "echo" in json.dumps(config), (s, str(config)[:200]))
        s, timer = v.http("POST", f"/agents/{url}/timers", {"input": 1, "after": "20m"}, **who)
        check(T, f"{name[:20]!r} takes a timer", s < 300, (s, timer))
    listed = json.dumps(v.http("GET", "/agents?limit=500", **who)[1], ensure_ascii=False)
    forms = [unicodedata.normalize("NFKC", n) for n in made]
    check(T, "no two names that were taken are one", len(set(made)) == len(made), made)
    check(T, "each name that was taken is listed", all(json.dumps(n, ensure_ascii=False)[1:-1] in listed or json.dumps(unicodedata.normalize("NFC", n), ensure_ascii=False)[1:-1] in listed for n in made), [n for n in made if n not in listed])
    check(T, "none of them is invisible", not [n for n in made if any(ord(ch) < 32 or ch in "\u200b\u202e" for ch in n)], forms)
    for name in made:
        s, said = v.http("DELETE", f"/agents/{urllib.parse.quote(name, safe='')}?remove=true", **who)
        check(T, f"the agent {name[:20]!r} is removed", s < 300, (s, said))
    s, said = v.http("GET", "/agents/clerk/turns/s1/1", **who)
    check(T, "beside all of these the clerk is as it was", C in json.dumps(said), (s, said))


def beside(v, who):
    """Two forms of one look: what is done to one isn't done to the other."""
    for one, other in (("é1", "e\u03011"), ("clerkа", "clerka"), ("ﬁx", "fix"), ("ａb", "ab"), ("Straße", "Strasse"), ("İx", "ix"), ("K1", "\u212a1"), ("ΩA", "\u2126A")):
        a, b = ({"model": {"provider": "scripted", "name": "echo"}, "description": d} for d in ("first", "second"))
        q = [urllib.parse.quote(n, safe="") for n in (one, other)]
        s1 = v.http("PUT", f"/agents/{q[0]}", a, **who)[0]
        before = v.http("GET", f"/agents/{q[0]}", **who)[1]
        s2, said = v.http("PUT", f"/agents/{q[1]}", b, **who)
        names = [x if isinstance(x, str) else x.get("agentId") or x.get("id") or x.get("name") for x in v.http("GET", "/agents?limit=500", **who)[1].get("agents", [])]
        after = v.http("GET", f"/agents/{q[0]}", **who)[1]
        same = unicodedata.normalize("NFC", one) == unicodedata.normalize("NFC", other)
        check(T, f"{one!r} and {other!r} are two agents, or one by its normal form, or one is refused", s1 < 300 and (s2 >= 400 or same or "first" in json.dumps(after)), (s1, s2, said, names))
        if s2 < 300 and not same:
            v.http("DELETE", f"/agents/{q[1]}?remove=true", **who)
            check(T, f"removing {other!r} leaves {one!r}", v.http("GET", f"/agents/{q[0]}", **who)[0] == 200, names)
        v.http("PUT", f"/secrets/{urllib.parse.quote(one, safe='')}", {"value": "first-value-1", "hosts": ["a.example"]}, **who)
        s, said = v.http("PUT", f"/secrets/{urllib.parse.quote(other, safe='')}", {"value": "second-value-2", "hosts": ["b.example"]}, **who)
        check(T, f"secrets called {one!r} and {other!r}: an answer without a value", s < 500 and "value-" not in json.dumps(said), (s, said))
        v.write(f"w/{one}", "first", **who)
        v.write(f"w/{other}", "second", **who)
        check(T, f"values called {one!r} and {other!r} are two, or one by its normal form", v.read(f"w/{one}", **who)[1].get("value") == "first" or same, v.read(f"w/{one}", **who)[1])


def owners(v, who):
    """Owners' names in the header, without tokens."""
    v.write("w/own", C, **who)
    mine = "acme/ann" if who else "local/me"
    tenant, user = mine.split("/")
    for name in (mine.upper(), mine + " ", " " + mine, mine + "/", "/" + mine, mine + "/x", mine.replace("/", "%2F"), mine.replace("/", "//"), mine.replace("/", "/./"), f"x/../{mine}", mine.replace("e", "е").replace("a", "а"), f"{tenant}/*", f"*/{user}", "*", "", "/", f"{tenant}", f"{tenant}/", f"/{user}", mine + "\u200b", "venue/venue", "trellis/audit", "did/z6Mk", "did:key:z6Mk", "../..", f"{tenant}.{user}", f"{tenant}/{user}/w/own", f"{mine},{mine}", "x" * 300 + "/y", "{" + tenant + "}/" + user):
        for token in ([None] if v.mode == "up" else [None, v.issue("evil/eve")]):
            try:
                s, said = v.http("GET", "/values/read?path=w/own", owner=name.encode().decode("latin-1") if name else None, token=token, headers={"X-Trellis-Owner": ""} if not name else None)
            except (ValueError, UnicodeError):
                continue
            own = v.mode == "up" and name.strip() in (mine,) or v.mode == "up" and name == ""
            check(T, f"an owner called {name[:24]!r} reads nothing of {mine}, or is refused with a reason", s < 500 and (C not in json.dumps(said) or own), (s, said))


def places(v, who):
    """Pins, sessions, buckets and titles by names of the venue's places."""
    for name in ("lattice_read", "v/ops/lattice/read", "complete_task", "lattice/read", "..", "o/x", "ops", "A", "config", "x" * 300, "é", "e\u0301", "a b", "*", ""):
        s, said = v.run("asset/pin", {"path": "w/own", "name": name}, **who)
        check(T, f"a pin {name[:20]!r} is made, or refused with a reason", s < 500 and (s < 300 or said.get("error")), (s, said))
        r, job, _ = v.calls([("lattice_read", {"path": "w/own"})], {"tools": ["v/ops/lattice/read"], "defaultTools": False}, **who)
        check(T, f"beside a pin {name[:20]!r} a tool is what it was", r and C in r[0], r)
    v.agent([lambda b: "ok"], {"contextWrite": True}, name="ll", **who)
    for name in ("main", "s1/1", "1", "config", "__proto__", "e\u0301", "é", "*", "..", "x" * 200, "a b", "null", "-1"):
        s, said = v.task("ll", f"in {name}", 5000, body={"sessionId": name, "contextIds": [name]}, **who)
        check(T, f"a session and bucket {name[:16]!r} does a task, or is refused with a reason", said.get("status") == "COMPLETE" or 400 <= s < 500 and said.get("error"), (s, said))
        if s < 300:
            others = [x for x in ("in main", "in 1", "in config", "in null") if x != f"in {name}" and x in v.prompt()]
            check(T, f"a session {name[:16]!r} shows nothing of another", not others, others)


def rights(v, who):
    """A right on `g/clerk`, `w/a`, `s/KEY` and `j/ID` is none on a name beside it."""
    for name in ("clerk2", "clerk.x", "Clerk", "сlerk", "clerk-x", "clerk:x", "boss"):
        v.http("PUT", f"/agents/{urllib.parse.quote(name, safe='')}", {"model": {"provider": "scripted", "name": "echo"}}, **who)
    s, job = v.task("boss", C, body={"sessionId": "s1"}, **who)
    token = v.issue("acme/ann", ["g/clerk:*", "w/a:crud", f"j/{job['job'][:8]}:*", "s/KEY:*"])
    writings = [urllib.parse.quote(n, safe="") for n in ("clerk2", "clerk.x", "Clerk", "сlerk", "clerk-x", "clerk:x", "boss")] + ["clerk%2F..%2Fboss", "clerk/../boss", "clerk%2f%2e%2e%2fboss", "./boss", "%62oss", "boss%00", "clerk%00/../boss", "clerk;boss", "clerk?x=/agents/boss", "clerk#/boss", "clerk%23", "clerk%3F", "clerk\\..\\boss", "clerk%5C..%5Cboss", "BOSS", "boss/", "//boss"]
    for name in writings:
        for method, tail, body in (("GET", "", None), ("GET", "/turns", None), ("POST", "/tasks", {"input": 1}), ("PUT", "/suspend", {}), ("GET", "/sessions/s1", None), ("PATCH", "", {"config": {"description": "evil"}})):
            if name in ("clerk?x=/agents/boss", "clerk#/boss"):
                continue
            s, said = v.http(method, f"/agents/{name}{tail}", body, token=token)
            check(T, f"a right on the clerk: {method} {name[:20]}{tail} is denied", 300 <= s < 500 and C not in json.dumps(said), (s, said))
    for path in ("w/ab", "w/A", "w/а", "w/a.b", "w/a\u0301", "w/á", "w", "w/a/../b", "w/a%2F..%2Fb", ["w", "a/../b"], ["w", "ab"], ["w/a", "b"], "w/ａ", "w/b", "s/KEY2", "s/key", "j", f"j/{job['job']}", "g", "g/boss"):
        s, said = v.read(path, token=token)
        check(T, f"a right on w/a: reading {path!r} is denied, or is below it", s in (400, 403, 404) or path == ["w/a", "b"] and C not in json.dumps(said) or path in ("w/a/../b",) and s < 500, (s, said))
        s, said = v.write(path, 1, token=token)
        check(T, f"a right on w/a: writing {path!r} is denied", s in (400, 403, 404, 405), (s, said))
    s, said = v.http("GET", "/agents?limit=500", token=token)
    check(T, "a list shows the clerk alone", "boss" not in json.dumps(said) and "clerk2" not in json.dumps(said), said)


def subjects(v):
    """Subjects that look like ann's."""
    for sub in ("acme/аnn", "acme/Ann", "ACME/ann", "acme/ann ", "acme/ann/", "acme/ann/x", "acme//ann", "acme/a\u200bnn", "acme/ａnn", "acme/ann%20", "acme%2Fann", "acme/ann\u0000", "acme/ann\n", "ann", "acme", "acme/", "/ann", "acme/..", "acme/../acme/ann", "acme/*", "acme/./ann", "did:key:acme/ann", ""):
        try:
            token = v.issue(sub)
        except (ValueError, OSError):
            continue
        if token.count(".") != 2:
            continue
        for owner in (None, "acme/ann"):
            s, said = v.http("GET", "/values/read?path=w/own", token=token, owner=owner)
            check(T, f"a token for {sub!r}{' as ann' if owner else ''} reads nothing of ann's", C not in json.dumps(said) and s < 500, (s, said))
    t = v.issue("acme/é"), v.issue("acme/e\u0301")
    if t[0].count(".") == 2 and t[1].count(".") == 2:
        v.write("w/own", C + "-composed", token=t[0])
        s, said = v.http("GET", "/values/read?path=w/own", token=t[1])
        print("   two forms of one user:", s, str(said)[:80], flush=True)
        s2, _ = v.run("policy/revoke", {"holder": "acme/e\u0301"}, token=v.issue("acme/root"), owner="acme/é")
        s, said = v.http("GET", "/values/read?path=w/own", token=t[0])
        check(T, "a revocation of one form holds as the name does", s2 >= 400 or s in (200, 401), (s2, s, said))
