"""Attacks files of agents and inputs of commands: YAML, TOML and JSON that are huge, deep, doubled, recursive, tagged, of other encodings or look like one
another; ids by name and key; folders, links, devices; bindings and values in each form. Expected: what is applied is what the file says, anything
else is refused with its place, in a moment, with a small error, and nothing but the named file is read."""

import json
import os
import pathlib
import time

from venue import check

T = "files"
BASE = "model:\n  provider: local\n  name: fx\nsystemPrompt: "


def attack(v):
    who = v.issue("acme/ann") if v.mode == "jwt" else None
    v.owner_token = who
    folder = pathlib.Path(v.folder) / "files"
    folder.mkdir()
    shapes(v, folder)
    keys(v, folder)
    places(v, folder)
    inputs(v, folder)


def apply(v, *args, input=None, timeout=90):
    began = time.time()
    try:
        done = v.cli("agent", "apply", *map(str, args), token=v.owner_token, input=input, timeout=timeout)
    except Exception as e:
        return 99, repr(e), time.time() - began
    return done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace"), time.time() - began


def config(v, name):
    s, said = v.http("GET", f"/agents/{name}", token=v.owner_token)
    return (said.get("config") or said) if s == 200 else None


def shapes(v, folder):
    """Files that no parser should take long for, and that are no agent."""
    lol = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)) + BASE + "x\n"
    for name, ending, text in (
        ("billion laughs", "yaml", lol), ("an anchor that is used", "yaml", "x: &m {provider: local, name: fx}\nmodel: *m\n"), ("a ring of anchors", "yaml", "model: &m\n  provider: *m\n"), ("a merge key", "yaml", "d: &d {provider: local}\nmodel:\n  <<: *d\n  name: fx\n"), ("a key twice", "yaml", BASE + "a\nsystemPrompt: b\n"), ("a tag of python", "yaml", BASE + "!!python/object/apply:os.system ['touch /tmp/attack-evil']\n"), ("a tag of binary", "yaml", BASE + "!!binary aGVsbG8=\n"), ("a local tag", "yaml", BASE + "!include /etc/passwd\n"), ("two documents", "yaml", BASE + "a\n---\n" + BASE + "b\n"), ("a directive", "yaml", "%YAML 1.1\n---\n" + BASE + "a\n"), ("tabs", "yaml", "model:\n\tprovider: local\n"), ("nothing", "yaml", ""), ("only a comment", "yaml", "# x\n"), ("a list", "yaml", "- a\n- b\n"), ("a text", "yaml", "hello"), ("a null", "yaml", "~\n"), ("a number as key", "yaml", BASE + "a\n5: b\n"), ("a map as key", "yaml", BASE + "a\n{a: b}: c\n"), ("a list as key", "yaml", "? [a, b]\n: c\n" + BASE + "a\n"),
        ("deep flow", "yaml", BASE + "[" * 50_000 + "\n"), ("deep flow that ends", "yaml", "context: " + "[" * 20_000 + "]" * 20_000 + "\n" + BASE + "a\n"), ("deep blocks", "yaml", "".join(" " * i + "a:\n" for i in range(3000))), ("infinity", "yaml", "limits:\n  cost: .inf\n" + BASE + "a\n"), ("no number", "yaml", "limits:\n  cost: .nan\n" + BASE + "a\n"), ("an octal", "yaml", "limits:\n  turns: 0o17\n" + BASE + "a\n"), ("an old octal", "yaml", "limits:\n  turns: 017\n" + BASE + "a\n"), ("a base 60", "yaml", "limits:\n  turns: 1:30\n" + BASE + "a\n"), ("a number beyond", "yaml", "limits:\n  turns: 99999999999999999999999\n" + BASE + "a\n"), ("yes", "yaml", "defaultTools: yes\n" + BASE + "a\n"), ("a date", "yaml", BASE + "2026-11-27\n"), ("NUL", "yaml", BASE + "a\0b\n"), ("latin1", "yaml", b"systemPrompt: \xe9\xe8\n"), ("UTF-16", "yaml", (BASE + "a\n").encode("utf-16")), ("a mark in front", "yaml", "\ufeff" + BASE + "a\n"), ("2 MB", "yaml", BASE + "x" * 2_000_000 + "\n"), ("60,000 keys", "yaml", "".join(f"k{i}: v\n" for i in range(60_000))), ("100,000 quotes", "yaml", BASE + "'" * 100_000), ("a block without end", "yaml", "systemPrompt: |\n" + "  x\n" * 100_000 + "model: {provider: local, name: fx}\n"),
        ("a key twice", "toml", '[model]\nprovider = "local"\nname = "fx"\nname = "fy"\n'), ("a table twice", "toml", '[model]\nprovider = "local"\n[model]\nname = "fx"\n'), ("dotted and table", "toml", 'model.provider = "local"\n[model]\nname = "fx"\n'), ("deep tables", "toml", "[" + ".".join(["a"] * 20_000) + "]\n"), ("deep lists", "toml", "x = " + "[" * 20_000 + "]" * 20_000 + "\n"), ("a number beyond", "toml", 'limits.turns = 99999999999999999999\n[model]\nprovider = "local"\nname = "fx"\n'), ("a date", "toml", 'systemPrompt = 2026-11-27\n[model]\nprovider = "local"\nname = "fx"\n'), ("nan", "toml", 'limits.cost = nan\n[model]\nprovider = "local"\nname = "fx"\n'), ("2 MB", "toml", 'systemPrompt = "' + "x" * 2_000_000 + '"\n[model]\nprovider = "local"\nname = "fx"\n'), ("an odd escape", "toml", 'systemPrompt = "\\uD800"\n'),
        ("a key twice", "json", '{"model": {"provider": "local", "name": "fx"}, "systemPrompt": "a", "systemPrompt": "b"}'), ("a key twice by escape", "json", '{"model": {"provider": "local", "name": "fx"}, "systemPrompt": "a", "system\\u0050rompt": "b"}'), ("comments", "json", '{"model": {"provider": "local", "name": "fx"} /* x */}'), ("a comma at the end", "json", '{"model": {"provider": "local", "name": "fx"},}'), ("single quotes", "json", "{'model': {'provider': 'local', 'name': 'fx'}}"), ("bare keys", "json", "{model: {provider: 'local', name: 'fx'}}"), ("a hexadecimal", "json", '{"model": {"provider": "local", "name": "fx"}, "limits": {"turns": 0x10}}'), ("NaN", "json", '{"model": {"provider": "local", "name": "fx"}, "limits": {"cost": NaN}}'), ("deep", "json", '{"context": ' + "[" * 100_000 + "]" * 100_000 + "}"), ("two values", "json", '{"model": {"provider": "local", "name": "fx"}} {}'), ("a surrogate", "json", '{"model": {"provider": "local", "name": "fx"}, "systemPrompt": "\\ud800"}'), ("YAML", "json", BASE + "a\n"), ("JSON", "toml", '{"model": {"provider": "local", "name": "fx"}}'), ("JSON", "yaml", '{"model": {"provider": "local", "name": "fx"}}'), ("TOML", "yaml", '[model]\nprovider = "local"\n'), ("the ending YML", "yml", BASE + "a\n"), ("no ending", "", BASE + "a\n"), ("the ending TXT", "txt", BASE + "a\n"), ("the ending .JSON5", "json5", "{model: {provider: 'local', name: 'fx'}}"),
    ):
        file = folder / (f"f-{abs(hash(name)) % 9999}" + ("." + ending if ending else ""))
        file.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
        code, said, took = apply(v, file)
        check(T, f"a file of {ending} with {name} is applied, or refused with a reason", code in (0, 2) and said.strip() and "panicked" not in said, (code, said[:300]))
        check(T, f"a file of {ending} with {name} takes no longer than a minute", took < 60, round(took, 1))
        check(T, f"a file of {ending} with {name}: what is said is short", len(said) < 8000, len(said))
        if "twice" in name or name in ("two documents", "two values", "a ring of anchors", "no number", "nan", "NaN", "billion laughs", "infinity"):
            check(T, f"a file of {ending} with {name} is refused", code == 2, (code, said[:300]))
        file.unlink()
    check(T, "no file has run anything", not os.path.exists("/tmp/attack-evil"))


