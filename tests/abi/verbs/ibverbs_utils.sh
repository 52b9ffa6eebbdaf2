#!/bin/sh
# ibverbs_utils.sh BUILD_DIRECTORY: Debian's ibverbs-utils, unmodified, over one ucmd on the loopback interface of a
# network namespace of its own. Exit status 77: this system lacks the tools or allows no namespaces.
set -eu
if [ "${2:-}" != inside ]; then
  command -v ibv_rc_pingpong >/dev/null && command -v ss >/dev/null || exit 77
  unshare -rn true 2>/dev/null || exit 77
  exec unshare -rn "$0" "$1" inside
fi

ucm=$1/bin/ucm
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"; "$ucm" stop >/dev/null 2>&1 || true' EXIT
ip link set lo up

run() {
  # In a build with the address sanitizer its runtime must be loaded first; the tools' own leaks are not ours to report.
  timeout 60 env LD_PRELOAD="${UCM_ASAN_RUNTIME:-}" ASAN_OPTIONS=detect_leaks=0 "$ucm" run -- "$@"
}

run ibv_devices | grep -q ucm_lo
run ibv_devinfo -v -d ucm_lo >"$scratch/devinfo"
grep -q 'PORT_ACTIVE' "$scratch/devinfo"
grep -q 'GID\[ *0\].*127.0.0.1.*RoCE v2' "$scratch/devinfo"

await_listener() {
  tries=0
  until [ -n "$(ss -ltnH sport = :18515)" ]; do
    tries=$((tries + 1))
    [ $tries -lt 200 ] || { cat "$scratch/server"; exit 1; }
    sleep 0.05
  done
}

pingpong() {
  echo "$*"
  run "$@" -g 0 >"$scratch/server" 2>&1 &
  await_listener
  run "$@" -g 0 127.0.0.1 >"$scratch/client" 2>&1 || { cat "$scratch/client"; exit 1; }
  wait $! || { cat "$scratch/server"; exit 1; }
}

pingpong ibv_rc_pingpong -c
pingpong ibv_rc_pingpong -c -e
pingpong ibv_rc_pingpong -c -N
pingpong ibv_ud_pingpong -c
pingpong ibv_srq_pingpong -c
pingpong ibv_srq_pingpong -c -e
