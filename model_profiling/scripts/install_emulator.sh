#!/usr/bin/env bash
# Installs what `sme2-kit run --platform emulator` needs on Debian and Ubuntu: a QEMU that knows SME2 (10.1 or newer)
# and, on machines that are not Arm themselves, the Arm cross compiler.
#
# Where the release's own QEMU is older, a newer suite of the mirror that apt already uses is added, pinned so low that
# nothing is ever taken from it but what is asked for by name. Undo: remove the two files this script says it wrote.
set -euo pipefail

needed=10.1
source_file=/etc/apt/sources.list.d/sme2-kit-emulator.sources
pin_file=/etc/apt/preferences.d/sme2-kit-emulator

say() { echo "install_emulator: $*"; }
die() { echo "error: $1" >&2; echo "  fix: $2" >&2; exit 3; }
version_of() { dpkg-query -W -f '${Version}' "$1" 2> /dev/null | sed 's/^[0-9]*://; s/[+~-].*//'; }
new_enough() { [ -n "$1" ] && [ "$(printf '%s\n%s\n' "$needed" "$1" | sort -V | head -n 1)" = "$needed" ]; }
installed_version() { command -v qemu-aarch64 > /dev/null && qemu-aarch64 --version | sed -n 's/.*version \([0-9.]*\).*/\1/p' | head -n 1; }

command -v apt-get > /dev/null || die "this script supports apt only" "Install qemu-user $needed or newer with your package manager."
. /etc/os-release
case "${ID:-}" in
  debian) suite=trixie-backports ;;
  ubuntu) suite=resolute ;;
  *) die "this script supports Debian and Ubuntu, not ${ID:-this system}" "Install qemu-user $needed or newer with your package manager." ;;
esac
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo > /dev/null || die "this needs root and there is no sudo" "Run it as root."
  as_root=(sudo)
fi

compiler=()
case "$(uname -m)" in
  aarch64) command -v c++ > /dev/null || compiler=(g++) ;;
  *) command -v aarch64-linux-gnu-g++ > /dev/null || compiler=(g++-aarch64-linux-gnu) ;;
esac
if new_enough "$(installed_version || true)" && [ "${#compiler[@]}" -eq 0 ]; then
  say "already here: QEMU $(installed_version)"
  exit 0
fi
say "asking apt what the release itself has"
"${as_root[@]}" apt-get update -qq
if [ "${#compiler[@]}" -gt 0 ]; then
  say "installing ${compiler[*]}"
  "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${compiler[@]}" > /dev/null
fi
if new_enough "$(installed_version || true)"; then
  say "already here: QEMU $(installed_version)"
  exit 0
fi

own=$(apt-cache policy qemu-user | sed -n 's/ *Candidate: *//p' | sed 's/^[0-9]*://; s/[+~-].*//')
package=qemu-user
if ! new_enough "$own"; then
  # The mirror of the first entry that is not the security archive, in either of apt's two formats.
  mirror=$(cat /etc/apt/sources.list.d/*.sources 2> /dev/null | sed -n 's/^URIs: *\([^ ]*\).*/\1/p' | grep -v security | head -n 1 || true)
  if [ -z "$mirror" ]; then
    mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2> /dev/null \
      | sed -n 's/^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*\) .*/\2/p' | grep -v security | head -n 1 || true)
  fi
  [ -n "$mirror" ] || die "apt has no mirror to derive a newer suite from" "Install qemu-user $needed or newer by hand."
  keyring=$(cat /etc/apt/sources.list.d/*.sources 2> /dev/null | sed -n 's/^Signed-By: *\(.*\)/\1/p' | head -n 1 || true)
  say "this release's QEMU is ${own:-missing}; adding $suite of the same mirror ($source_file, pinned in $pin_file)"
  {
    printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main universe\n' "$mirror" "$suite"
    [ -z "$keyring" ] || printf 'Signed-By: %s\n' "$keyring"
  } | { [ "$ID" = ubuntu ] && cat || sed 's/ universe$//'; } | "${as_root[@]}" tee "$source_file" > /dev/null
  printf 'Package: *\nPin: release n=%s\nPin-Priority: 1\n' "$suite" | "${as_root[@]}" tee "$pin_file" > /dev/null
  if ! "${as_root[@]}" apt-get update -qq; then
    "${as_root[@]}" rm -f "$source_file" "$pin_file"
    die "the mirror has no usable $suite" "Install qemu-user $needed or newer by hand."
  fi
  package=qemu-user/$suite
  # Only QEMU itself may come from there. A package that drags others along would change this system.
  others=$(apt-get install -s --no-install-recommends "$package" | sed -n 's/^Inst \([^ ]*\).*/\1/p' | grep -v '^qemu-user' || true)
  if [ -n "$others" ]; then
    "${as_root[@]}" rm -f "$source_file" "$pin_file"
    die "QEMU from $suite would also change: $(echo "$others" | tr '\n' ' ')" "Install qemu-user $needed or newer by hand."
  fi
fi
say "installing $package"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" > /dev/null
new_enough "$(installed_version || true)" || die "QEMU is $(installed_version || echo missing) after all" "Install qemu-user $needed or newer by hand."
say "done: QEMU $(installed_version)"
