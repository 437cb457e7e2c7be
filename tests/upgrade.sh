#!/bin/sh
# An upgrade and a rollback under load with two builds: one of before, and this one.
#
#   tests/upgrade.sh              the last tag, or, where there is none, 20 commits ago
#   tests/upgrade.sh COMMIT       that commit
#
# It is built in a git worktree under target/before/, which stays for the next time. The test is the one of the suite
# (`deployment::upgrade`), which without this runs with this build twice.
set -eu
cd "$(dirname "$0")/.."

before=${1:-$(git describe --tags --abbrev=0 2>/dev/null || echo HEAD~20)}
commit=$(git rev-parse --verify --quiet "$before^{commit}") || {
    printf 'tests/upgrade.sh: no commit `%s`: name a tag or a commit of this repository\n' "$before" >&2
    exit 2
}
tree=$PWD/target/before/$(git rev-parse --short "$commit")
[ -d "$tree" ] || git worktree add --quiet --detach "$tree" "$commit"
printf 'tests/upgrade.sh: building %s, %s commits ago\n' "$before" "$(git rev-list --count "$commit..HEAD")" >&2
(cd "$tree" && CARGO_TARGET_DIR="$tree/../build" cargo build --quiet --bin trellis)
TRELLIS_BEFORE=$PWD/target/before/build/debug/trellis
export TRELLIS_BEFORE
exec tests/run.sh --test it -- deployment::upgrade --nocapture
