"""Drives a Trellis venue that asks for tokens with the published Covia client: `covia_signed.py URL`.

Expects `auth.did_keys = "*"` and a worker with the scripted model `echo`. Each request is signed with a key of the
client's own. Ends with status 0 and the line `ok` when everything was as it should be.
"""

import sys

import covia
from covia import Grid, did_for, did_url, ucan_tokens
from covia.auth import BearerAuth, Ed25519Auth
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from checks import expect, refused


def delegated(url, venue):
    """What a key grants another one, as tokens that the client makes."""
    ann, bob = (Ed25519PrivateKey.from_private_bytes(seed * 32) for seed in (b"a", b"b"))
    with Grid.connect(url, auth=Ed25519Auth.from_seed(b"a" * 32)) as own:
        own.workspace.write("w/shared/x", 7)
        own.workspace.write("w/private/x", 8)
    shared = did_url(did_for(ann), "w", "shared")
    grant = ucan_tokens.grant(ann, did_for(bob), shared, "crud/read", 300)
    narrowed = [{"with": shared, "can": "crud/read"}]
    token = ucan_tokens.create_ucan_jwt(bob, venue, narrowed, 60, proofs=[grant])
    with Grid.connect(url, auth=BearerAuth(token)) as other:
        expect("what was granted", other.workspace.read("w/shared/x").value, 7)
        refused("what was not", 403, lambda: other.workspace.read("w/private/x"))
        refused("nor to write", 403, lambda: other.workspace.write("w/shared/x", 9))
    wider = [{"with": did_url(did_for(ann), "w"), "can": "crud/read"}]
    forged = ucan_tokens.create_ucan_jwt(bob, venue, wider, 60, proofs=[grant])
    with Grid.connect(url, auth=BearerAuth(forged)) as other:
        refused("more than was granted", 401, lambda: other.workspace.read("w/shared/x"))
    for nothing in (ucan_tokens.identity_token(bob, venue), ucan_tokens.relay_delegation(bob, venue, 60)):
        with Grid.connect(url, auth=BearerAuth(nothing)) as other:
            refused("what only says who it is", 403, lambda: other.workspace.read("w/shared/x"))


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
    delegated(url, did)
    print(f"ok covia {covia.__version__}")


main(sys.argv[1])
