"""What agents, their sessions and their tasks do for the Covia client, method by method."""

import time

from checks import expect, refused

ECHO = {"model": {"provider": "scripted", "name": "echo"}, "defaultTools": False}
DEAF = {"model": {"provider": "scripted", "name": "never"}}


def until(what, test):
    for _ in range(400):
        if test():
            return
        time.sleep(0.05)
    raise SystemExit(f"{what}: not in 20 s")


def agents(venue):
    manager = venue.agents
    venue.workspace.write("w/agents/base", {**ECHO, "systemPrompt": "from the tree"})
    made = manager.create("a", definition="w/agents/base", config={"description": "made"})
    expect("created", (made.created, made.status, made.agentId), (True, "SLEEPING", "a"))
    expect("its definition", manager.info("a").config["systemPrompt"], "from the tree")
    expect("created again", manager.create("a", config=ECHO).created, False)
    expect("layers", manager.create("layers", config=["w/agents/base", {"concurrency": 3}]).created, True)
    expect("both", (manager.info("layers").config["concurrency"], manager.info("layers").config["systemPrompt"]),
           (3, "from the tree"))
    manager.update("a", config={"description": "changed"}, state={"config": {"concurrency": 2}})
    config = manager.info("a").config
    expect("updated", (config["description"], config["concurrency"]), ("changed", 2))

    venue.workspace.write("w/facts/one", "the first fact")
    schema = {"type": "object", "required": ["n"]}
    answer = manager.request("a", {"n": 1}, timeout=60, response_schema=schema, strict=True, session_id="s",
                             output_path="w/out/a", loads={"w/facts/one": None})
    expect("request", (answer.status, answer.output, answer.sessionId), ("COMPLETE", {"n": 1}, "s"))
    expect("its output is in the tree", venue.workspace.read("w/out/a").value, {"n": 1})
    prompt = venue.run("v/ops/agent/context", {"agentId": "a", "sessionId": "s"})
    expect("its session shows what was loaded", "the first fact" in prompt, True)
    # On a busy machine the echo has ended before its record is read for the answer.
    expect("submitted", manager.request("a", {"n": 2}, wait=False).status in ("STARTED", "COMPLETE"), True)
    refused("strict without a schema", 400, lambda: manager.request("a", {}, strict=True))
    expect("message", manager.message("a", "for your information").delivered, True)
    chat = manager.chat("a", "and now?", loads={"w/facts/one": {"label": "Known"}})
    expect("chat", "and now?" in str(chat.response), True)
    expect("the same session", manager.chat("a", "more", chat.sessionId).sessionId, chat.sessionId)
    expect("context", "what would you see?" in manager.context("a", task="what would you see?"), True)

    venue.run("v/ops/agent/trigger", {"agentId": "a", "input": "planned", "after": "2h"})
    before = set(venue.list_jobs())
    expect("triggered", manager.trigger("a").agentId, "a")
    until("what was planned has run", lambda: set(venue.list_jobs()) - before)
    (fired,) = set(venue.list_jobs()) - before
    expect("fired", "planned" in str(venue.get_job(fired).result(timeout=20)), True)

    manager.create("deaf", config=DEAF)
    job = venue.invoke("v/ops/agent/request", {"agentId": "deaf", "input": "wait"})
    until("it says that it runs", lambda: manager.create("deaf", config=DEAF).status == "RUNNING")
    expect("cancelled", manager.cancel_task("deaf", job.id, reason="no need").cancelled, True)
    job.refresh()
    expect("its job", "no need" in job.error, True)

    expect("suspended", manager.suspend("a").status, "SUSPENDED")
    waits = venue.invoke("v/ops/agent/request", {"agentId": "a", "input": "waits"})
    expect("resumed", manager.resume("a", auto_wake=True).status in ("SLEEPING", "RUNNING"), True)
    expect("what had waited", "waits" in str(waits.result(timeout=20)), True)
    said = refused("resume without waking", 400, lambda: manager.resume("a", auto_wake=False))
    expect("why not without waking", "autoWake" in said, True)

    forked = manager.fork("a", "b", config={"description": "a fork"}, include_timeline=True)
    expect("forked", (forked.created, forked.forkedFrom, manager.info("b").config["description"]), (True, "a", "a fork"))
    expect("its timeline", manager.read_session("b", chat.sessionId).found, True)
    refused("forked again", 409, lambda: manager.fork("a", "b"))
    expect("forked over it", manager.fork("a", "b", overwrite=True).created, False)
    expect("deleted", manager.delete("b").status, "TERMINATED")
    shown = lambda **options: [agent.agentId for agent in manager.list(**options).agents]
    expect("lists", ("b" in shown(), "b" in shown(include_terminated=True)), (False, True))
    expect("removed", manager.delete("b", remove=True).removed, True)
    expect("its name is free", "b" in shown(include_terminated=True), False)
    refused("nobody", 404, lambda: manager.info("b"))


