"""Attacks event streams of jobs: `Last-Event-ID` that is forged, another job's, another owner's, huge, negative, no number or binary; resumed at
each event while the job runs and behind its end; many readers; narrow tokens and others; jobs that are cancelled, paused, deleted, of
operations. Expected: who may not read hears nothing, text comes once and whole to each reader, each stream ends, none is an error."""

import http.client
import json
import threading
import time
import urllib.parse

from charged import delta, sse
from venue import check

T = "live_text"
SETS = ["http.connections=64"]
WORDS = [f"w{i} " for i in range(60)]
TEXT = sse(*[delta(w) for w in WORDS], delta("", "stop", {"prompt_tokens": 9, "completion_tokens": 9}), wait=0.03)


def owner(v, name):
    return {"token": v.issue("acme/" + name)} if v.mode == "jwt" else {"owner": "acme/" + name}


def follow(v, job, who, last=None, seconds=12, until=None, headers=()):
    """Status and the events (id, kind, data) until the stream ends, or `until` says enough; whether it ended by itself."""
    c = http.client.HTTPConnection("127.0.0.1", v.port, timeout=seconds)
    h = dict(headers)
    if "owner" in who:
        h["X-Trellis-Owner"] = who["owner"]
    if "token" in who:
        h["Authorization"] = "Bearer " + who["token"]
    if last is not None:
        h["Last-Event-ID"] = last
    events, ended = [], False
    try:
        c.putrequest("GET", f"/api/v1/jobs/{job}/sse")
        for k, value in h.items():
            c.putheader(k, value)
        c.endheaders()
        r = c.getresponse()
        if r.status != 200:
            return r.status, r.read(4000).decode(errors="replace"), True
        event, end = {}, time.time() + seconds
        while time.time() < end:
            line = r.readline()
            if not line:
                ended = True
                break
            line = line.decode().rstrip("\n")
            if not line:
                if event.get("data") is not None:
                    events.append((event.get("id"), event.get("event"), event["data"]))
                event = {}
                if until and until(events):
                    break
            elif ":" in line:
                k, _, value = line.partition(":")
                event[k] = value.lstrip()
        return 200, events, ended
    except (OSError, http.client.HTTPException) as e:
        return 200 if events else 0, events or repr(e), ended
    finally:
        c.close()


def text(events):
    return "".join(json.loads(d).get("text", "") for _, k, d in events if k == "token")


def end(v, job, who):
    for _ in range(20):
        s, said = v.http("GET", f"/jobs/{job}?wait=2000", **who)
        if said.get("status") in ("COMPLETE", "FAILED", "CANCELLED"):
            return said
    return said


