#!/bin/sh
# Runs the fleet in one process on a simulated clock, once for each of many seeds: workers that die, stand still and are
# cut off, a store and a queue that lose, repeat and reorder what is sent. Prints the seeds per second meanwhile, what
# really went wrong at the end, and of each seed that fails its faults, the end of its trace and how to repeat it.
#
#   tests/simulate.sh                      2,000 seeds from 1
#   SEEDS=100000 FROM=5000 tests/simulate.sh
#
# JOBS is how many run at once (default: as many as there are processors), STOP_AFTER after how many failures it ends
# (default 5). A failure's seed goes into REGRESSIONS in tests/it/recovery/simulate/mod.rs once it is mended.
set -eu
cd "$(dirname "$0")/.."

export TRELLIS_SIMULATE_SEEDS="${SEEDS:-2000}"
export TRELLIS_SIMULATE_FROM="${FROM:-1}"
export TRELLIS_SIMULATE_JOBS="${JOBS:-$(nproc 2>/dev/null || echo 2)}"
export TRELLIS_SIMULATE_STOP_AFTER="${STOP_AFTER:-5}"
export RUST_MIN_STACK="${RUST_MIN_STACK:-8388608}" RUST_BACKTRACE="${RUST_BACKTRACE:-0}"

exec cargo test --quiet --release --test it -- --nocapture --exact recovery::simulate::many_seeds_end_with_a_clean_audit
