#!/bin/bash
# What `make deb` does after scripts/setup.sh and the build: packs a finished build tree into Debian packages.
#   deb.sh BUILD OUTPUT
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: deb.sh BUILD OUTPUT" >&2; exit 2; }
source=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
mkdir -p "$2"
output=$(cd "$2" && pwd)

version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
packaged=$(dpkg-parsechangelog -l "$source/packaging/debian/changelog" -S Version)
[ "$version" = "$packaged" ] || { echo "deb: CMakeLists.txt says $version, packaging/debian/changelog $packaged" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
# Files of a checkout have its umask.
umask 022
cp -r --no-preserve=mode "$source/packaging/debian" "$work/debian"
chmod +x "$work/debian/rules"
cd "$work"
UCM_SOURCE=$source UCM_BUILD=$build UCM_OUTPUT=$output debian/rules binary >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
