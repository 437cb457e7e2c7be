"""Attacks timers and settings: times that don't exist or come twice, cron lines at the end of reason, zones that are paths, times beyond numbers,
downtimes with each `catchUp`; configuration files that are devices, pipes, links, folders, huge, deep, binary, and settings by variables; numbers,
keys and depths of JSON at each entrance. Expected: a refusal with its place, or exactly what was said; nothing hangs, nothing is read twice."""

import json
import os
import pathlib
import socket
import subprocess
import time
from datetime import datetime, timezone

from venue import check, nested

T = "clockwork"
SETS = ()
ECHO = {"model": {"provider": "scripted", "name": "echo", "maxTokens": 16}, "defaultTools": False, "tools": []}


def owner(v, name):
    return {"token": v.issue("acme/" + name, ttl="1200d")} if v.mode == "jwt" else {"owner": "acme/" + name}


def attack(v):
    who = owner(v, "t")
    v.http("PUT", "/agents/e", ECHO, **who)
    times(v, who)
    crons(v, who)
    downtime(v, who)
    numbers(v, who)
    if v.mode == "up":
        files(v)


def set_(v, who, **body):
    return v.http("POST", "/agents/e/timers", {"input": "x", **body}, **who)


def utc(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M")


def times(v, who):
    # A day in March on which an hour is missing, one in October on which it comes twice, and zones with odd offsets.
    for at, zone, want in (("2027-03-28T02:30:00", "Europe/Berlin", "2027-03-28T01:00"), ("2027-03-28T02:00:00", "Europe/Berlin", "2027-03-28T01:00"), ("2027-03-28T03:00:00", "Europe/Berlin", "2027-03-28T01:00"), ("2027-10-31T02:30:00", "Europe/Berlin", "2027-10-31T00:30"), ("2027-03-14T02:30:00", "America/New_York", "2027-03-14T07:00"), ("2027-10-03T02:15:00", "Australia/Lord_Howe", "2027-10-02T15:30"), ("2027-01-01T00:00:00", "Asia/Kathmandu", "2026-12-31T18:15"), ("2027-06-01T12:00:00+14:00", "UTC", "2027-05-31T22:00"), ("2027-06-01T12:00:00Z", "Europe/Berlin", "2027-06-01T12:00"), ("2028-02-29T00:00:00", "UTC", "2028-02-29T00:00")):
        s, said = set_(v, who, at=at, timezone=zone, name="one")
        check(T, f"{at} in {zone} is {want}", s == 201 and utc(said["next"]) == want, (s, said))
    for at in ("2027-02-29T00:00:00", "2027-13-01T00:00:00", "2027-06-01T25:00:00", "2027-06-01T23:59:61", "0000-00-00", "99999-01-01T00:00:00Z", "-0001-01-01T00:00:00Z", "now", "tomorrow", "", " ", 2**63, 2**64, -1, -2**63, "1e400", "2027-06-01T12:00:00+99:00", "2027-06-01T12:00:00+01:00[Europe/Berlin]", "2027-06-01T12:00:00Z; rm", "２０２７-06-01T12:00:00Z", "9" * 5000, "2020-01-01T00:00:00Z" * 2, [2027], {"at": 1}, True, None):
        s, said = set_(v, who, at=at, name="odd")
        check(T, f"at {str(at)[:30]!r} is refused with a reason", s == 400 and len(json.dumps(said)) > 40, (s, said))
    s, said = v.http("POST", "/agents/e/timers", {"input": 1, "at": "2027-06-01T12:00:00[Europe/Berlin]"})
    check(T, "a zone behind a time counts", s == 201 and said.get("next") == "2027-06-01T10:00:00.000Z", (s, said))
    for after in ("0s", "-5s", "5", "1e9s", "99999999999999d", "5 m", "５m", "", "s", "5m5", "NaNs", "infs", 2**64, -1, 0.5, [5], True, "0x10s"):
        s, said = set_(v, who, after=after, name="odd")
        check(T, f"after {str(after)[:20]!r} is refused with a reason, or soon", s == 400 and len(json.dumps(said)) > 40 or s == 201 and after in ("0s", "5", "5 m", 0.5, "5m5"), (s, said))
    for t in v.http("GET", "/timers", **who)[1].get("items", []):
        v.http("DELETE", f"/timers/{t['timer']}", **who)
    for every in ("0s", "1ms", "-1m", 0, 1, "999999999d", 2**64, "", "5", None, [1]):
        s, said = set_(v, who, every=every, name="odd")
        check(T, f"every {every!r} is refused with a reason", s == 400 and len(json.dumps(said)) > 40, (s, said))
        s, timers = v.http("GET", "/timers", **who)
        check(T, f"every {every!r} has set nothing", "odd" not in json.dumps(timers), timers)
        for t in timers.get("items", []):
            v.http("DELETE", f"/timers/{t['timer']}", **who)
    for body in ({}, {"at": "2027-06-01T12:00:00Z", "after": "5m"}, {"every": "5m", "cron": "* * * * *"}, {"cron": "* * * * *", "at": "2027-06-01T12:00:00Z"}, {"after": "5m", "kind": "other"}, {"after": "5m", "catchUp": "ALL"}, {"after": "5m", "overlap": "both"}, {"after": "5m", "priority": 2}, {"after": "5m", "priority": -2**31}, {"after": "5m", "name": ""}, {"after": "5m", "name": "x" * 5000}, {"after": "5m", "name": "a\u0000b"}, {"after": "5m", "name": 5}, {"after": "5m", "sessionId": "a/b"}, {"after": "5m", "sessionId": ".."}, {"after": "5m", "more": 1}, {"after": "5m", "input": None}, {"after": "5m", "context": "w"}, {"after": "5m", "context": [{"with": "w"}]}):
        s, said = v.http("POST", "/agents/e/timers", {"input": "x", **body}, **who)
        check(T, f"a timer with {json.dumps(body)[:50]} is refused with a reason", s == 400 and len(json.dumps(said)) > 40, (s, said))
    for zone in ("Europe/Nowhere", "../../etc/passwd", "/etc/localtime", "europe/berlin", "UTC+2", "", "CET CEST", "x" * 5000, "Europe/Berlin\u0000", "posixrules", "right/UTC", 5, None):
        s, said = set_(v, who, cron="0 9 * * *", timezone=zone, name="zone")
        check(T, f"the zone {str(zone)[:24]!r} is refused with a reason", s == 400 and len(json.dumps(said)) > 40 and "root:" not in json.dumps(said) or s == 201 and zone in ("europe/berlin",), (s, said))
    s, said = v.http("GET", "/timers", **who)
    for t in said.get("items", []):
        v.http("DELETE", f"/timers/{t['timer']}", **who)


def crons(v, who):
    for cron in ("", "*", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *", "* * * * 8", "-1 * * * *", "*/0 * * * *", "5-1 * * * *", "1,,2 * * * *", "@reboot", "0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "* * * * MON-", "* * * * FOO", "1/ * * * *", "９ * * * *", "* * * * *\n* * * * *", "* * * * *; x", "*/99999999999999999999 * * * *", "0-59/1,".ljust(9000, "1") + " * * * *", "L * * * *", "? ? ? ? ?", "0 0 31 2 *"):
        s, said = set_(v, who, cron=cron, name="cron")
        check(T, f"cron {cron[:30]!r} is refused with a reason", s == 400 and len(json.dumps(said)) > 40, (s, said))
    for cron, zone, day in (("30 2 * * *", "Europe/Berlin", None), ("0 0 29 2 *", "UTC", "2028-02-29T00:00"), ("59 23 31 12 *", "UTC", "2026-12-31T23:59"), ("0 12 * * SUN", "UTC", "2026-11-29T12:00")):
        s, said = set_(v, who, cron=cron, timezone=zone, name="good")
        check(T, f"cron {cron!r} is taken" + (f", next at {day}" if day else ""), s == 201 and (not day or utc(said["next"]) == day or time.strftime("%Y-%m-%d") > "2026-11-28"), (s, said))
    s, said = v.http("GET", "/timers", **who)
    for t in said.get("items", []):
        v.http("DELETE", f"/timers/{t['timer']}", **who)


def downtime(v, who):
    """Timers of every two seconds over a downtime of fifteen."""
    import killed
    for catch in ("one", "all", "skip"):
        v.http("PUT", f"/agents/d{catch}", ECHO, **who)
        s, said = v.http("POST", f"/agents/d{catch}/timers", {"input": catch, "every": "10s", "catchUp": catch, "name": catch}, **who)
        check(T, f"a timer with catchUp {catch} is set", s == 201, (s, said))
    time.sleep(11)
    before = {c: rows(v, who, c) for c in ("one", "all", "skip")}
    gone = killed.kill(v, stop_only=True)
    time.sleep(36)
    killed.start(v, gone)
    time.sleep(6)
    after = {c: rows(v, who, c) for c in ("one", "all", "skip")}
    more = {c: after[c] - before[c] for c in after}
    check(T, "all that was missed comes with `all`", 3 <= more["all"] <= 6, (before, after))
    check(T, "one comes for what was missed with `one`", 1 <= more["one"] <= 3, (before, after))
    check(T, "no more than what is due now comes with `skip`", more["skip"] <= 2 and more["skip"] <= more["one"], (before, after))
    for t in v.http("GET", "/timers", **who)[1].get("items", []):
        s, said = v.http("DELETE", f"/timers/{t['timer']}", **who)
        check(T, f"the timer {t.get('name')} is cancelled", s == 200, said)
    time.sleep(2)
    final = {c: rows(v, who, c) for c in after}
    time.sleep(11)
    check(T, "and fires no more", {c: rows(v, who, c) for c in after} == final, (final,))


def rows(v, who, name):
    s, said = v.http("GET", f"/jobs?agent=d{name}&limit=100", **who)
    return len(said.get("items", []))


def numbers(v, who):
    entrances = {"a task": ("POST", "/agents/e/tasks", '{"input":%s}'), "a message": ("POST", "/agents/e/messages", '{"input":%s}'), "a write": ("POST", "/run", '{"operation":"v/ops/lattice/write","input":{"path":"w/n","value":%s}}'), "an invocation": ("POST", "/invoke", '{"operation":"v/ops/json/merge","input":{"values":[%s]}}'), "a timer": ("POST", "/agents/e/timers", '{"after":"9h","name":"n","input":%s}'), "an asset": ("POST", "/assets", '{"content":%s}'), "a preview": ("POST", "/agents/e/context", '{"task":%s}'), "an agent": ("PUT", "/agents/n", '{"model":{"provider":"scripted","name":"echo","extra":{"k":%s}}}')}
    bad = {"2^64": "18446744073709551616", "-2^63-1": "-9223372036854775809", "thirty digits": "123456789012345678901234567890", "1e400": "1e400", "-1e400": "-1e400", "1e-400": "1e-400", "twice": '{"a":1,"a":2}', "twice, escaped": '{"a":1,"\\u0061":2}', "twice, deep": '{"x":[{"a":1,"b":2,"a":3}]}', "65 lists": "[" * 65 + "]" * 65, "a thousand maps": '{"a":' * 1000 + "1" + "}" * 1000, "100,000 lists": "[" * 100000, "60,000 values": "[" + ",".join("1" * 60000) + "]", "a lone surrogate": '"\\ud800"', "NaN": "NaN", "Infinity": "-Infinity", "a comment": "1/*x*/", "a comma behind": "[1,]", "a leading zero": "007", "plus": "+1", "hex": "0x1F", "single quotes": "'x'", "a raw control": '"a\x01b"', "a raw break": '"a\nb"', "two values": "1 2", "cut": '{"a":', "1e99999999999": "1e99999999999", "a dot": "1.", "minus": "-", "0.000…1": "0." + "0" * 400 + "1"}
    for where, (method, path, frame) in entrances.items():
        for name, raw in bad.items():
            s, said = v.http(method, path, raw=(frame % raw).encode(), **who)
            check(T, f"{where} with {name} is refused with a reason", s in (400, 413) and len(json.dumps(said)) > 40, (s, str(said)[:300]))
        for name, raw in {"2^64-1": "18446744073709551615", "-2^63": "-9223372036854775808", "2^53+1": "9007199254740993", "64 lists but few": "[" * 50 + "]" * 50, "1e308": "1e308", "a surrogate pair": '"\\ud83d\\ude00"'}.items():
            s, said = v.http(method, path, raw=(frame % raw).encode(), **who)
            check(T, f"{where} with {name} is taken", s < 300 or where == "an agent", (s, str(said)[:300]))
            if where == "a write":
                s, back = v.run("lattice/read", {"path": "w/n"}, **who)
                check(T, f"{name} is read as it was written", back.get("value") == json.loads(raw), (back, raw[:40]))


def files(v):
    """What `--config`, `@file` and agent files may name."""
    f = v.folder / "files"
    f.mkdir()
    (f / "ok.toml").write_text("[worker]\nslots = 3\n")
    (f / "big.toml").write_text("# " + "x" * 40_000_000)
    (f / "long.toml").write_text("[worker]\nslots = " + "9" * 2_000_000)
    (f / "bin.toml").write_bytes(b"\x00\xff\xfe" * 1000)
    (f / "bom.toml").write_bytes(b"\xef\xbb\xbf[worker]\nslots = 3\n")
    (f / "deep.toml").write_text("a = " + "[" * 100000)
    (f / "deeper.toml").write_text("[" + ".".join("a" * 60000) + "]\n")
    (f / "twice.toml").write_text("[worker]\nslots = 3\nslots = 4\n")
    (f / "unknown.toml").write_text("[worker]\nslotz = 3\n")
    (f / "type.toml").write_text("[worker]\nslots = \"many\"\n")
    (f / "secret.toml").write_text("[store]\nurl = \"redis://u:canary-pass@h:1\"\nurl_fil = 5\n")
    (f / "esc.toml").write_text("[worker]\nslots = \"\x1b]0;evil\x07\"\n".replace("\x1b", "\\u001b").replace("\x07", "\\u0007"))
    (f / "noread.toml").write_text("[worker]\n")
    os.mkfifo(f / "fifo")
    os.symlink("/dev/zero", f / "zero")
    os.symlink(f / "ring", f / "ring")
    os.symlink("/etc/shadow", f / "shadow")
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(f / "sock"))
    names = [f / n for n in ("big.toml", "long.toml", "bin.toml", "deep.toml", "deeper.toml", "twice.toml", "unknown.toml", "type.toml", "secret.toml", "esc.toml", "fifo", "zero", "ring", "shadow", "sock", ".", "missing")] + [pathlib.Path(p) for p in ("/dev/zero", "/dev/stdin", "/dev/random", "/proc/self/mem", "/dev/full", "/dev/tty", "/")]
    for p in names:
        began = time.time()
        for what, args in {"--config": ["--config", str(p), "config", "show"], "agent apply": ["agent", "apply", str(p)], "@file": ["lattice", "write", "w/f", f"@{p}"], "submit @file": ["submit", "e", f"@{p}"], "--attach": ["submit", "e", "x", "--attach", str(p)], "secret @file": ["secret", "set", "FILE", f"@{p}"], "--token-file": ["agent", "list", "--token-file", str(p)], "keys": ["config", "show", "--set", f"secrets.key_file={p}"]}.items():
            if str(p) == "/dev/tty" and what != "--config":
                continue
            try:
                done = v.cli(*args, input=b"", timeout=20)
            except subprocess.TimeoutExpired:
                check(T, f"{what} of {p.name or p} ends", False, "20 s")
                continue
            err = done.stderr.decode(errors="replace")
            text = err + done.stdout.decode(errors="replace")
            regular = p.exists() and p.is_file() and not p.is_symlink()
            check(T, f"{what} of {p.name or p} is refused with a reason, or taken as a file", (done.returncode != 0 and len(err) > 10) or regular or what == "keys" or p.name == "shadow" and what in ("@file", "--attach", "submit @file", "secret @file"), (done.returncode, text[:200]))
            check(T, f"{what} of {p.name or p} says no more than a bounded line", len(text) < 20000 and "\x1b]" not in text and "panicked" not in text and "\x07" not in text, (len(text), text[:200]))
            if p.name == "secret.toml" and what == "--config":
                check(T, "no password of a file is shown", "canary-pass" not in text, text[:300])
    done = v.cli("--config", str(f / "ok.toml"), "config", "show")
    check(T, "a regular file is taken", done.returncode == 0 and b"3" in done.stdout, done.stderr)
    done = v.cli("--config", str(f / "bom.toml"), "config", "show")
    check(T, "a byte order mark is taken or refused with a reason", done.returncode in (0, 2) and (done.returncode == 0 or len(done.stderr) > 20), done.stderr)
    for key, value in (("worker.slots", "-1"), ("worker.slots", "1e3"), ("worker.slots", "99999999999999999999"), ("worker.slots", "0"), ("worker.lease", "0s"), ("worker.lease", "-1s"), ("worker.lease", "99999999999d"), ("worker.sweep", "0s"), ("http.connections", "0"), ("http.listen", "0.0.0.0:1"), ("http.listen", "x"), ("http.body_limit", "99999999999"), ("store.prefix", ""), ("store.prefix", "a\nb"), ("bus.prefix", "a.b"), ("bus.prefix", "*"), ("bus.prefix", ">"), ("venue.name", ""), ("venue.name", "a\nb"), ("worker.name", "a\nINFO forged"), ("log.level", "loud"), ("log.format", "xml"), ("models.proxy", "ftp://x"), ("models.proxy", "http://u:canary-pass@"), ("http_client.proxy", "http://h:99999"), ("http_client.proxy", "socks5://u:canary-pass@h:1"), ("models.proxy_file", "/dev/zero"), ("http_client.no_proxy", "10.0.0.0/99"), ("http_client.allow_hosts", "http://x/"), ("models.limits", "openai:requests=-1"), ("retention.jobs", "-1d"), ("retention.jobs", "x"), ("quota.bytes", "101%"), ("quota.bytes", "-1"), ("quota.bytes", "1.5"), ("store.url", "redsi://u:canary-pass@h:1"), ("bus.url", "nast://u:canary-pass@h:1"), ("models.scripted", "/nowhere"), ("models.calls_log", "/nowhere/x"), ("spend.zone", "x"), ("auth.mode", "maybe"), ("nothing.here", "1"), ("", "1"), ("worker", "1"), ("worker.slots.x", "1"), ("resources.kinds.x.url", "ftp://x"), ("grants.protected", "../x")):
        done = v.cli("config", "show", "--set", f"{key}={value}")
        err = done.stderr.decode(errors="replace")
        check(T, f"the setting {key}={value[:24]!r} is refused by its name", done.returncode == 2 and (key.split(".")[-1] in err or not key), (done.returncode, err[:200] or done.stdout[-200:]))
        check(T, f"the setting {key}={value[:24]!r} shows no password and forges no line", "canary-pass" not in err and not any(l.startswith("INFO forged") for l in err.splitlines()), err[:300])
