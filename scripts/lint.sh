#!/bin/bash
# Checks the format of every source and runs clang-tidy (.clang-tidy) over those under src/. Finds nothing, or fails.
set -euo pipefail
jobs=${1:-$(nproc)}
cd "$(dirname "$0")/.."

echo "== format"
git ls-files '*.h' '*.cpp' '*.c' | xargs clang-format-19 --dry-run -Werror

echo "== clang-tidy"
cmake --preset asan >/dev/null
# A source that is not part of this build has no compiler options to be read with.
git ls-files 'src/*.cpp' 'src/*.c' | grep -Fxf <(sed -n "s|^ *\"file\": \"$PWD/\(.*\)\".*|\1|p" build-asan/compile_commands.json) |
  xargs -P "$jobs" -n 1 sh -c 'echo "$1"; exec clang-tidy-19 -p build-asan --quiet --warnings-as-errors="*" "$1" 2>/dev/null' --
echo "== nothing found"
