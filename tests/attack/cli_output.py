"""Attacks the terminal and the files of who uses the CLI: data with control sequences in every table and text, names that are options or
paths, folders of data that others can look into, secrets on the command line, configurations that are hostile. Expected: no control
character of data reaches a terminal, nothing outside of the data folder is touched."""

import json
import os
import pty
import stat
import subprocess
import time

from venue import check

T = "cli"
EVIL = "\x1b[2J\x1b]0;owned\x07\x1b[31mred\x9b31m\x08\x08\r\x00\u202eevil\u2066\x7f\x85"


def on_tty(v, *args):
    """What the command writes to a terminal."""
    parent, child = pty.openpty()
    p = subprocess.Popen([v.binary, *args], stdin=child, stdout=child, stderr=child, env={**v.env, "TERM": "xterm"}, cwd=v.folder)
    os.close(child)
    got = b""
    end = time.time() + 15
    while time.time() < end:
        try:
            more = os.read(parent, 65536)
        except OSError:
            break
        if not more:
            break
        got += more
    p.wait(5)
    os.close(parent)
    return got.decode("utf-8", "replace")


def dirty(text):
    # Colours of the tool itself are SGR sequences; nothing else may stand there.
    import re
    text = re.sub("\x1b\\[[0-9;]*m", "", text).replace("\r\n", "\n")
    return [c for c in text if (ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 or c in "\u202e\u2066\u202a\u2067\u2028"]


def attack(v):
    evil = EVIL.replace("\x00", "")
    v.write("w/evil", {"text": evil, evil: evil, "list": [evil]})
    v.write("w/text", evil)
    v.agent([[("nothing" + evil, {"a": evil}), ("lattice_read", {"path": "w/text"})], evil, evil], {"systemPrompt": evil, "context": [{"ref": "w/text", "label": "l"}, {"text": evil}]}, name="evil")
    for config in ({"description": evil}, {"context": [{"ref": "w/text", "label": "l" + evil}]}, {"contextMapping": {evil: "session.k"}}):
        s, said = v.http("PATCH", "/agents/evil", {"config": config})
        check(T, f"the configuration {list(config)} with control sequences has an answer", s < 500, (s, said))
    s, job = v.task("evil", evil, body={"sessionContext": {"k": evil}})
    v.http("POST", "/agents/evil/messages", {"input": evil})
    v.agent([[("fail_task", {"reason": evil, "error": evil})]], name="fails")
    s, failed = v.task("fails", evil)
    v.agent([[("human_ask", {"title": evil, "asks": [{"id": "q", "type": "choice", "prompt": evil, "choices": [evil, "b"]}]})], "x"], {"tools": ["v/ops/human/ask"]}, name="asks")
    v.http("POST", "/agents/asks/tasks", {"input": evil})
    v.http("POST", "/agents/evil/timers", {"input": evil, "after": "1h", "name": "t"})
    v.http("POST", "/assets", {"content": evil, "name": evil, "description": evil, "contentType": "text/plain"})
    v.run("policy/revoke", {"path": "w/nothing", "reason": evil})
    v.http("PUT", "/agents/fails/suspend", {"reason": evil})
    time.sleep(1)
    sess = job.get("session")
    commands = [["lattice", "read", "w/evil"], ["lattice", "read", "w/text"], ["lattice", "list", "w/evil"], ["lattice", "inspect", "w/evil"], ["lattice", "inspect", "w"], ["agent", "list"], ["agent", "get", "evil"], ["agent", "get", "fails"], ["job", "list"], ["job", "get", job.get("job", "")], ["job", "get", failed.get("job", "")], ["job", "wait", job.get("job", "")], ["job", "wait", failed.get("job", "")], ["job", "watch", job.get("job", "")], ["job", "watch", failed.get("job", "")],
                ["session", "list", "evil"], ["session", "show", "evil", sess or ""], ["session", "show", f"evil/{sess}"], ["turn", "list", "evil"], ["turn", "show", f"evil/{sess}/1"], ["turn", "show", f"evil/{sess}/2"], ["turn", "show", f"evil/{sess}/2", "--prompt"], ["turn", "diff", f"evil/{sess}/1", f"evil/{sess}/2"], ["turn", "replay", f"evil/{sess}/2"], ["turn", "replay", f"evil/{sess}/2", "--without", "w/text"], ["context", "evil"], ["context", "evil", "--prompt"], ["context", "evil", "--task", evil], ["why", "w/text"], ["approvals"], ["timer", "list"], ["policy", "show"], ["dead", "list"],
                ["submit", "evil", evil, "--wait"], ["submit", "fails" + evil, "x"], ["chat", "evil", evil], ["lattice", "read", "w/" + evil], ["agent", "get", evil], ["job", "get", evil], ["resource", "list"], ["secret", "list"], ["message", "evil", evil], ["lattice", "write", "w/" + evil, "x"]]
    for c in commands:
        try:
            out = on_tty(v, *c)
        except ValueError:
            continue
        check(T, f"`{' '.join(c)[:50]!r}` writes no control characters of data to a terminal", not dirty(out), (dirty(out)[:10], out[:300]))
    for c in commands[:12] + commands[15:20]:
        done = v.cli(*c, "--output", "json")
        try:
            json.loads(done.stdout)
            ok = True
        except ValueError:
            ok = done.returncode != 0
        check(T, f"`{' '.join(c)[:40]!r}` --output json is JSON", ok, done.stdout[:200])
        check(T, f"`{' '.join(c)[:40]!r}` --output json has no raw control characters", b"\x1b" not in done.stdout and b"\x07" not in done.stdout, done.stdout[:200])
    # Agent files.
    for name, text in {"alias bomb.yaml": "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(f"b{i}: &b{i} [*{'a' if i == 0 else 'b' + str(i - 1)},*{'a' if i == 0 else 'b' + str(i - 1)},*{'a' if i == 0 else 'b' + str(i - 1)},*{'a' if i == 0 else 'b' + str(i - 1)},*{'a' if i == 0 else 'b' + str(i - 1)},*{'a' if i == 0 else 'b' + str(i - 1)},*{'a' if i == 0 else 'b' + str(i - 1)},*{'a' if i == 0 else 'b' + str(i - 1)}]\n" for i in range(12)), "deep.yaml": "a: " + "[" * 20000, "deep2.yaml": "{" * 3000, "deep.json": '{"a":' * 20000, "deep.toml": "a=" + "[" * 20000, "tag.yaml": "model: !!python/object/apply:os.system ['id']", "twice.json": '{"model":{"provider":"scripted","name":"echo"},"caps":[],"caps":null}', "twice.yaml": "model: {provider: scripted, name: echo}\ncaps: []\ncaps: null", "merge.yaml": "x: &x {caps: null}\n<<: *x\nmodel: {provider: scripted, name: echo}\ncaps: []", "nul.toml": "model = \"a\\u0000\"", "id.json": '{"id":"../../x","model":{"provider":"scripted","name":"echo"}}', "bin.json": "\x00\x01", "dirty.toml": "model = \"" + EVIL.replace("\x00", "") + "\""}.items():
        path = v.folder / name
        path.write_text(text)
        began = time.time()
        done = v.cli("agent", "apply", str(path), timeout=30)
        check(T, f"the file {name} is refused quickly", done.returncode in (1, 2, 6, 7, 5) and time.time() - began < 10, (done.returncode, done.stderr[:200], time.time() - began))
        check(T, f"the file {name} breaks nothing", b"panicked" not in done.stderr and done.returncode >= 0 and b"\x1b[2J" not in done.stderr, (done.returncode, done.stderr[:300]))
    # Files and folders.
    data = v.folder / "data"
    if data.exists():
        check(T, "the data folder is its user's alone", stat.S_IMODE(data.stat().st_mode) == 0o700, oct(data.stat().st_mode))
        check(T, "the key file is its user's alone", stat.S_IMODE((data / "secrets.key").stat().st_mode) == 0o600)
    done = v.cli("token", "keygen", str(v.folder / "k.jwk"))
    check(T, "a key file is its user's alone", stat.S_IMODE((v.folder / "k.jwk").stat().st_mode) == 0o600, done)
    done = v.cli("token", "keygen", str(v.folder / "k.jwk"))
    check(T, "a key is not written over", done.returncode != 0, done)
    done = v.cli("secret", "set", "K", "plainvalue123", input=b"")
    check(T, "a secret is no argument", done.returncode == 2, done)
    done = v.cli("config", "show", "--set", "store.url=redis://u:hidden-pass@127.0.0.1:1", "--set", "bus.url=nats://u:hidden-pass@127.0.0.1:1")
    check(T, "credentials are hidden in `config show`", b"hidden-pass" not in done.stdout + done.stderr, done.stdout[-300:])
    for args in (["doctor"], ["audit"], ["worker"]):
        done = v.cli(*args, "--set", "store.url=redis://u:hidden-pass@127.0.0.1:1", "--set", "bus.url=nats://u:hidden-pass@127.0.0.1:1", timeout=40) if args != ["worker"] else None
        if done:
            check(T, f"credentials are hidden in `{args[0]}`", b"hidden-pass" not in done.stdout + done.stderr, done.stderr[-300:])
    for sets in (["http.listen=0.0.0.0:0"], ["http.listen=0.0.0.0:18999"], ["http.listen=[::]:18999"], ["http.listen=localhost.evil:1"], ["worker.slots=-1"], ["worker.slots=99999999999999"], ["http.body_limit=99999999999999999999"], ["worker.lease=0s"], ["auth.mode=JWT"], ["auth.mode="], ["auth.mode=jwt", "auth.did_keys=did:key:x"], ["nothing.here=1"], ["store.url=embedded:"], ["worker.owner_share=0"], ["worker.owner_share=101"], ["bus.prefix=a.b"], ["bus.prefix=>"], ["bus.prefix=*"], ["store.prefix={x}"]):
        done = v.cli("config", "check", *[x for s in sets for x in ("--set", s)])
        check(T, f"`config check` refuses {sets}", done.returncode != 0, (done.returncode, done.stdout[:200]))
