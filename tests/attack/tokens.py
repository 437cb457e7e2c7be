"""Attacks tokens: bad signatures, algorithms, keys, times, audiences, subjects, chains that widen, tokens that speak for others,
attenuations in odd shapes, over HTTP and over NATS. Expected: 401 (or 403 for another owner), nothing stored, no answer with data."""

import asyncio
import base64
import hashlib
import hmac
import json
import time

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from venue import check

T = "tokens"
AUD = "did:web:attack.example"


def b64(x):
    return base64.urlsafe_b64encode(x if isinstance(x, bytes) else json.dumps(x).encode()).rstrip(b"=").decode()


def key_of(path):
    d = json.loads(path.read_text())["d"]
    return Ed25519PrivateKey.from_private_bytes(base64.urlsafe_b64decode(d + "=="))


def sign(key, header, claims):
    head = b64(header) + "." + (b64(claims))
    return head + "." + b64(key.sign(head.encode()))


def attack(v):
    now = int(time.time())
    k1, k2, mine = key_of(v.issuer), key_of(v.other), Ed25519PrivateKey.generate()
    x1 = base64.urlsafe_b64decode(json.loads(v.issuer.read_text())["x"] + "==")
    h = {"typ": "JWT", "alg": "EdDSA", "kid": "k1"}
    c = {"iss": "trellis", "sub": "acme/ann", "aud": AUD, "iat": now, "exp": now + 600}
    good = sign(k1, h, c)
    check(T, "a good token is taken", v.http("GET", "/agents", token=good)[0] == 200, v.http("GET", "/agents", token=good))
    v.write("w/x", "canary-tok", token=good)
    v.agent(["fine"], name="tok", token=good)
    hs = lambda secret: (lambda head: head + "." + b64(hmac.new(secret, head.encode(), hashlib.sha256).digest()))(b64({"alg": "HS256", "typ": "JWT", "kid": "k1"}) + "." + b64(c))
    bad = {
        "none": b64({"alg": "none", "kid": "k1"}) + "." + b64(c) + ".", "None": b64({"alg": "None"}) + "." + b64(c) + ".", "no signature": good.rsplit(".", 1)[0] + ".", "two parts": good.rsplit(".", 1)[0], "four parts": good + ".x", "HS256 with the public key": hs(x1), "HS256 with the key set": hs(v.keys.read_bytes()),
        "another's key": sign(mine, h, c), "the other issuer's key": sign(k2, h, c), "kid of another": sign(k1, {**h, "kid": "k2"}, c), "kid unknown": sign(k1, {**h, "kid": "nope"}, c), "kid path": sign(k1, {**h, "kid": "../../etc/passwd"}, c), "kid list": sign(k1, {**h, "kid": ["k1"]}, c),
        "a jwk of its own": sign(mine, {**h, "jwk": {"kty": "OKP", "crv": "Ed25519", "x": b64(mine.public_key().public_bytes_raw())}}, c), "jku": sign(mine, {**h, "jku": "http://127.0.0.1:1/x"}, c), "crit": sign(k1, {**h, "crit": ["exp"]}, c), "ES256": sign(k1, {**h, "alg": "ES256"}, c), "eddsa in small": sign(k1, {**h, "alg": "eddsa"}, c), "b64 false": sign(k1, {**h, "b64": False, "crit": ["b64"]}, c),
        "expired": sign(k1, h, {**c, "exp": now - 60}), "not yet": sign(k1, h, {**c, "nbf": now + 60}), "no exp": sign(k1, h, {k: x for k, x in c.items() if k != "exp"}), "exp text": sign(k1, h, {**c, "exp": str(now + 600)}), "exp negative": sign(k1, h, {**c, "exp": -1}), "exp list": sign(k1, h, {**c, "exp": [now + 600]}), "exp null": sign(k1, h, {**c, "exp": None}), "exp huge": sign(k1, h, {**c, "exp": 10**30}), "nbf text": sign(k1, h, {**c, "nbf": "x"}),
        "other aud": sign(k1, h, {**c, "aud": "did:web:other"}), "no aud": sign(k1, h, {k: x for k, x in c.items() if k != "aud"}), "aud empty": sign(k1, h, {**c, "aud": ""}), "aud list of others": sign(k1, h, {**c, "aud": ["x", "y"]}), "aud prefix": sign(k1, h, {**c, "aud": AUD + "."}), "aud *": sign(k1, h, {**c, "aud": "*"}), "aud null": sign(k1, h, {**c, "aud": None}), "aud upper": sign(k1, h, {**c, "aud": AUD.upper()}),
        "no sub": sign(k1, h, {k: x for k, x in c.items() if k != "sub"}), "sub empty": sign(k1, h, {**c, "sub": ""}), "sub one part": sign(k1, h, {**c, "sub": "acme"}), "sub three parts": sign(k1, h, {**c, "sub": "acme/ann/x"}), "sub slash": sign(k1, h, {**c, "sub": "/ann"}), "sub dots": sign(k1, h, {**c, "sub": "../ann"}), "sub list": sign(k1, h, {**c, "sub": ["acme/ann"]}), "sub zero": sign(k1, h, {**c, "sub": "acme/ann\u0000"}), "sub hidden": sign(k1, h, {**c, "sub": "acme/a\u200bnn"}),
        "k2 for another tenant": sign(k2, {**h, "kid": "k2"}, {**c, "sub": "other/ann"}), "k2 for a tenant that begins alike": sign(k2, {**h, "kid": "k2"}, {**c, "sub": "acmex/ann"}), "k2 in capitals": sign(k2, {**h, "kid": "k2"}, {**c, "sub": "ACME/ann"}), "a did of one's own": sign(mine, {"alg": "EdDSA", "typ": "JWT"}, {**c, "iss": "did:key:z6Mk", "sub": "did:key:z6Mk"}),
        "att text": sign(k1, h, {**c, "att": "*"}), "att map": sign(k1, h, {**c, "att": {"with": "", "can": "*"}}), "att lists": sign(k1, h, {**c, "att": [["", "*"]]}), "att null key": sign(k1, h, {**c, "att": [{"with": None, "can": "*"}]}), "att extra": sign(k1, h, {**c, "att": [{"can": "*"}]}), "prf text": sign(k1, h, {**c, "prf": "x"}), "prf of garbage": sign(k1, h, {**c, "prf": ["x.y.z"]}), "prf of itself": sign(k1, h, {**c, "prf": [good]}),
        "claims twice": (lambda head: head + "." + b64(k1.sign(head.encode())))(b64(h) + "." + b64(('{"sub":"acme/bob",' + json.dumps(c)[1:]).encode())), "claims deep": (lambda head: head + "." + b64(k1.sign(head.encode())))(b64(h) + "." + b64((json.dumps(c)[:-1] + ',"x":' + "[" * 4000 + "]" * 4000 + "}").encode())), "claims list": sign(k1, h, [c]), "header list": sign(k1, [h], c), "padding": good + "=", "spaces": good.replace(".", " ."), "huge": "x" * 20000, "empty": " ", "dots": "..", "bytes": "\x01.\x02.\x03",
    }
    for name, token in bad.items():
        for method, path, body in (("GET", "/values/read?path=w/x", None), ("POST", "/agents/tok/tasks", {"input": 1}), ("POST", "/run", {"operation": "v/ops/lattice/read", "input": {"path": "w/x"}})):
            try:
                s, said = v.http(method, path, body, token=token)
            except ValueError:
                s, said = 401, "client refuses"
            check(T, f"{name}: {method} {path[:14]} is refused", s in (400, 401, 403, 431) and "canary" not in json.dumps(said), (s, said))
    for header in ("Basic YTpi", "bearer", "Bearer", "Bearer  ", "Token " + good, "Bearer " + good + ", Bearer " + good, "Bearer\u00a0" + good):
        s, said = v.http("GET", "/values/read?path=w/x", headers={"Authorization": header.encode("latin-1").decode("latin-1")})
        check(T, f"the header {header[:12]!r} is refused", s in (400, 401, 403), (s, said))
    for method, path in (("GET", "/agents"), ("GET", "/jobs"), ("GET", "/secrets"), ("GET", "/timers"), ("GET", "/approvals"), ("GET", "/assets"), ("GET", "/why?path=w"), ("POST", "/run"), ("POST", "/invoke"), ("PUT", "/agents/x"), ("DELETE", "/agents/tok"), ("GET", "/agents/tok/turns"), ("GET", "/values/list?path=w"), ("POST", "/agents/tok/tasks"), ("POST", "/agents/tok/messages"), ("POST", "/assets"), ("PUT", "/secrets/x"), ("POST", "/agents/tok/timers"), ("POST", "/agents/tok/context")):
        s, said = v.http(method, path, {} if method != "GET" else None)
        check(T, f"without a token {method} {path} is 401", s == 401, (s, said))
        s, said = v.http(method, path, {} if method != "GET" else None, token=good, owner="acme/bob")
        check(T, f"for another owner {method} {path} is denied", s in (401, 403, 404), (s, said))
    # Narrowed: what `att` grants and no more.
    for att, canread in (([], False), ([{"with": "w/x", "can": "crud/read"}], True), ([{"with": "w/xy", "can": "*"}], False), ([{"with": "w/x/y", "can": "*"}], False), ([{"with": "w/x", "can": "crud/write"}], False), ([{"with": "w/x", "can": "cru"}], False), ([{"with": "w/x ", "can": "*"}], False), ([{"with": "w/x\ufeff", "can": "*"}], False), ([{"with": "w", "can": "crud/readx"}], False), ([{"with": "w", "can": "CRUD"}], False), ([{"with": "w/*", "can": "*"}], False)):
        t = sign(k1, h, {**c, "att": att})
        s, said = v.read("w/x", token=t)
        check(T, f"att {att} reads {'it' if canread else 'nothing'}", ("canary" in json.dumps(said)) == canread, (s, said))
        for op, input in (("lattice/write", {"path": "w/z", "value": 1}), ("agent/create", {"agentId": "evil", "config": {"model": {"provider": "scripted", "name": "echo"}}}), ("agent/request", {"agentId": "tok", "input": 1}), ("policy/roots", {"caps": None}), ("secret/set", {"name": "SS", "value": "12345678"}), ("resource/purge", {"namespace": "app"}), ("policy/revoke", {"path": "w"}), ("dead/list", {}), ("agent/trigger", {"agentId": "tok", "input": 1, "after": "1h"})):
            s, said = v.run(op, input, token=t)
            check(T, f"att {att} can't {op}", s in (400, 401, 403, 404) or (op == "dead/list" and not said.get("items")) , (s, said))
    t = sign(k1, h, {**c, "att": [{"with": "g/tok", "can": "agent/request"}]})
    s, said = v.http("POST", "/agents/tok/tasks?wait=4000", {"input": 1}, token=t)
    check(T, "a narrow token asks the agent that it names", s in (200, 202), (s, said))
    v.agent([[("lattice_read", {"path": "w/x"}), ("lattice_write", {"path": "w/y", "value": 1}), ("job_run", {"operation": "v/ops/secret/list", "input": {}})], "done"], name="tok2", token=good)
    m = v.last_model
    t = sign(k1, h, {**c, "att": [{"with": "g/tok2", "can": "agent/request"}]})
    v.http("POST", "/agents/tok2/tasks?wait=5000", {"input": 1}, token=t)
    check(T, "who may only ask an agent gets by it nothing else", "canary-tok" not in json.dumps(v.model.seen.get(m, [])), "")
    # As operator: only without limits.
    root = sign(k1, h, {**c, "sub": "acme/root"})
    check(T, "an operator acts for others", v.read("w/x", token=root, owner="acme/ann")[0] == 200, v.read("w/x", token=root, owner="acme/ann"))
    for att in ([], [{"with": "", "can": "*"}], [{"with": "w", "can": "*"}]):
        t = sign(k1, h, {**c, "sub": "acme/root", "att": att})
        s, said = v.read("w/x", token=t, owner="acme/ann")
        check(T, f"an operator's token with att {att} is no operator's", s in (401, 403) and "canary" not in json.dumps(said), (s, said))
    t = sign(k2, {**h, "kid": "k2"}, {**c, "sub": "acme/root"})
    # k2 speaks for acme, acme/root included: the guide says that naming an operator trusts those who sign for it.
    s, said = v.http("GET", "/agents", token=t, owner="other/x")
    check(T, "an operator is whom an issuer of its tenant signs", s == 200, (s, said))
    asyncio.run(over_nats(v, bad, good, sign, k1, h, c))


