"""What the venue, its tree, its assets, its secrets and its jobs do for the Covia client, method by method."""

import covia
from covia import did
from covia.exceptions import CoviaError, JobFailedError, JobNotFoundError
from covia.status import JobStatus
from checks import expect, refused

READ = "v/ops/covia/read"


def raises(what, error, call):
    try:
        call()
    except error as raised:
        return str(raised)
    raise SystemExit(f"{what}: expected {error.__name__}")


def venue(venue, url):
    expect("ready", venue.wait_until_ready(timeout=60, poll_interval=0.1).status, "OK")
    expect("status", (venue.status().status, venue.url), ("OK", url))
    expect("did", venue.did_document().id, venue.did)
    names = [operation.name for operation in venue.list_operations()]
    expect("operations", {READ, "v/ops/agent/compact-session"} <= set(names), True)
    expect("one operation", venue.get_operation(READ).name, READ)
    expect("an adapter", "v/ops/agent/chat" in venue.get_adapter_operations("agent"), True)
    expect("run", venue.run(READ, {"path": "w/none"}), {"exists": False})
    before = venue.list_jobs()
    venue.set_private(True)
    expect("a private run", venue.run(READ, {"path": "w/none"}), {"exists": False})
    raises("a private job", CoviaError, lambda: venue.invoke(READ, {"path": "w/none"}))
    venue.set_private(False)
    expect("no job of it", venue.list_jobs(), before)
    found = venue.mcp_discovery()
    expect("MCP", (found.server_url, found.tools_endpoint, found.endpoint["path"]), (url, f"{url}/mcp", "/mcp"))
    card = venue.agent_card()
    expect("a card", (bool(card.name), card.skills, card.supportedInterfaces), (True, [], []))
    said = refused("a token", 404, lambda: venue.ucan.issue("did:key:z6Mk", [], 1))
    expect("what to use for a token", "`trellis token`" in said and "`Authorization`" in said, True)
    said = refused("a look at a token", 404, lambda: venue.ucan.verify("x.y.z"))
    expect("what to use to look into a token", "`trellis token`" in said, True)


def workspace(venue):
    tree = venue.workspace
    expect("first write", tree.write("w/orders/7", {"state": "open"}).existed, False)
    expect("second write", tree.write("w/orders/8", {"state": "done"}).existed, False)
    expect("again", tree.write("w/orders/8", {"state": "done"}).existed, True)
    expect("read", tree.read("w/orders/7").value, {"state": "open"})
    cut = tree.read("w/orders/7", max_size=3)
    expect("a large value", (cut.truncated, cut.value), (True, None))
    expect("list", tree.list("w/orders", limit=1, offset=1).keys, ["8"])
    expect("append", [tree.append("w/log", word).newSize for word in ("a", "b", "c")], [1, 2, 3])
    expect("slice", tree.slice("w/log", offset=1, limit=1).values, ["b"])
    expect("inspect", "open" in tree.inspect("w/orders", budget=500).result, True)
    expect("count", tree.count("w/orders").count, 2)
    groups = tree.aggregate("w/orders", group_by="state").groups
    expect("groups", {key: group.count for key, group in groups.items()}, {"open": 1, "done": 1})
    expect("copy", tree.copy("w/orders/7", "w/copies/7").existed, False)
    expect("what was copied", tree.read("w/copies/7").value, {"state": "open"})
    expect("delete", (tree.delete("w/copies").deleted, tree.delete("w/copies").deleted), (True, False))
    tree.delete("w/log")


def assets(venue):
    asset = venue.register({"content": "some notes", "name": "notes", "description": "some"})
    expect("its names", (asset.name, asset.description), ("notes", "some"))
    expect("listed", (venue.list_assets(limit=100).items, venue.list_assets(kind="operation").items), ([asset.id], []))
    again = venue.get_asset(asset.id)
    expect("the same", (again.id, again.metadata), (asset.id, asset.metadata))
    expect("its text", (again.metadata_raw is None, again.content_type, again.is_operation, again.venue is None),
           (False, asset.content_type, False, False))
    address = again.did_url() if callable(again.did_url) else again.did_url
    expect("its address", address, did.did_url(venue.did, "a", asset.id))
    content = venue.get_asset_content(asset.id)
    expect("its content", (content, again.get_content()), (b"some notes", b"some notes"))
    # Content is what an asset is named by: the same is taken, another is not.
    expect("put again", asset.id in venue.put_asset_content(asset.id, content), True)
    expect("put by itself", asset.id in again.put_content(content), True)
    refused("other content", 400, lambda: venue.put_asset_content(asset.id, b"other"))
    pinned = venue.pin_asset(f"a/{asset.id}")
    expect("pinned", pinned.hash, asset.id)
    refused("run", 400, asset.run)
    refused("invoke", 400, asset.invoke)
    merge = venue.register({"name": "merge", "description": "both", "operation": {"adapter": "json:merge"}})
    expect("an operation", (merge.is_operation, venue.list_assets(kind="operation").items), (True, [merge.id]))
    both = {"values": [{"a": 1}, {"b": 2}]}
    expect("it runs", (merge.run(both), merge.invoke(both).result(timeout=20)), ({"value": {"a": 1, "b": 2}},) * 2)
    other = venue.register({"name": "steps", "operation": {"adapter": "orchestrator"}})
    expect("why it can't", "`orchestrator`" in refused("another adapter", 400, other.run), True)


