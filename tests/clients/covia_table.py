"""Every public method of the Covia client: where it is asserted, or why it is refused.

`check_complete` fails when the client has a method that is in no row, or a row for a method that it hasn't;
`check_called` when a row's method was never called: every call is noted by `watch`.
"""

import asyncio
import functools
import inspect

import covia
from covia import async_api, did, ucan_tokens

# Refused for good; the call and its answer are asserted all the same.
NEVER = "refused: a secret's value goes to the hosts that it is bound to and nowhere else"
UCAN = "refused: this venue issues no tokens; a key's own tokens and chains of them are presented as `Authorization`"
PURE = "in the client alone"

TABLE = {
    "Venue": {
        "venue": "agent agent_card agents did did_document get_adapter_operations get_operation invoke list_operations"
        " mcp_discovery run secrets set_private status ucan url wait_until_ready workspace close",
        "assets": "get_asset get_asset_content list_assets pin_asset put_asset_content register",
        "jobs": "cancel_job delete_job get_job list_jobs pause_job resume_job send_job_message stream_job_events",
        "secrets": "delete_secret list_secrets",
    },
    "AgentManager": {
        "agents": "cancel_task chat context create delete fork info list message request resume suspend trigger update",
        "sessions": "compact_session delete_session read_session reload_context rename_session sessions",
        "tasks": "complete_task fail_task",
    },
    "Agent": {
        "handle": "cancel_task chat chat_session context delete fork info message read_session request resume sessions"
        " suspend trigger update",
    },
    "ChatSession": {"handle": "compact delete read reload_context rename send session_id"},
    "Job": {
        "jobs": "cancel data error id is_complete is_finished is_paused needs_auth needs_input output pause refresh"
        " result resume send_message status stream wait",
    },
    "Asset": {
        "assets": "content_type description did_url get_content id invoke is_operation metadata metadata_raw name"
        " put_content run venue",
        PURE: "compute_id",
    },
    "WorkspaceManager": {"workspace": "aggregate append copy count delete inspect list read slice write"},
    "SecretManager": {"secrets": "delete list set", NEVER: "extract"},
    "UCANManager": {UCAN: "issue verify"},
    "Grid": {"main": "connect"},
    "NoAuth": {"auth": "apply wants_audience"},
    "BearerAuth": {"auth": "apply wants_audience"},
    "BasicAuth": {"auth": "apply wants_audience"},
    # What a venue makes of its tokens: covia_signed.py.
    "Ed25519Auth": {"auth": "apply audience did from_seed generate public_key_bytes wants_audience"},
}

# The asynchronous ones have the same methods, but for these.
OTHER_NAMES = {"AsyncVenue": {"did": "get_did", "close": "aclose"}}
ASYNC = ["Venue", "AgentManager", "Agent", "ChatSession", "Job", "Asset", "WorkspaceManager", "SecretManager",
         "UCANManager", "Grid"]

# Functions of modules: asserted in `pure`, and those that make tokens in covia_signed.py.
FUNCTIONS = {
    did: "asset_hash did_method did_url did_web_to_url is_did parse_did_url url_to_did_web",
    ucan_tokens: "create_ucan_jwt did_for grant identity_token relay_delegation",
}

CALLED = set()


def classes():
    found = {name: getattr(covia, name) for name in TABLE}
    found |= {f"Async{name}": getattr(async_api, f"Async{name}") for name in ASYNC}
    return found


def rows():
    """`Class.method` and where it is asserted."""
    table = {(name, method): part for name, parts in TABLE.items() for part, methods in parts.items()
             for method in methods.split()}
    for (name, method), part in list(table.items()):
        if name in ASYNC:
            other = OTHER_NAMES.get(f"Async{name}", {}).get(method, method)
            table[(f"Async{name}", other)] = part
    return table


def public(cls):
    names = {name for base in cls.__mro__ if base.__module__.startswith("covia") for name in vars(base)}
    return {name for name in names if not name.startswith("_")}


def check_complete():
    there = {(name, method) for name, cls in classes().items() for method in public(cls)}
    there |= {(module.__name__, name) for module in FUNCTIONS for name, _ in inspect.getmembers(module, inspect.isfunction)
              if not name.startswith("_") and getattr(module, name).__module__ == module.__name__}
    known = set(rows()) | {(module.__name__, name) for module, names in FUNCTIONS.items() for name in names.split()}
    if there != known:
        raise SystemExit(f"not in the table: {sorted(there - known)}; not in the client: {sorted(known - there)}")


def check_called():
    missed = sorted(f"{name}.{method}" for name, method in set(rows()) - CALLED)
    if missed:
        raise SystemExit(f"in the table and never called: {missed}")


def watch():
    """Notes every use of a method of the table."""
    for name, cls in classes().items():
        for method in public(cls):
            place = next(base for base in cls.__mro__ if method in vars(base))
            note(cls, name, method, vars(place)[method])


def note(cls, name, method, what):
    def used():
        CALLED.add((name, method))

    def noted(call):
        @functools.wraps(call)
        def wrapper(*args, **options):
            used()
            return call(*args, **options)
        return wrapper

    if isinstance(what, property):
        setattr(cls, method, property(noted(what.fget), what.fset))
    elif isinstance(what, staticmethod | classmethod):
        setattr(cls, method, type(what)(noted(what.__func__)))
    else:
        setattr(cls, method, noted(what))


class Plain:
    """Something asynchronous, used as if it were not."""

    def __init__(self, inner, loop):
        self.inner, self.loop = inner, loop

    def __getattr__(self, name):
        own = OTHER_NAMES.get(type(self.inner).__name__, {}).get(name)
        if own == "get_did":
            return self.settled(self.inner.get_did())
        return self.settled(getattr(self.inner, own or name))

    def settled(self, value):
        if inspect.iscoroutine(value):
            return self.settled(self.loop.run_until_complete(value))
        if inspect.isasyncgen(value):
            return self.loop.run_until_complete(collected(value))
        if type(value).__name__.startswith("Async"):
            return Plain(value, self.loop)
        if inspect.ismethod(value) or inspect.isfunction(value):
            return lambda *args, **options: self.settled(value(*map(inner, args), **options))
        return value


def inner(value):
    return value.inner if isinstance(value, Plain) else value


async def collected(events):
    return [event async for event in events]


def plain(venue):
    return Plain(venue, asyncio.new_event_loop())
