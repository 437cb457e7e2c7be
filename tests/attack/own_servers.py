"""Attacks what all owners share of models, from an owner's own server under a provider's name: caps of models, rate limits, the
learned bytes per token. Expected: what such a server says, and how long it takes, costs nobody else anything.
The server is on loopback, which this venue allows."""

import json
import threading
import time

import venue
from venue import check

T = "own_servers"
PORT = venue.free_port()
SETS = ["spend.models=local:tokens=100000", "models.limits=local:tokens=200000:concurrency=2", f"http_client.allow_hosts=127.0.0.1:{PORT}", "http_client.allow_private=true"]


def usage(text):
    """A reply that counts its tokens as `text` says."""
    def send(handler, _):
        first = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "ok"}, "finish_reason": None}]}
        last = json.dumps({**first, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})[:-1] + ', "usage": ' + text + "}"
        data = f"data: {json.dumps(first)}\n\ndata: {last}\n\ndata: [DONE]\n\n".encode()
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)
    return venue.Raw(send)


def attack(v):
    one, other = ({"token": v.issue("evil/eve")}, {"token": v.issue("acme/ann")}) if v.mode == "jwt" else ({"owner": "evil/eve"}, {"owner": "acme/ann"})
    own = venue.Model()
    # At a port that the venue's settings could name before.
    server = type(own.server)(("127.0.0.1", PORT), own.server.RequestHandlerClass)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    host = f"127.0.0.1:{PORT}"
    s, said = v.http("PUT", "/secrets/KEY", {"value": "k" * 20, "hosts": [host]}, **one)
    check(T, "the key of the own server is kept", s in (200, 201), (s, said))

    def agent(id, name, who, **more):
        s, said = v.http("PUT", f"/agents/{id}", {"model": {"provider": "local", "name": name, "maxTokens": 500, **more}}, **who)
        check(T, f"{id} is made", s in (200, 201), (s, said))

    def task(id, who, wait=6000):
        return v.http("POST", f"/agents/{id}/tasks?wait={wait}", {"input": "x" * 2_000}, timeout=20, **who)[1]

    at_own = {"baseUrl": f"http://{host}/v1/", "key": "s/KEY"}
    v.model.says("fine", ["fine"])
    agent("honest", "fine", other)
    for n, text in enumerate(['{"prompt_tokens":5000000,"completion_tokens":5}', '{"prompt_tokens":18446744073709551615,"completion_tokens":18446744073709551615}', '{"prompt_tokens":-1,"completion_tokens":-1}',
                              '{"prompt_tokens":1e300,"completion_tokens":1e300}', '{"prompt_tokens":1.5,"completion_tokens":"7"}', "null", "[]", "{}", '{"prompt_tokens":0,"completion_tokens":0}',
                              '{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":18446744073709551615}}']):
        own.says(f"liar{n}", [usage(text)])
        agent("liar", f"liar{n}", one, **at_own)
        job = task("liar", one)
        check(T, f"a server that says {text[:50]} ends a task", job.get("status") in ("COMPLETE", "FAILED", "STARTED"), job)
        job = task("honest", other)
        check(T, f"another owner goes on after {text[:50]}", job.get("status") == "COMPLETE", (job.get("status"), job.get("error"), job.get("waiting")))

    # Servers that hang hold none of the venue's places.
    def hang(_):
        time.sleep(12)
        return "late"

    own.says("hangs", [hang])
    agent("hangs", "hangs", one, **at_own)
    for n in range(4):
        v.http("POST", "/agents/hangs/tasks", {"input": n}, **one)
    time.sleep(1)
    job = task("honest", other, wait=5000)
    check(T, "servers that hang take no place of others", job.get("status") == "COMPLETE", (job.get("status"), job.get("waiting")))

    # The bytes per token of a model, as one owner's server counts them, are nothing to another's prompts.
    agent("budget", "shared", other, contextWindow=8000)

    def room():
        return v.http("POST", "/agents/budget/context", {}, **other)[1].get("ledger", {}).get("budget")

    before = room()
    for per in (1.2, 7.5):
        own.says("shared", [lambda body, per=per: usage(json.dumps({"prompt_tokens": max(100, int(len(json.dumps(body)) / per)), "completion_tokens": 1}))])
        agent("skews", "shared", one, **at_own)
        for _ in range(12):
            task("skews", one)
        check(T, f"{per} bytes per token change no other prompt", room() == before, (before, room()))
    server.shutdown()
    own.server.shutdown()
