#!/bin/bash
# Makes the virtual machine's kernel and its RAM-only root from Debian packages, as any user:
#
#   image.sh FOLDER      leaves FOLDER/vmlinux and FOLDER/initramfs.cpio; does nothing when they are up to date
#
# Exit code 77: the packages cannot be had; standard error says why.
set -euo pipefail

# The guest's user space, package by package: nothing of the host's is assumed.
packages="busybox-static dash libc6 libgcc-s1 libstdc++6
  rdmacm-utils ibverbs-utils ibverbs-providers perftest
  librdmacm1 libibverbs1 libibumad3 libnl-3-200 libnl-route-3-200 libpci3 zlib1g libudev1 libkmod2 liblzma5 libzstd1
  iproute2 libbpf1 libbsd0 libmd0 libcap2 libelf1 libmnl0 libselinux1 libpcre2-8-0 libtirpc3 libgssapi-krb5-2
  libkrb5-3 libk5crypto3 libkrb5support0 libcom-err2 libkeyutils1 libxtables12 libdb5.3 libfmt9 util-linux libcap-ng0"
modules="virtio_pci virtio_net virtio_rng 9pnet_virtio 9p
  rdma_rxe rdma_ucm ib_umad ib_uverbs rdma_cm crc32_generic crc32c_generic libcrc32c
  ifb veth sch_netem sch_ingress act_mirred cls_matchall"

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
folder=$PWD
exec 9>lock
flock 9

# What the image is made from: when that changes, it is made again.
recipe=$(cat "$here/image.sh" "$here"/guest/* | sha256sum)
[ "$(cat recipe 2>/dev/null)" != "$recipe" ] || exit 0
rm -rf recipe kernel root vmlinux initramfs.cpio

unavailable() { echo "$*" >&2; exit 77; }

for tool in apt-get dpkg-deb busybox cpio xz; do
  command -v $tool >/dev/null || unavailable "no '$tool' here: scripts/setup.sh interop installs what is needed"
done

# Package lists of our own, so that neither root nor the age of the system's matters.
fetch() {
  rm -rf lists cache debs
  mkdir -p lists/partial cache/archives/partial debs
  apt() { "apt-$1" -qq -o Dir::State::Lists="$folder/lists" -o Dir::Cache="$folder/cache" -o APT::Sandbox::User=root "${@:2}"; }
  apt get update >&2 || unavailable "the package lists cannot be had: apt-get update failed"
  local image
  image=$(apt cache depends linux-image-amd64 | awk '/Depends: linux-image-/ {print $2; exit}')
  [ -n "$image" ] || unavailable "no package linux-image-amd64 in the configured archives"
  # shellcheck disable=SC2086
  (cd debs && apt get download $image $packages >&2) || unavailable "the virtual machine's packages cannot be downloaded"
  rm -rf lists cache
  echo "$packages" >debs/list
}
[ "$(cat debs/list 2>/dev/null)" = "$packages" ] || fetch

mkdir kernel root
for deb in debs/*.deb; do
  case $deb in debs/linux-image-*) dpkg-deb -x "$deb" kernel ;; *) dpkg-deb -x "$deb" root ;; esac
done
(cd root && rm -rf usr/share usr/lib/x86_64-linux-gnu/{gconv,perl-base,audit} usr/lib/locale usr/include var)

# The kernel unpacked saves the emulated processor four seconds; the file is xz data behind a loader.
compressed=$(echo kernel/boot/vmlinuz-*)
offset=$(LC_ALL=C grep -abom1 -P '\xfd7zXZ\x00' "$compressed" | head -1 | cut -d: -f1)
tail -c +$((offset + 1)) "$compressed" | xz -dc >vmlinux 2>/dev/null || true  # what follows the data is no error
[ "$(head -c 4 vmlinux | tail -c 3)" = ELF ] || cp "$compressed" vmlinux

# The modules asked for and those they need.
version=$(ls kernel/lib/modules)
from=kernel/lib/modules/$version to=root/lib/modules/$version
busybox depmod -b kernel "$version"
closure() {
  awk -v wanted="$*" '
    function name(path) { sub(/.*\//, "", path); sub(/\.ko.*/, "", path); gsub(/-/, "_", path); return path }
    { path = $1; sub(/:$/, "", path); file[name(path)] = path
      needs[name(path)] = ""; for (i = 2; i <= NF; i++) needs[name(path)] = needs[name(path)] " " $i }
    function add(module,  count, list, i) {
      if (module in done || !(module in file)) return
      done[module] = 1
      count = split(needs[module], list, " ")
      for (i = 1; i <= count; i++) add(name(list[i]))
      print file[module] }
    END { count = split(wanted, list, " "); for (j = 1; j <= count; j++) add(list[j]) }' "$from/modules.dep"
}
# shellcheck disable=SC2086
for module in $(closure $modules); do
  mkdir -p "$to/$(dirname "$module")"
  cp "$from/$module" "$to/$module"
done
cp "$from"/modules.{builtin,order} "$to/"
busybox depmod -b root "$version"

(
  cd root
  mkdir -p dev proc sys run tmp root etc applets build lib64
  ln -sf ../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 lib64/ld-linux-x86-64.so.2
  for applet in $(bin/busybox --list); do ln -sf ../bin/busybox "applets/$applet"; done
  ln -sf dash bin/sh  # busybox' own shell prefers its applets to what PATH says
  echo 'root:x:0:0:root:/root:/bin/sh' >etc/passwd
  echo 'root:x:0:' >etc/group
  echo '127.0.0.1 localhost' >etc/hosts
  printf '#!/bin/sh\nexec /bin/busybox modprobe "$@"\n' >sbin/load-module
  install -m 755 "$here/guest/init" init
  install -m 755 "$here/guest/agent" agent
  chmod 755 sbin/load-module
  find . | cpio -o -H newc --quiet --owner 0:0 >../initramfs.cpio
)
rm -rf kernel root
echo "$recipe" >recipe
