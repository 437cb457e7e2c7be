"""Submits tasks to a Trellis fleet with a plain NATS client: `nats_client.py URL PREFIX`.

Expects a worker of that fleet, its owner `local/me`, an agent `echo` (scripted model `echo`) and an agent `slow`
that takes about a second. Ends with status 0 and the line `ok` when everything was as it should be.
"""

import asyncio
import json
import sys

import nats
from nats.js.api import DeliverPolicy

LIMIT = 60.0


def expect(what, actual, expected):
    if actual != expected:
        raise SystemExit(f"{what}: expected {expected!r}, got {actual!r}")


def encode(name):
    """A name as one token of a subject."""
    plain = "_:@=+-"
    return "".join(
        chr(b) if chr(b).isascii() and (chr(b).isalnum() or chr(b) in plain) else f"%{b:02X}" for b in name.encode()
    )


class Listener:
    """Everything that came on a subscription."""

    def __init__(self, what, subscription):
        self.what, self.subscription, self.seen = what, subscription, []

    async def until(self, what, wanted):
        """The first message for which `wanted` is true, already here or yet to come."""
        for message in self.seen:
            if wanted(*message):
                return message
        while True:
            try:
                message = await self.subscription.next_msg(timeout=LIMIT)
            except nats.errors.TimeoutError:
                raise SystemExit(f"{what}: nothing on {self.what} in {LIMIT} s, only {self.seen!r}") from None
            self.seen.append((message.subject, json.loads(message.data)))
            if wanted(*self.seen[-1]):
                return self.seen[-1]

    def of(self, event):
        return [body for _, body in self.seen if body["id"] == event]


