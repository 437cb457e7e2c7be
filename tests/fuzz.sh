#!/bin/sh
# Fuzzes what strangers write (bodies, paths, grants, tokens) for some minutes, all targets side by side.
#
#   tests/fuzz.sh [MINUTES=10]     another seed: TRELLIS_FUZZ_SEED=7 tests/fuzz.sh
#
# The same targets run on a fixed number of inputs with all other tests. Needs no other toolchain; prints for each
# target its inputs, their rate, and how many were accepted and refused. A failure prints the seed and the input.
set -eu
cd "$(dirname "$0")/.."

TRELLIS_FUZZ_MINUTES=${1:-10}
TRELLIS_FUZZ_SEED=${TRELLIS_FUZZ_SEED:-$(date +%s)}
export TRELLIS_FUZZ_MINUTES TRELLIS_FUZZ_SEED

exec cargo test --quiet --test it api::fuzz:: -- --nocapture --test-threads 4
