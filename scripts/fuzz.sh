#!/bin/bash
# What `make fuzz` does after scripts/setup.sh and the build: every fuzz target searches for its share of the time.
#   fuzz.sh SECONDS
# Starts from tests/fuzz/corpus and from what earlier runs have found (build-fuzz/found), and says where an input that
# fails is, and how to play it again.
set -euo pipefail
cd "$(dirname "$0")/.."
targets=()
for corpus in tests/fuzz/corpus/*/; do targets+=("$(basename "$corpus")"); done
share=$(($1 / ${#targets[@]}))
[ "$share" -ge 1 ] || { echo "fuzz: ${#targets[@]} targets need at least a second each" >&2; exit 1; }

failed=0
for target in "${targets[@]}"; do
  found=build-fuzz/found/$target
  log=build-fuzz/found/$target.log
  mkdir -p "$found"
  echo "== fuzz_$target: $share s"
  if "build-fuzz/bin/fuzz_$target" -max_total_time="$share" -timeout=20 -rss_limit_mb=2048 \
    -print_final_stats=1 -artifact_prefix="build-fuzz/found/$target-" "$found" "tests/fuzz/corpus/$target" >"$log" 2>&1; then
    sed -n 's/^stat::number_of_executed_units: */   inputs: /p; s/^stat::new_units_added: */   of them new ways through the code: /p' "$log"
    continue
  fi
  failed=1
  tail -n 30 "$log"
  input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
  echo "fuzz: $target failed (all of it: $log)${input:+; again with: build-fuzz/bin/fuzz_$target $input}"
done
exit $failed