def keys(v, folder):
    """What a file says is what is applied."""
    for n, (text, path, want) in enumerate((("defaultTools: no", "defaultTools", None), ("defaultTools: false", "defaultTools", False), ("limits: {turns: 017}", "limits", ({"turns": 17}, None)), ("limits: {turns: 0o17}", "limits", ({"turns": 15}, None)), ("systemPrompt: 1e3", "systemPrompt", ("1e3", None)), ("systemPrompt: true", "systemPrompt", ("true", None)), ("systemPrompt: 1.10", "systemPrompt", ("1.10", None)), ("systemPrompt: 'it''s'", "systemPrompt", "it's"), ("systemPrompt: \"a\\nb\\u0000\"", "systemPrompt", ("a\nb\x00", None)), ("systemPrompt: |-\n  a\n   b\n  c", "systemPrompt", "a\n b\nc"), ("systemPrompt: >-\n  a\n  b", "systemPrompt", "a b"), ("toolArgInjection:\n  lattice_write:\n    value: ${x}", "toolArgInjection", None), ("contextMapping:\n  k: CONSTANT:yes", "contextMapping", None), ("contextMapping:\n  constants:\n    lattice_write:\n      value: no", "contextMapping", None), ("contextMapping:\n  constants:\n    lattice_write:\n      value: 012", "contextMapping", None))):
        file = folder / f"key{n}.yaml"
        file.write_text("model: {provider: local, name: fx}\n" + text + "\n")
        code, said, took = apply(v, file)
        got = config(v, f"key{n}")
        check(T, f"the file with {text[:40]!r} is applied or refused", (code == 0) == (got is not None) and code in (0, 2), (code, said[:200], got))
        if got and want is not None:
            check(T, f"the file with {text[:40]!r} is what it says", got.get(path) in (want if isinstance(want, tuple) else (want,)), got.get(path))


