#!/bin/bash
# Installs what UCM needs from Debian's own packages; asks nothing, and does nothing when all of it is there.
#
#   scripts/setup.sh [GROUP…]     groups: build (default) demo test deb interop lint fuzz bench
set -euo pipefail

declare -A packages_of=(
  # The compiler, the build tools and the libraries that UCM links to or compiles against.
  [build]="g++ libc6-dev cmake ninja-build make pkg-config python3
           libcli11-dev libtomlplusplus-dev libspdlog-dev libfmt-dev nlohmann-json3-dev libexpected-dev
           libnl-3-dev libibverbs-dev librdmacm-dev systemtap-sdt-dev
           libgtest-dev libgmock-dev"
  # The programs that the demo runs, and what makes network namespaces.
  [demo]="rdmacm-utils ibverbs-utils iproute2 procps python3 util-linux"
  [test]="rdmacm-utils ibverbs-utils iproute2 procps python3 util-linux tshark curl
          perftest qperf fio ucx-utils libfabric-bin python3-pyverbs
          clang-19 libclang-rt-19-dev ccache
          debhelper dpkg-dev lintian"
  [deb]="debhelper dpkg-dev"
  # The virtual machine whose Linux kernel UCM is tested against; what runs inside of it is fetched by tests/interop/image.sh.
  [interop]="qemu-system-x86 busybox-static cpio xz-utils rdmacm-utils perftest iproute2 procps python3 util-linux"
  [lint]="git clang-19 clang-format-19 clang-tidy-19"
  [fuzz]="clang-19 libclang-rt-19-dev"
  [bench]="libbenchmark-dev rdmacm-utils iproute2 python3 util-linux"
)

die() { echo "setup: $*" >&2; exit 1; }

if [ $# -eq 0 ]; then set -- build; fi
wanted=""
for group in "$@"; do
  [ -n "${packages_of[$group]:-}" ] || die "no group '$group' (there are: ${!packages_of[*]})"
  wanted+=" ${packages_of[$group]}"
done
wanted=$(tr -s ' \n' '\n' <<<"$wanted" | sort -u)

command -v dpkg-query >/dev/null ||
  die "this is not Debian; install the counterparts of these packages by hand:" $wanted

# dpkg-query says 'i' first for what is installed, and fails (harmlessly) on names that it does not know.
installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' $wanted 2>/dev/null | awk '$1 == "ii" {print $2}' || true)
missing=$(comm -23 <(echo "$wanted") <(sort -u <<<"$installed") | tr '\n' ' ')
[ -n "${missing// /}" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
  as_root=(env)
elif command -v sudo >/dev/null; then
  # A password is asked for only where a person can give it.
  if [ -t 0 ]; then as_root=(sudo env); else as_root=(sudo -n env); fi
else
  die "these packages are missing: $missing
       and this user cannot install them; as root: apt-get install --no-install-recommends $missing"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Everything goes to the log; what tells how far it is, to the person who waits, too.
progress() {
  local line done=0
  while IFS= read -r line; do
    echo "$line" >>"$log"
    case $line in
      "Need to get "* | "Fetched "*) echo "setup: $line" ;;
      "Setting up "*) done=$((done + 1)); if ((done % 20 == 0)); then echo "setup: $done packages are set up"; fi ;;
    esac
  done
}
apt() {
  "${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" 2>&1 </dev/null | progress
}

echo "setup: installing $missing"
# A fresh machine has no package lists, or old ones: get them, but only when something is missing. When only another
# archive's list cannot be had, installing still tells.
apt update || echo "setup: apt-get update complained; trying to install all the same"
if ! apt install --no-install-recommends $missing; then
  tail -n 30 "$log" >&2
  die "apt-get could not install: $missing"
fi
echo "setup: done"
