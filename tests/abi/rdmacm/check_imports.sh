#!/bin/sh
# check_imports.sh LIBRDMACM: it works on any libibverbs since rdma-core 32, the system's among them: all it needs there are
# public symbols up to IBVERBS_1.11, and nothing beside it or in its run path is a libibverbs.
set -eu
imports=$(nm -D --undefined-only --with-symbol-versions "$1" | sed -n 's/.*@\(IBVERBS_.*\)/\1/p' | sort -u)
for version in $imports; do
  case $version in
    IBVERBS_1.[0-9] | IBVERBS_1.1[01]) ;;
    *) echo "needs $version"; exit 1 ;;
  esac
done
[ -n "$imports" ]
found=$(env -u LD_LIBRARY_PATH ldd -r "$1" 2>&1)
if echo "$found" | grep -E 'undefined symbol|not found'; then exit 1; fi
path=$(echo "$found" | sed -n 's/.*libibverbs.so.1 => \([^ ]*\).*/\1/p')
case $path in
  "$(dirname "$1")"/*) echo "finds $path"; exit 1 ;;
esac
echo "needs nothing beyond" $imports "and finds $path"
