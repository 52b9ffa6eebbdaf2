#!/bin/bash
# Checks the sources' format and runs clang-tidy (.clang-tidy) over all of them; finds nothing, or fails.
set -euo pipefail
jobs=${1:-$(nproc)}
cd "$(dirname "$0")/.."

echo "== format"
git ls-files '*.h' '*.cpp' '*.c' | xargs clang-format-19 --dry-run -Werror

echo "== clang-tidy"
cmake --preset clang >/dev/null
# Generated sources, if any, must be there.
git ls-files '*.cpp' '*.c' | grep -Fxf <(sed -n "s|^ *\"file\": \"$PWD/\(.*\)\".*|\1|p" build-clang/compile_commands.json) |
  xargs -P "$jobs" -n 4 clang-tidy-19 -p build-clang --quiet --warnings-as-errors='*' 2>/dev/null
echo "== nothing found"
