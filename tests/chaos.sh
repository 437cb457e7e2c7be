#!/bin/sh
# Kills workers, nats-server and redis-server over and over while 2,000 tasks run, then the embedded process,
# and prints what became of it. Ends with an error when anything was lost, repeated or left out.
#
#   tests/chaos.sh             a fleet, one that is cut off, a fleet on clusters, and the embedded process
#   tests/chaos.sh fleet       one of them: fleet, network, clusters, embedded
#
# TASKS, AGENTS, WORKERS, KILLS, BACKLOG, SEED, LIMIT_SECONDS as TRELLIS_CHAOS_… change the amounts;
# TRELLIS_CHAOS_BINARY=target/release/trellis takes another build. Needs what tests/run.sh installs.
set -eu
cd "$(dirname "$0")/.."

export TRELLIS_CHAOS_TASKS="${TRELLIS_CHAOS_TASKS:-2000}"
export TRELLIS_CHAOS_AGENTS="${TRELLIS_CHAOS_AGENTS:-50}"
export TRELLIS_CHAOS_KILLS="${TRELLIS_CHAOS_KILLS:-150}"
export TRELLIS_CHAOS_BACKLOG="${TRELLIS_CHAOS_BACKLOG:-60}"
export TRELLIS_CHAOS_LIMIT_SECONDS="${TRELLIS_CHAOS_LIMIT_SECONDS:-900}"
export CI="${CI:-1}" RUST_BACKTRACE="${RUST_BACKTRACE:-0}"

venv=$PWD/.tools/venv
[ -d "$venv" ] && PATH=$venv/bin:$PATH
if [ -n "${TRELLIS_CHAOS_BINARY:-}" ]; then
    TRELLIS_CHAOS_BINARY=$(realpath "$TRELLIS_CHAOS_BINARY")
    export TRELLIS_CHAOS_BINARY
fi

case "${1:-all}" in
    all)
        set -- recovery::chaos::a_fleet_under_kills recovery::chaos::a_fleet_that_is_cut_off recovery::chaos::a_fleet_on_clusters \
            recovery::chaos::one_embedded_process
        ;;
    fleet) set -- recovery::chaos::a_fleet_under_kills ;;
    network) set -- recovery::chaos::a_fleet_that_is_cut_off ;;
    clusters) set -- recovery::chaos::a_fleet_on_clusters ;;
    embedded) set -- recovery::chaos::one_embedded_process ;;
    *) echo "tests/chaos.sh: expected \`fleet\`, \`network\`, \`clusters\` or \`embedded\`, got \`$1\`" >&2; exit 2 ;;
esac

# One after the other: each has the machine for itself.
exec cargo test --quiet --test it -- --test-threads=1 --nocapture "$@"
