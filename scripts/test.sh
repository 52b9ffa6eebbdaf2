#!/bin/bash
# What `make test`, `make test-interop` and `make sanitize` do after scripts/setup.sh.
#   test.sh all [JOBS]         every test; ends with the closing line of the end-to-end tests
#   test.sh interop [JOBS]     UCM against a Linux kernel in a virtual machine
#   test.sh sanitizers [JOBS]  the builds with sanitizers and their tests
#   test.sh long [JOBS]        programs where datagrams get lost, the largest loads, and all of them under sanitizers: an hour
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

# Both are Clang's; the first one is the proof that Clang compiles everything without a warning. What a sanitizer finds
# fails at once, also what a second run would not show.
sanitizers() {
  step "Clang, address and undefined-behaviour sanitizers: build" build asan
  step "Clang, address and undefined-behaviour sanitizers: tests" check asan -LE long
  step "Clang, thread sanitizer: build of what has threads" build tsan
  step "Clang, thread sanitizer: tests" check tsan -LE long
}

# Long enough to meet a mistake that is easy to meet; `make fuzz` searches on.
fuzzing() {
  step "Clang, fuzzing: build" build fuzz --target fuzz_targets
  step "Clang, fuzzing: $1 seconds" scripts/fuzz.sh "$1"
}

case $suite in
  sanitizers)
    sanitizers
    ;;
  long)
    step "GCC: build" build release
    step "GCC: programs where 1 % of the datagrams get lost, and the largest loads" check release -L long
    step "Clang, address and undefined-behaviour sanitizers: build" build asan
    step "Clang, address and undefined-behaviour sanitizers: the same programs and loads" check asan -L long
    ;;
  interop)
    step "GCC: build" build release
    step "UCM against Linux: tests" check release -L interop
    ;;
  all)
    step "GCC: build" build release
    step "GCC: unit tests" check release -LE "e2e|interop|long"
    sanitizers
    fuzzing 20
    # Foreign programs have races of their own: one that fails is run once more, and ctest shows both runs.
    step "GCC: end-to-end tests" check release -L e2e --repeat until-pass:2
    ;;
  *)
    echo "test.sh: no suite '$suite'" >&2
    exit 2
    ;;
esac
