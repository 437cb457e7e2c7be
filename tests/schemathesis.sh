#!/usr/bin/env bash
# What the API's description promises, tried by schemathesis over a venue of its own that has an agent and a turn.
#   pip install schemathesis && cargo build && tests/schemathesis.sh [options of `st run`, such as -n 20]
set -euo pipefail
cd "$(dirname "$0")/.."
data=$(mktemp -d) address=127.0.0.1:${PORT:-8499} api=http://127.0.0.1:${PORT:-8499}/api/v1
${TRELLIS:-target/debug/trellis} up --data "$data" --listen "$address" > "$data/log" 2>&1 &
venue=$!
trap 'kill $venue; wait $venue || true; rm -rf "$data"' EXIT
send() { curl -fsS -o /dev/null --retry 20 --retry-connrefused --retry-delay 1 -H 'content-type: application/json' "$@"; }
send -X PUT "$api/agents/clerk" -d '{"model": {"provider": "scripted", "name": "echo"}}'
send -X POST "$api/agents/clerk/tasks?wait=true" -d '{"input": "hello", "sessionId": "first"}'
${ST:-st} --config-file tests/schemathesis.toml run "$api/openapi.json" "$@"
