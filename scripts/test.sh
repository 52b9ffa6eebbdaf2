#!/bin/bash
# What `make test` does after scripts/setup.sh: every compiler and sanitizer builds, every test runs. Ends with the
# closing line of the longest run, the end-to-end tests of the normal build.
set -euo pipefail
jobs=${1:-$(nproc)}
cd "$(dirname "$0")/.."

step() {  # TITLE COMMAND…
  local started=$SECONDS
  echo "== $1"
  shift
  "$@"
  echo "   ($((SECONDS - started)) s)"
}

build() {  # PRESET [CMAKE BUILD ARGUMENTS]
  local preset=$1
  shift
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset" -j "$jobs" "$@"
}

check() {  # PRESET CTEST ARGUMENTS
  local preset=$1
  shift
  ctest --preset "$preset" -j "$jobs" "$@"
}

step "GCC: build" build release
step "GCC: unit tests" check release -LE e2e
step "Clang: build" build clang
step "address and undefined-behaviour sanitizers: build" build asan
step "address and undefined-behaviour sanitizers: tests" check asan
step "thread sanitizer: build" build tsan
step "thread sanitizer: tests" check tsan
step "GCC: end-to-end tests" check release -L e2e
