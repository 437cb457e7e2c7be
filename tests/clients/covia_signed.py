"""Drives a Trellis venue that asks for tokens with the published Covia client: `covia_signed.py URL`.

Expects `auth.did_keys = "*"` and a worker with the scripted model `echo`. Each request is signed with a key of the
client's own. Ends with status 0 and the line `ok` when everything was as it should be.
"""

import sys

import covia
from covia import Grid
from covia.auth import Ed25519Auth
from checks import expect, refused


def main(url):
    key, other = Ed25519Auth.generate(), Ed25519Auth.generate()
    with Grid.connect(url, auth=key) as venue:
        status = venue.wait_until_ready(timeout=20, poll_interval=0.1)
        expect("status", status.status, "OK")
        expect("did document", venue.did_document().id, venue.did)
        expect("first write", venue.workspace.write("w/orders/7", {"state": "open"}).existed, False)
        expect("read", venue.workspace.read("w/orders/7").value, {"state": "open"})
        config = {"model": {"provider": "scripted", "name": "echo"}, "defaultTools": False}
        expect("created", venue.agents.create("echo", config=config).created, True)
        answer = venue.agents.request("echo", {"say": "hello"}, timeout=20)
        expect("request", answer.status, "COMPLETE")
        expect("its output", "hello" in str(answer.output), True)
        expect("jobs", venue.list_jobs(), [answer.id])
        refused("what operators keep", 403, lambda: venue.workspace.write("v/context/project", {"x": 1}))
        did = venue.did
    # Its streams leave out what `auth` adds to a request: there the token goes with the headers of all.
    headers = {}
    key.apply(headers, did)
    with Grid.connect(url, headers=headers) as venue:
        statuses = [event.json["status"] for event in venue.get_job(answer.id).stream() if event.event == "job-update"]
        expect("its stream", statuses, ["COMPLETE"])
    with Grid.connect(url, auth=other) as venue:
        expect("another key reads", venue.workspace.read("w/orders/7").exists, False)
        expect("its jobs", venue.list_jobs(), [])
        refused("the job of another", 404, lambda: venue.get_job(answer.id))
    with Grid.connect(url, auth=Ed25519Auth.generate(audience="did:web:other.example")) as venue:
        expect("a hint", "audience" in refused("another audience", 401, lambda: venue.list_jobs()), True)
    with Grid.connect(url) as venue:
        expect("a hint", "no token" in refused("no token", 401, lambda: venue.list_jobs()), True)
    with Grid.connect(url, auth=key, headers={"X-Trellis-Owner": "acme/ann"}) as venue:
        refused("another owner", 403, lambda: venue.list_jobs())
    print(f"ok covia {covia.__version__}")


main(sys.argv[1])
