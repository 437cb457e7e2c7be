"""Asks the workers of a fleet as services of NATS: `nats_service.py URL PREFIX WORKERS`.

Ends with status 0 and the line `ok` when that many workers answer `$SRV.PING`, `INFO` and `STATS`, and `status`.
"""

import asyncio
import json
import re
import sys

import nats

LIMIT = 30.0


async def answers(client, subject, wanted):
    """All answers to one request, as `nats micro` collects them; asked again until there are enough."""
    end = asyncio.get_running_loop().time() + LIMIT
    while True:
        inbox = client.new_inbox()
        replies = await client.subscribe(inbox)
        await client.publish(subject, b"", reply=inbox)
        found = []
        try:
            while len(found) < wanted:
                found.append(json.loads((await replies.next_msg(timeout=1)).data))
        except nats.errors.TimeoutError:
            pass
        await replies.unsubscribe()
        if len(found) >= wanted:
            return found
        if asyncio.get_running_loop().time() > end:
            raise SystemExit(f"{subject}: {len(found)} of {wanted} answers in {LIMIT} s: {found}")


def expect(what, right, got):
    if not right:
        raise SystemExit(f"{what}: {got!r}")


async def main(url, prefix, workers):
    client = await nats.connect(url)
    name = re.sub("[^A-Za-z0-9_]", "-", prefix) + "-worker"
    pings = await answers(client, f"$SRV.PING.{name}", int(workers))
    expect("ids differ", len({ping["id"] for ping in pings}) == int(workers), pings)
    for ping in pings:
        about = ping["metadata"]
        expect("ping", ping["type"] == "io.nats.micro.v1.ping_response" and ping["name"] == name, ping)
        expect("metadata", about["worker"] and about["build"] == ping["version"] and int(about["slots"]) > 0, ping)
    # A request that names no place for the answer ends no service.
    await client.publish(f"{prefix}.srv.status", b"")
    await client.flush()
    status = json.loads((await client.request(f"{prefix}.srv.status", b"", timeout=LIMIT)).data)
    expect("status", status["slots"] > 0 and status["busy"] == 0, status)
    infos = await answers(client, f"$SRV.INFO.{name}", int(workers))
    for info in infos:
        expect("endpoints", [e["subject"] for e in info["endpoints"]] == [f"{prefix}.srv.status"], info)
    stats = await answers(client, f"$SRV.STATS.{name}", int(workers))
    requests = sum(e["num_requests"] for one in stats for e in one["endpoints"])
    expect("requests", requests == 1, stats)
    expect("restarted", {one["id"] for one in stats} == {ping["id"] for ping in pings}, stats)
    await client.close()
    print("ok")


asyncio.run(main(*sys.argv[1:]))