async def over_nats(v, bad, good, sign, k1, h, c):
    import nats
    nc = await nats.connect(v.nats)
    js = nc.jetstream()
    model = v.model.scripts
    before = len(v.http("GET", "/jobs?limit=200", token=good)[1].get("items", []))
    n = 0
    for name, token in list(bad.items()) + [("nothing", None)]:
        headers = {"Trellis-Id": "nb" + str(n)}
        n += 1
        if token is not None:
            headers["Authorization"] = "Bearer " + token
        try:
            await js.publish("trellis.in.acme.ann.tok.task", b'{"input":"evil"}', headers=headers, timeout=3)
        except Exception:
            pass
    for subject, token in (("trellis.in.acme.bob.tok.task", good), ("trellis.in.other.ann.tok.task", good), ("trellis.in.acme.ann.tok.cancel", sign(k1, h, {**c, "att": []})), ("trellis.in.acme.ann.tok.message", sign(k1, h, {**c, "att": [{"with": "g/tok", "can": "agent/request"}]}) if False else sign(k1, h, {**c, "att": []}))):
        await js.publish(subject, b'{"input":"evil"}', headers={"Authorization": "Bearer " + token, "Trellis-Id": "nc" + str(n)})
        n += 1
    await asyncio.sleep(3)
    s, said = v.http("GET", "/jobs?limit=200&details=true", token=good)
    evil = [j for j in said.get("items", []) if isinstance(j, dict) and j.get("input") == "evil" and j.get("status") not in ("REJECTED",)]
    check(T, f"{n} submissions over NATS without a right make no job", not evil, evil[:3])
    for to in ("_INBOX.x", "trellis.reply.acme.bob.x", "trellis.reply.acme.annx.y", "trellis.reply.acme.ann", "trellis.reply.acme.ann.", "trellis.reply.acme.ann.*", "trellis.reply.acme.ann.>", "trellis.reply.acme.ann..x", "trellis.jobs.x", "trellis.reply.acme.%61nn.x", "TRELLIS.reply.acme.ann.x", "trellis.reply.acme.ann.x y", "trellis.reply.acme.ann." + "x" * 5000):
        s, said = v.http("POST", "/agents/tok/tasks", {"input": 1, "replyTo": to}, token=good)
        check(T, f"replyTo {to[:60]} of ann is refused", s in (400, 403, 422), (s, said))
    s, said = v.http("POST", "/agents/tok/tasks", {"input": 1, "replyTo": "trellis.reply.acme.ann.x"}, token=good)
    check(T, "her own inbox is taken", s == 202, (s, said))
    await nc.close()
