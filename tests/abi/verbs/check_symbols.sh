#!/bin/sh
# check_symbols.sh LIBRARY TABLE: the library's dynamic symbols are exactly those of the table, each at its version.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
nm -D --defined-only "$1" | awk '{print $3}' | grep '@' | grep -v '^IBVERBS_' | sort >"$scratch/built"
grep -v '^#' "$2" | awk '{print $2 "@@" $1}' | sort >"$scratch/wanted"
diff "$scratch/wanted" "$scratch/built"