class Fleet:
    def __init__(self, client, prefix):
        self.client, self.js, self.prefix = client, client.jetstream(), prefix

    async def start(self):
        self.out = Listener("out", await self.js.subscribe(
            f"{self.prefix}.out.local.me.>", ordered_consumer=True, deliver_policy=DeliverPolicy.ALL))

    async def publish(self, agent, event, body, kind="task"):
        """Stored in the stream when this returns; gives its sequence there."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        subject = f"{self.prefix}.in.local.me.{encode(agent)}.{kind}"
        ack = await self.js.publish(subject, data, headers={"Trellis-Id": event}, timeout=LIMIT)
        return ack.seq

    async def inbox(self):
        subject = self.client.new_inbox()
        listener = Listener(subject, await self.client.subscribe(subject))
        await self.client.flush()
        return subject, listener

    async def completion(self, event):
        return await self.out.until(f"completion of {event}", lambda _, body: body["id"] == event)

    async def quiet(self, event):
        """Everything submitted before has been seen to: a task after it has."""
        await self.publish("echo", event, {"input": "quiet"})
        await self.completion(event)

    async def is_drained(self):
        stream = self.prefix.upper()
        for _ in range(1200):
            consumer = await self.js.consumer_info(stream, "workers")
            messages = (await self.js.stream_info(stream)).state.messages
            if (consumer.num_ack_pending, consumer.num_pending, messages) == (0, 0, 0):
                return
            await asyncio.sleep(0.05)
        raise SystemExit(f"not everything was acknowledged: {consumer}, {messages} messages")


async def twenty_tasks(fleet):
    for n in range(20):
        await fleet.publish("echo", f"t{n}", {"input": f"hello {n}"})
    for n in range(20):
        subject, body = await fleet.completion(f"t{n}")
        expect(f"t{n}", (body["status"], body["output"], body["agent"]), ("COMPLETE", f"hello {n}", "echo"))
        expect(f"subject of t{n}", subject, f"{fleet.prefix}.out.local.me.echo.{body['job']}")


async def answers_to_an_inbox(fleet):
    inbox, answers = await fleet.inbox()
    body = {"input": "reply please", "replyTo": inbox}
    await fleet.publish("echo", "with.inbox", body)
    _, first = await answers.until("reply", lambda *_: True)
    expect("reply", (first["id"], first["status"], first["output"]), ("with.inbox", "COMPLETE", "reply please"))
    for again in range(2):
        await fleet.publish("echo", "with.inbox", body)
        await answers.until(f"reply to the duplicate {again}", lambda *_: len(answers.seen) == 2 + again)
    expect("replies", [body for _, body in answers.seen], [first] * 3)
    own = "trellis.reply.local.me.desk"
    listener = Listener(own, await fleet.client.subscribe(own))
    await fleet.publish("echo", "with-own-subject", {"input": "here", "replyTo": own})
    _, answer = await listener.until("reply", lambda *_: True)
    expect("reply on an own subject", answer["output"], "here")


async def duplicates(fleet):
    for n in range(5):
        await fleet.publish("echo", f"t{n}", {"input": f"hello {n}"})
    inbox, answers = await fleet.inbox()
    body = {"input": "long", "replyTo": inbox}
    await fleet.publish("slow", "slow", body)
    await fleet.publish("slow", "slow", body)
    await answers.until("reply of a duplicate of a running job", lambda *_: True)
    await fleet.quiet("after-duplicates")
    for event in [*(f"t{n}" for n in range(20)), "with.inbox", "slow"]:
        expect(f"completions of {event}", len(fleet.out.of(event)), 1)


async def conflicts(fleet):
    inbox, answers = await fleet.inbox()
    for agent, kind, event, body in [
        ("echo", "task", "t0", {"input": "something else"}),
        ("echo", "task", "t1", {"input": "hello 1", "sessionId": "elsewhere"}),
        ("slow", "task", "t2", {"input": "hello 2"}),
        ("echo", "message", "t3", {"input": "hello 3"}),
    ]:
        await fleet.publish(agent, event, {**body, "replyTo": inbox}, kind)
        _, answer = await answers.until(f"conflict of {event}", lambda _, body: body["id"] == event)
        await rejected(fleet, agent, event, event, "CONFLICT", "another body", answer)
        expect(f"completions of {event}", [b["status"] for b in fleet.out.of(event)], ["COMPLETE", "REJECTED"])
    # Without an inbox of its own, the submission is another too.
    await fleet.publish("slow", "t4", {"input": "hello 4"})
    await rejected(fleet, "slow", "t4", "t4", "CONFLICT", "another body")


async def rejected(fleet, agent, event, token, code, text, answer=None):
    subject = f"{fleet.prefix}.out.local.me.{encode(agent)}.{encode(token)}"
    _, body = await fleet.out.until(f"refusal of {event}", lambda seen, _: seen == subject)
    expect(f"refusal of {event}", (body["status"], body["errorCode"]), ("REJECTED", code))
    if text not in body["error"]:
        raise SystemExit(f"refusal of {event}: expected `{text}` in {body['error']!r}")
    if answer is not None:
        expect(f"answer to {event}", answer, body)


async def refusals(fleet):
    inbox, answers = await fleet.inbox()
    for agent, event, body, text, has_answer in [
        ("echo", "bad.json", b'{"input": ', "malformed submission", False),
        ("echo", "no-object", b'"hello"', "malformed submission", False),
        ("echo", "unknown-key", {"inptu": 1, "replyTo": inbox}, "`inptu`", True),
        ("no.body", "unknown-agent", {"input": 1, "replyTo": inbox}, "no such agent", True),
        ("echo", "too-large", {"input": "x" * 950_000, "replyTo": inbox}, "expected at most 900000", True),
        ("echo", "bad-session", {"input": 1, "sessionId": "a/b", "replyTo": inbox}, "`/` is not allowed", True),
        ("echo", "forbidden-1", {"input": 1, "replyTo": f"{fleet.prefix}.in.local.me.echo.task"}, "`replyTo`", False),
        ("echo", "forbidden-2", {"input": 1, "replyTo": "trellis.reply.local.you.x"}, "`replyTo`", False),
        ("echo", "forbidden-3", {"input": 1, "replyTo": "_INBOX.>"}, "`replyTo`", False),
    ]:
        await fleet.publish(agent, event, body)
        answer = None
        if has_answer:
            _, answer = await answers.until(f"answer to {event}", lambda _, body: body["id"] == event)
        await rejected(fleet, agent, event, event, "REFUSED", text, answer)
    for event, text in [("a b", "whitespace"), ("a/b", "`/` is not allowed"), ("x" * 129, "at most 128 bytes")]:
        sequence = await fleet.publish("echo", event, {"input": 1, "replyTo": inbox})
        # Its id can't be named, so its place in the stream is.
        wanted = lambda _, body: body["id"].startswith("venue:seq-") and f"-{sequence}-" in body["id"]
        _, answer = await answers.until(f"answer to {event}", wanted)
        await rejected(fleet, "echo", event, answer["id"], "REFUSED", text, answer)
    expect("answers", len(answers.seen), 7)


async def main(url, prefix):
    client = await nats.connect(url)
    fleet = Fleet(client, prefix)
    await fleet.start()
    for part in [twenty_tasks, answers_to_an_inbox, duplicates, conflicts, refusals]:
        await part(fleet)
    await fleet.quiet("last")
    await fleet.is_drained()
    await client.close()
    print(f"ok nats-py {nats.__version__ if hasattr(nats, '__version__') else ''}")


asyncio.run(main(*sys.argv[1:]))
