# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Shared by the scripts of this folder; sourced, not run. Sets MOIRA_ROOT,
# MOIRA_BUILD (default: build/) and MOIRA_JOBS (default: all cores).

set -euo pipefail

MOIRA_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
MOIRA_BUILD=${MOIRA_BUILD:-$MOIRA_ROOT/build}
MOIRA_JOBS=${MOIRA_JOBS:-$(nproc)}

die() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

# stage NAME COMMAND...: runs a command and says how long it took.
stage() {
  local name=$1 start=$SECONDS status=0
  shift
  echo "== $name"
  "$@" || status=$?
  echo "== $name: $((SECONDS - start)) s"
  return "$status"
}

# configure PRESET BUILD_DIR [FLAGS...]: configures when that was not done yet or
# FLAGS are given; quiet unless it fails.
configure() {
  local preset=$1 dir=$2 log
  shift 2
  if [ -f "$dir/build.ninja" ] && [ $# -eq 0 ]; then
    return 0
  fi
  log=$(mktemp)
  if ! (cd "$MOIRA_ROOT" && cmake --preset "$preset" -B "$dir" "$@") \
      >"$log" 2>&1; then
    cat "$log"
    rm -f "$log"
    die "cannot configure $dir; scripts/setup installs what is needed"
  fi
  rm -f "$log"
}

# build DIR [TARGETS...]
build() {
  local dir=$1
  shift
  cmake --build "$dir" --parallel "$MOIRA_JOBS" ${1:+--target "$@"}
}