def sessions(venue):
    manager = venue.agents
    manager.create("talker", config=ECHO)
    first = manager.chat("talker", "first things").sessionId
    manager.chat("talker", "second things", first)
    second = manager.chat("talker", "elsewhere").sessionId
    listed = {session.sessionId: session.turnCount for session in manager.sessions("talker").sessions}
    expect("sessions", listed, {first: 2, second: 1})
    page = manager.sessions("talker", offset=1, limit=1)
    expect("a page", ([session.sessionId for session in page.sessions], page.offset), ([max(first, second)], 1))
    expect("titled", manager.rename_session("talker", first, "Things").title, "Things")
    read = manager.read_session("talker", first)
    expect("read", (read.found, read.title, read.turnCount, len(read.messages)), (True, "Things", 2, 4))
    few = manager.read_session("talker", first, max_turns=1)
    expect("few turns", ("second things" in str(few.messages), "first things" in str(few.messages), few.truncated),
           (True, False, True))
    expect("few characters", manager.read_session("talker", first, max_chars=0).messages, [])
    expect("the newest", manager.read_session("talker").sessionId, second)
    expect("none", manager.read_session("talker", "nowhere").found, False)
    compact = manager.compact_session("talker", first, "they spoke of things")
    expect("compacted", (compact.compacted, compact.archivedTurns), (True, 2))
    prompt = venue.run("v/ops/agent/context", {"agentId": "talker", "sessionId": first})
    expect("the summary stands for them", ("they spoke of things" in prompt, "first things" in prompt), (True, False))
    archived = manager.read_session("talker", first, archive_depth=1).messages
    expect("they are kept", "first things" in str(archived), True)
    reload = manager.reload_context("talker", first)
    expect("reloaded", (reload.reloaded, reload.frames), (True, 1))
    expect("deleted", manager.delete_session("talker", first).deleted, True)
    expect("gone", (manager.read_session("talker", first).found, manager.delete_session("talker", first).deleted),
           (False, False))
    refused("a chat in it", 404, lambda: manager.chat("talker", "x", first))


def tasks(venue, scoped):
    """`scoped` connects in the scope of a task, as whoever does it for an agent."""
    venue.agents.create("deaf", config=DEAF)
    refused("no task in scope", 400, lambda: venue.agents.complete_task({"n": 1}))
    job = venue.invoke("v/ops/agent/request", {"agentId": "deaf", "input": "do it"})
    done = scoped(job.id, lambda other: other.agents.complete_task({"n": 7}))
    expect("completed", (done.agentId, done.taskId, done.status), ("deaf", job.id, "COMPLETE"))
    expect("its result", job.result(timeout=20), {"n": 7})
    job = venue.invoke("v/ops/agent/request", {"agentId": "deaf", "input": "do it"})
    expect("failed", scoped(job.id, lambda other: other.agents.fail_task("can't be done")).status, "FAILED")
    job.refresh()
    expect("why", (job.status, job.error), ("FAILED", "can't be done"))


def handle(venue):
    venue.agents.create("own", config=ECHO)
    agent = venue.agent("own")
    expect("request", agent.request({"say": "hello"}, timeout=60).status, "COMPLETE")
    expect("message", agent.message("note").delivered, True)
    session = agent.chat("hello").sessionId
    expect("sessions", session in [known.sessionId for known in agent.sessions().sessions], True)
    expect("read", agent.read_session(session).found, True)
    expect("trigger", agent.trigger().agentId, "own")
    agent.update(config={"description": "mine"})
    expect("info", agent.info().config["description"], "mine")
    expect("context", "look" in agent.context("look"), True)
    expect("suspend", agent.suspend().status, "SUSPENDED")
    job = venue.invoke("v/ops/agent/request", {"agentId": "own", "input": "later"})
    expect("cancel", agent.cancel_task(job.id).cancelled, True)
    expect("resume", agent.resume().status != "SUSPENDED", True)
    fork = agent.fork("copy")
    expect("fork", (fork.id, fork.info().config["description"]), ("copy", "mine"))

    talk = agent.chat_session()
    expect("no session yet", talk.session_id, None)
    talk.send("one thing")
    expect("the same one", (talk.send("two things").sessionId, talk.rename("Talk").title), (talk.session_id, "Talk"))
    expect("read", (talk.read().title, len(talk.read(max_turns=1).messages)), ("Talk", 2))
    expect("reload", talk.reload_context().reloaded, True)
    expect("compact", talk.compact("things").compacted, True)
    expect("its summary", talk.read().messages[0]["content"], "things")
    expect("delete", talk.delete().deleted, True)
    expect("gone", agent.read_session(talk.session_id).found, False)
    for one in (agent, fork):
        expect("removed", one.delete(remove=True).removed, True)
