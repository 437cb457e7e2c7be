"""Submits one task per order, as a help desk would: `triage_tickets.py URL PREFIX ORDER...`.

Each has the order in its id, so that one sent again is the same job. Prints a line `ORDER JOB` for each.
"""

import asyncio
import json
import sys

import nats
from nats.errors import NoRespondersError, TimeoutError


async def submit(nc, subject, order):
    body = json.dumps({"input": {"order": order}, "sessionId": f"ticket-{order}"}).encode()
    for _ in range(120):
        try:
            answer = await nc.request(subject, body, headers={"Trellis-Id": f"ticket-{order}"}, timeout=2)
        except (NoRespondersError, TimeoutError):
            # Whoever would have answered was killed. Under its id it may be sent again.
            await asyncio.sleep(0.25)
            continue
        receipt = json.loads(answer.data)
        if "error" in receipt:
            raise SystemExit(f"{order}: {receipt['error']}")
        return receipt["job"]
    raise SystemExit(f"{order}: nobody answered")


async def main(url, prefix, orders):
    nc = await nats.connect(url)
    subject = f"{prefix}.do.local.me.triage.task"
    for order in orders:
        print(order, await submit(nc, subject, order), flush=True)
    await nc.close()


asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
