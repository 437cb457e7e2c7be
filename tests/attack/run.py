"""Attacks a venue in each of its modes and says what did not hold: `run.py path/to/trellis [theme …]`.

Needs nats-server and redis-server, and Python with nats-py, pyjwt and cryptography. Everything is on loopback, on free ports,
in folders of its own, which are gone afterwards. One line per expectation that failed; at the end `N passed, N failed`."""

import importlib
import pathlib
import shutil
import sys
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import venue

# By theme: the modes that it attacks.
THEMES = {
    "shapes": ["up", "fleet"],
    "paths": ["up"],
    "headings": ["up"],
    "ids": ["up", "fleet"],
    "signals": ["fleet"],
    "revocation": ["up", "fleet"],
    "outgoing": ["up", "fleet"],
    "people": ["up", "fleet"],
    "connections": ["up", "fleet"],
    "cli_output": ["up"],
    "resources": ["up", "fleet"],
    "collisions": ["up", "fleet", "jwt"],
    "tokens": ["jwt"],
    "taken_back": ["jwt"],
    "tenants": ["jwt"],
    "invoked": ["up", "fleet", "jwt"],
    "operation_crashes": ["fleet", "jwt"],
    "job_readers": ["up", "fleet", "jwt"],
    "handed_in": ["up", "fleet", "jwt"],
    "bulk": ["up", "fleet", "jwt"],
    "spend_caps": ["up", "fleet", "jwt"],
    "spend_waits": ["up", "fleet", "jwt"],
    "sessions": ["up", "fleet", "jwt"],
    "steering": ["up", "fleet", "jwt"],
    "definitions": ["up", "fleet", "jwt"],
    "framing": ["up", "fleet", "jwt"],
    "calls": ["up"],
    "replies": ["up", "fleet"],
    "pins": ["up", "jwt"],
    "makers": ["up", "fleet"],
    "handed": ["jwt"],
    "bus": ["fleet", "jwt"],
    "naming": ["up"],
    "full_store": ["up", "fleet"],
    "killed": ["up", "fleet"],
    "halfway": ["up", "fleet"],
    "memory": ["up", "fleet"],
    "unknown_outcomes": ["up", "fleet", "jwt"],
    "kept_bytes": ["up", "fleet", "jwt"],
    "set_back_large": ["fleet"],
    "attached": ["up", "fleet", "jwt"],
    "charged": ["up", "fleet", "jwt"],
    "live_text": ["up", "fleet", "jwt"],
    "clockwork": ["up", "fleet", "jwt"],
    "neighbours": ["up", "fleet", "jwt"],
    "set_back": ["fleet", "jwt"],
    "bound": ["up", "fleet", "jwt"],
    "experiments": ["up", "jwt"],
    "identity": ["up", "fleet", "jwt"],
    "reasons": ["up", "fleet", "jwt"],
    "bare": ["up", "jwt"],
    "oversize": ["up", "fleet", "jwt"],
    "files": ["up", "jwt"],
    "stopping": ["up", "jwt"],
    "misspelt": ["up", "fleet", "jwt"],
    "unasked": ["up", "jwt"],
    "erased": ["up", "fleet", "jwt"],
    "regained": ["up", "jwt"],
    "crossed": ["fleet", "jwt"],
    "crowds": ["up", "fleet"],
    "stages": ["up"],
    "lookalikes": ["up", "jwt"],
    "mingled": ["up", "jwt"],
    "expiring": ["up", "jwt"],
    "sweep": ["jwt"],
    "partitions": ["fleet", "jwt"],
    "multiplied": ["up", "jwt"],
    "own_servers": ["up"],
    "weights": ["up", "jwt"],
    "numbers": ["up", "jwt"],
    "pausing": ["up", "fleet"],
    "goal_trees": ["up", "fleet"],
    "tenant_users": ["up", "fleet", "jwt"],
}


def main():
    binary, only = str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2:]
    model, folder = venue.Model(), pathlib.Path(tempfile.mkdtemp(prefix="trellis-attack-"))
    counts = {}
    try:
        for mode in ("up", "fleet", "jwt"):
            themes = [t for t, modes in THEMES.items() if mode in modes and (not only or t in only)]
            for theme in themes:
                module = importlib.import_module(theme)
                v = None
                before = len(venue.PASSED), len(venue.FAILED)
                began = time.time()
                try:
                    v = venue.Venue(binary, mode, model, folder / f"{theme}-{mode}", getattr(module, "SETS", ()))
                    module.attack(v)
                    venue.check(theme, f"the venue is alive in the end ({mode})", v.alive(), v.log()[-800:])
                    log = v.log()
                    venue.check(theme, f"nothing panicked ({mode})", "panicked" not in log, [l for l in log.splitlines() if "panicked" in l][:3])
                except Exception:
                    venue.check(theme, f"the script runs to its end ({mode})", False, traceback.format_exc())
                finally:
                    if v:
                        v.stop()
                p, f = len(venue.PASSED) - before[0], len(venue.FAILED) - before[1]
                counts[theme, mode] = p, f
                print(f"-- {theme} ({mode}): {p} passed, {f} failed, {time.time() - began:.0f} s", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(venue.PASSED)} passed, {len(venue.FAILED)} failed")
    return 1 if venue.FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
