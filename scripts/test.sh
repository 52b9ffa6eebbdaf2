#!/bin/bash
# What `make test`, `make test-interop` and `make sanitize` do after scripts/setup.sh.
#   test.sh compilers [JOBS]   both compilers build, every test runs; ends with the closing line of the end-to-end tests
#   test.sh interop [JOBS]    UCM against a Linux kernel in a virtual machine
#   test.sh sanitizers [JOBS]  the builds with sanitizers and their tests
set -euo pipefail
suite=$1
jobs=${2:-$(nproc)}
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

if [[ $suite == sanitizers ]]; then
  step "address and undefined-behaviour sanitizers: build" build asan
  step "address and undefined-behaviour sanitizers: tests" check asan
  step "thread sanitizer: build" build tsan
  step "thread sanitizer: tests" check tsan
elif [[ $suite == interop ]]; then
  step "GCC: build" build release
  step "UCM against Linux: tests" check release -L interop
else
  step "GCC: build" build release
  step "GCC: unit tests" check release -LE "e2e|interop"
  step "Clang: build" build clang
  # Foreign programs have races of their own: one that fails is run once more, and ctest shows both runs.
  step "GCC: end-to-end tests" check release -L e2e --repeat until-pass:2
fi