def secrets(venue):
    kept = venue.secrets
    expect("set", kept.set("TOKEN", "the first value").stored, True)
    refused("set again", 409, lambda: kept.set("TOKEN", "the second value"))
    expect("overwritten", kept.set("TOKEN", "the second value", overwrite=True).stored, True)
    kept.set("OTHER", "the third value")
    expect("names", (sorted(kept.list()), sorted(venue.list_secrets())), (["OTHER", "TOKEN"], ["OTHER", "TOKEN"]))
    said = refused("a value", 403, lambda: kept.extract("TOKEN"))
    expect("the value is not in the refusal", "second value" in said, False)
    expect("why, and where it may go", "host" in said, True)
    kept.delete("TOKEN")
    venue.delete_secret("OTHER")
    expect("no names", kept.list(), [])


def jobs(venue):
    venue.agents.create("deaf", config={"model": {"provider": "scripted", "name": "never"}})
    venue.agents.create("echo", config={"model": {"provider": "scripted", "name": "echo"}, "defaultTools": False})
    done = venue.invoke("v/ops/agent/request", {"agentId": "echo", "input": "hello"})
    expect("a result", "hello" in str(done.result(timeout=60)), True)
    expect("ended", (done.is_complete, done.is_finished, done.is_paused, done.error), (True, True, False, None))
    expect("its output", (done.output, done.data.id, done.status), (done.result(), done.id, JobStatus.COMPLETE))
    expect("its stream", [event.json["status"] for event in done.stream() if event.event == "job-update"], ["COMPLETE"])
    expect("the same stream", [e.json["status"] for e in venue.stream_job_events(done.id) if e.event == "job-update"], ["COMPLETE"])

    open_job = venue.invoke("v/ops/agent/request", {"agentId": "deaf", "input": "wait"})
    expect("open", (open_job.is_finished, open_job.needs_input, open_job.needs_auth), (False, False, False))
    raises("the output of an open job", ValueError, lambda: open_job.output)
    open_job.pause()
    expect("paused", (open_job.status, open_job.is_paused), (JobStatus.PAUSED, True))
    expect("paused twice", venue.pause_job(open_job.id).status, JobStatus.PAUSED)
    expect("said", open_job.send_message({"more": 1})["status"], "queued")
    expect("said again", venue.send_job_message(open_job.id, "text")["queueDepth"] >= 1, True)
    open_job.resume()
    expect("goes on", open_job.is_paused, False)
    expect("paused by the venue", venue.pause_job(open_job.id).status, JobStatus.PAUSED)
    expect("and on", venue.resume_job(open_job.id).status != JobStatus.PAUSED, True)
    open_job.cancel(reason="not needed")
    open_job.wait(timeout=20)
    open_job.refresh()
    expect("cancelled", (open_job.status, "not needed" in open_job.error), (JobStatus.CANCELLED, True))
    raises("the output of a cancelled job", JobFailedError, lambda: open_job.output)
    second = venue.invoke("v/ops/agent/request", {"agentId": "deaf", "input": "wait"})
    expect("cancelled by the venue", venue.cancel_job(second.id).status, JobStatus.CANCELLED)
    expect("jobs", {done.id, second.id} <= set(venue.list_jobs()), True)
    expect("one job", venue.get_job(second.id).status, JobStatus.CANCELLED)
    venue.delete_job(second.id)
    raises("a deleted job", JobNotFoundError, lambda: venue.get_job(second.id))


def auth(url):
    """Where nobody needs a token, one counts for nothing; what counts where one is needed: covia_signed.py."""
    kinds = [covia.NoAuth(), covia.BearerAuth("x.y.z"), covia.BasicAuth("ann", "secret"),
             covia.Ed25519Auth.generate(), covia.Ed25519Auth.from_seed(b"7" * 32)]
    for kind in kinds:
        with covia.Grid.connect(url, auth=kind) as venue:
            expect(f"{kind}", venue.status().status, "OK")
            expect(f"{kind}: audience", kind.wants_audience, isinstance(kind, covia.Ed25519Auth))
    key = kinds[-1]
    key.audience = "did:web:venue.example"
    expect("a key", (key.did.startswith("did:key:z6Mk"), len(key.public_key_bytes), key.audience),
           (True, 32, "did:web:venue.example"))


def pure():
    path = did.did_url("did:key:z6Mk", "w", "a", "b")
    expect("an address", (path, did.parse_did_url(path).path), ("did:key:z6Mk/w/a/b", "a/b"))
    expect("a name", (did.is_did("did:key:z6Mk"), did.did_method("did:key:z6Mk")), (True, "key"))
    expect("a host", did.did_web_to_url(did.url_to_did_web("https://a.example:1/b")), "https://a.example:1/b")
    expect("a hash", did.asset_hash("a/" + "0f" * 32), "0f" * 32)
    for kind in (covia.Asset, covia.async_api.AsyncAsset):
        expect("a legacy digest", len(kind.compute_id("{}")), 64)