def places(v, folder):
    """Names of files, ids, links, devices, folders."""
    good = "model: {provider: local, name: fx}\n"
    (folder / "sub").mkdir()
    for name in ("a b.yaml", ".yaml", "..yaml", "x\u202ey.yaml", "a.b.c.yaml", "ä.yaml", "-x.yaml", "*.yaml", "x" * 200 + ".yaml", "a\nb.yaml", "a\x1bb.yaml", "CON.yaml"):
        file = folder / "sub" / name
        file.write_text(good)
        code, said, took = apply(v, file)
        check(T, f"a file named {name[:20]!r} is applied, or refused with a reason", code in (0, 2) and said.strip() and "\x1b" not in said, (code, said[:300]))
        file.unlink()
    for ident in ("../x", "a/b", "", " ", "a\0b", "g/x", "\u202e", "x" * 300, 5, True, None, ["a"], "complete_task", "local/me/x"):
        file = folder / "idd.json"
        file.write_text(json.dumps({"id": ident, "model": {"provider": "local", "name": "fx"}}))
        code, said, took = apply(v, file)
        check(T, f"the id {str(ident)[:20]!r} is applied, or refused with a reason", code in (0, 2) and said.strip(), (code, said[:300]))
    for what in ("/dev/zero", "/dev/stdin", "/proc/self/mem", "/proc/self/environ", "/dev/tty", "/", "/etc/shadow", str(folder / "none.yaml"), "s/x", "http://127.0.0.1/x.yaml", "-"):
        code, said, took = apply(v, what, input=b"")
        check(T, f"the file {what[-20:]} is refused at once, without its content", code in (2, 5) and took < 10 and "root:" not in said and len(said) < 4000, (code, round(took, 1), said[:300]))
    loop, many = folder / "loop", folder / "many"
    loop.mkdir(), many.mkdir()
    os.symlink(loop, loop / "self")
    os.symlink("/etc/passwd", loop / "p.json")
    os.symlink("/dev/zero", loop / "z.toml")
    code, said, took = apply(v, loop)
    check(T, "a folder of rings and links to elsewhere is refused at once", code in (2, 5) and took < 10 and "root:x" not in said, (code, round(took, 1), said[:300]))
    for i in range(60):
        (many / f"m{i}.toml").write_text('[model]\nprovider = "local"\nname = "fx"\n' if i < 59 else "broken = [")
    code, said, took = apply(v, many)
    check(T, "of a folder with one broken file none is applied", code == 2 and config(v, "m0") is None, (code, said[:300]))


def inputs(v, folder):
    """Inputs of commands: JSON, text, files."""
    a = v.agent([lambda b: json.dumps(b["messages"][-1]["content"])], name="fin", token=v.owner_token)
    for arg, plain in (("{a: 1}", True), ('{"a": 1, "a": 2}', None), ("[1,", True), ("1e400", None), ("1e-400", None), ("99999999999999999999", None), ("NaN", True), ("'x'", True), ("", None), (" ", None), ("@/etc/shadow", None), ("@/dev/zero", False), ("@" + str(folder), False), ("@none", False), ("@", False), ("\ufeff{}", None), ("[" * 200 + "]" * 200, None), ('{"$secret": "s/x"}', None), ('{"$asset": "a/x"}', None), ("null", None), ("true", None)):
        began = time.time()
        try:
            done = v.cli("submit", "fin", arg, "--wait=40s", token=v.owner_token, timeout=60)
            code, said = done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace")
        except Exception as e:
            code, said = 99, repr(e)
        check(T, f"the input {arg[:24]!r} is submitted, or refused with a reason", code in (0, 2, 3, 5) and said.strip() and time.time() - began < 60, (code, said[:300]))
        if plain is False:
            check(T, f"the input {arg[:24]!r} is refused", code in (2, 5), (code, said[:200]))
    for key in ("user_id=root", "a=" + "[" * 300, "=x", "a", "a=1=2", "tenant_id=x", "a.b=1", "__proto__={}", "a=@/etc/passwd", 'a={"x":1,"x":2}'):
        done = v.cli("submit", "fin", "x", "--context", key, "--wait=5s", token=v.owner_token)
        said = (done.stdout + done.stderr).decode("utf-8", "replace")
        check(T, f"the value {key[:20]!r} is taken, or refused with a reason", done.returncode in (0, 2, 3, 6, 7) and said.strip() and "root:x:" not in said, (done.returncode, said[:300]))