def attack(v):
    ann, bob = owner(v, "ann"), owner(v, "bob")
    agent = v.agent([TEXT], name="talk", **ann)
    v.agent([TEXT], name="talk2", **bob)
    whole = "".join(WORDS)

    def start(who=ann, name="talk"):
        return v.http("POST", f"/agents/{name}/tasks", {"input": "go"}, **who)[1]["job"]
    job = start()
    s, events, ended = follow(v, job, ann)
    check(T, "a reader from the beginning has all text once", s == 200 and text(events).strip() == whole.strip(), (s, text(events)[-100:] if s == 200 else events))
    check(T, "the stream ends with the job", ended and '"COMPLETE"' in events[-1][2], events[-1:])
    ids = [i for i, k, _ in events if k == "token"]
    check(T, "each piece of text has an id of its own", all(ids) and len(set(ids)) == len(ids), ids[:5])
    events = [e for e in events if e[1] == "token"]
    # Behind the end, resumed at each place.
    full = text(events)
    for at in list(range(0, len(events), 7)) + [len(events) - 2, len(events) - 1]:
        s, more, ended = follow(v, job, ann, ids[at])
        rest = text(events[at + 1:])
        check(T, f"behind the end, resumed at event {at}: the rest comes, once", s == 200 and ended and text(more) == rest, (s, len(text(more)) if s == 200 else more, len(rest)))
    # While it runs, broken off and taken up.
    for cut in (2, 3, 8, 15, 30, 45):
        job2, parts, last, done = start(), "", None, False
        for _ in range(130):
            s, more, done = follow(v, job2, ann, last, until=lambda e: len(e) >= cut)
            if s != 200:
                break
            parts += text(more)
            last = next((i for i, _, _ in reversed(more) if i), last)
            if done or more and any('"COMPLETE"' in d for _, k, d in more if k == "job-update"):
                break
        check(T, f"broken off behind every {cut} events it is whole", parts.strip() == whole.strip(), (len(parts), len(whole), s))
    # Ids that are forged.
    other = start(bob, "talk2")
    end(v, other, bob)
    theirs = [e for e in follow(v, other, bob)[1] if e[0]]
    for forged in ("0", "1", "-1", "99999999999", str(2**63), str(2**64), "1e9", "0x10", "NaN", "x", "*", ">", "../x", "a" * 8000, "1.5", "1-1", "18446744073709551615-18446744073709551615", "job:1", job, other, "", " ", "%00", "1;2", "1,2", "é".encode().decode("latin-1"), '{"a":1}', "1 OR 1=1", theirs[-1][0], theirs[0][0], ids[-1] + "0", "-" + ids[0]):
        job3 = start()
        s, more, ended = follow(v, job3, ann, forged)
        said = json.dumps(more)
        check(T, f"a forged id {forged[:24]!r} is refused, or loses nothing", s in (400, 431) or s == 200 and ended and text(more).strip() == whole.strip(), (s, text(more)[-60:] if s == 200 else more))
        check(T, f"a forged id {forged[:24]!r} shows nothing of others", other not in said, said[:200])
    # Others.
    for who, name in ((bob, "another owner"), (owner(v, "nobody"), "an owner that is none")):
        for jid in (job, "0x" + job, job.upper()):
            for last in (None, ids[0], "0"):
                s, more, ended = follow(v, jid, who, last, 4)
                check(T, f"{name} hears nothing of {jid[:3]}… from {last and last[:5]}", s == 404 and "w1" not in str(more), (s, more))
    for jid in ("0" * 32, "x", "..", "%2e%2e", "*", "%00", job[:31], job + "0", "a" * 5000, urllib.parse.quote("é" * 16)):
        s, more, ended = follow(v, jid, ann, None, 4)
        check(T, f"a stream of {jid[:20]} is refused", s in (400, 404), (s, more))
    if v.mode == "jwt":
        for what, att, may in (("nothing", [], False), ("w alone", ["w:*"], False), ("another job", ["j/" + "0" * 32 + ":crud/read"], False), ("the job's existence", [f"j/{job}:crud/read"], "status"), ("asking", ["g/talk:agent/request"], False)):
            t = {"token": v.issue("acme/ann", att)}
            s, more, ended = follow(v, job, t, None, 4)
            check(T, f"a token for {what} hears no text", "w1 " not in json.dumps(more) and s in (403, 404, 200) and (s != 200 or may), (s, str(more)[:200]))
        for owner_ in ("acme/ann", "acme/root"):
            s, more, ended = follow(v, job, {"token": v.issue("acme/bob"), "owner": owner_}, None, 4)
            check(T, f"another with the header of {owner_} hears nothing", s in (401, 403, 404), (s, str(more)[:200]))
        # A right that is taken back while somebody listens.
        t = {"token": v.issue("acme/ann", jti="listens")}
        job4, heard = start(), []
        th = threading.Thread(target=lambda: heard.append(follow(v, job4, t)))
        th.start()
        time.sleep(0.4)
        v.run("policy/revoke", {"grant": "listens"}, **ann)
        th.join()
        s, more, ended = follow(v, job4, t, None, 4)
        check(T, "a token that was taken back opens no stream", s == 401 or s == 403, (s, str(more)[:100]))
        v.http("POST", "/agents/talk/tasks", {"input": 1}, **ann)
    # Many readers, of whom none reads.
    job5 = start()
    import socket
    lazy = []
    for _ in range(20):
        sock = socket.create_connection(("127.0.0.1", v.port))
        auth = f"Authorization: Bearer {ann['token']}\r\n" if "token" in ann else f"X-Trellis-Owner: {ann['owner']}\r\n"
        sock.sendall(f"GET /api/v1/jobs/{job5}/sse HTTP/1.1\r\nHost: 127.0.0.1:{v.port}\r\n{auth}\r\n".encode())
        lazy.append(sock)
    s, said = v.http("GET", "/agents", **bob)
    check(T, "twenty streams that nobody reads hold nobody else up", s == 200, (s, said))
    said = end(v, job5, ann)
    check(T, "nor the job", said.get("status") == "COMPLETE", said)
    [x.close() for x in lazy]
    readers, got = [], []
    job6 = start()
    for _ in range(12):
        th = threading.Thread(target=lambda: got.append(text(follow(v, job6, ann)[1])))
        th.start()
        readers.append(th)
    [th.join() for th in readers]
    check(T, "twelve readers have all text", all(g.strip() == whole.strip() for g in got), [len(g) for g in got])
    # Jobs that end otherwise.
    for how in ("cancel", "delete", "pause"):
        job7, heard = start(), []
        th = threading.Thread(target=lambda: heard.append(follow(v, job7, ann, None, 8)))
        th.start()
        time.sleep(0.6)
        if how == "pause":
            v.http("PUT", f"/jobs/{job7}/pause", **ann)
            time.sleep(2.5)
            v.http("PUT", f"/jobs/{job7}/cancel", {}, **ann)
        else:
            v.http("PUT", f"/jobs/{job7}/cancel", {}, **ann)
            if how == "delete":
                v.http("PUT", f"/jobs/{job7}/delete", **ann)
        th.join()
        s, more, ended = heard[0]
        check(T, f"the stream of a job ends by {how}", ended, (s, str(more)[-300:]))
    s, inv = v.http("POST", "/invoke", {"operation": "v/ops/lattice/write", "input": {"path": "w/x", "value": 1}}, **ann)
    s, more, ended = follow(v, inv.get("id") or inv.get("job"), ann)
    check(T, "the stream of an operation ends", s == 200 and ended, (s, more))
    for accept in ("application/json", "text/html", "*/*", "text/event-stream;q=0", ""):
        s, more, ended = follow(v, job, ann, None, 5, headers={"Accept": accept})
        check(T, f"a stream asked for as {accept!r} is served or refused", s in (200, 406), (s, str(more)[:100]))
