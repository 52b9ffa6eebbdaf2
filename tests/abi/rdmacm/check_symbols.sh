#!/bin/sh
# check_symbols.sh LIBRARY TABLE: the library exports exactly the symbols of the table ("VERSION NAME" per line).
set -eu
nm -D --defined-only --with-symbol-versions "$1" | awk '$2 != "A" { split($3, s, "@@"); print s[2], s[1] }' |
  LC_ALL=C sort | diff -u "$2" -
echo "$(wc -l < "$2") symbols as in the table"
