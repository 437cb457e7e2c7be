"""An external worker: does the jobs that agents give it with `v/ops/queue/publish`. Needs `pip install nats-py`.

    python external_worker.py nats://127.0.0.1:4222 words

Put your own work in the place of `work`. Any number of these may run at the same time; `src/venue/external.rs` says what a
worker in another language has to do.
"""

import asyncio
import json
import sys
import time

import nats

ACK_WAIT = 30  # Seconds until NATS gives the message of a dead worker to another one; its own default.


async def work(input, progress):
    """Counts words. What it returns is the job's output; what it raises is why the job failed."""
    words = input["text"].split()
    for done in range(0, len(words), 100):
        await progress({"done": done, "of": len(words)})
    return {"words": len(words)}


async def do(message, js, running):
    job = json.loads(message.data)

    async def say(status, **more):
        said = {"job": job["job"], "token": job["token"], "status": status, **more}
        await js.publish(job["answer"], json.dumps(said).encode())

    async def stay_alive():
        while True:
            await say("STARTED")
            await message.in_progress()
            await asyncio.sleep(min(ACK_WAIT, job["heartbeatSeconds"]) / 3)

    async def end():
        try:
            output = await work(job["input"], lambda progress: say("STARTED", progress=progress))
        except Exception as error:
            await say("FAILED", error=f"{type(error).__name__}: {error}")
        else:
            await say("COMPLETE", output=output)

    if time.time() * 1000 < job["deadline"]:  # Else nobody waits for it any more.
        ending, alive = asyncio.create_task(end()), asyncio.create_task(stay_alive())
        running[job["job"]] = ending
        await asyncio.wait([ending, alive], return_when=asyncio.FIRST_COMPLETED)
        del running[job["job"]]
        for task in (ending, alive):
            # What could not be said ends this worker: another one gets the message.
            if not task.cancel() and not task.cancelled():
                task.result()
    await message.ack()


async def main(url, queue, prefix="trellis"):
    client, running = await nats.connect(url, inbox_prefix=f"_INBOX.{queue}"), {}
    js = client.jetstream()

    async def cancelled(message):
        if task := running.get(message.data.decode()):
            task.cancel()

    await client.subscribe(f"{prefix}.ctl.>", cb=cancelled)
    # One durable consumer for all workers of the queue; the first one makes it.
    jobs = await js.pull_subscribe(f"{prefix}.jobs.{queue}", durable=queue, stream=f"{prefix.upper()}_JOBS")
    print(f"waiting for jobs of queue {queue}", file=sys.stderr, flush=True)
    while True:
        try:
            messages = await jobs.fetch(1, timeout=60)
        except nats.errors.TimeoutError:
            continue
        await asyncio.gather(*(do(message, js, running) for message in messages))


asyncio.run(main(*sys.argv[1:]))
