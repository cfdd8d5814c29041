#!/bin/sh
# Packs a program as a Debian package: the program, its service, manual pages and completions.
#
#     edge-client/packaging/deb.sh arm64                        target/packages/edge-client_VERSION_arm64.deb
#     edge-client/packaging/deb.sh amd64 aggregator
#     edge-client/packaging/deb.sh --from target/dist/edge-client amd64
#
# Builds the program with build.sh, which lies beside this script and says what that needs, unless --from names one that
# is built. The package asks for the glibc that the program in it asks for. To write the manual pages the program has to
# be run: emulate.sh says what that takes for arm64 on another machine.
# Needs dpkg-deb and readelf: plain dpkg-deb and not cargo-deb, since all that is to be said is twenty lines of this script,
# and whoever packs needs nothing but Debian. The same commit and program give the same bytes.

set -eu

fail() {
    printf '%s: %s\n' "$0" "$1" >&2
    exit 1
}

usage() {
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

from=
if [ "${1:-}" = --from ]; then
    from=${2:-}
    shift 2 || usage
fi
[ $# -ge 1 ] && [ $# -le 2 ] || usage
architecture=$1
package=${2:-edge-client}
case $package in
edge-client)
    mode=0700
    summary='Federated learning with the data of this device'
    text='Connects to an aggregator over QUIC, receives a model, trains on the samples of
 this device and sends back what changed. The samples never leave the device.'
    ;;
aggregator)
    mode=0750
    summary='Rounds of federated learning for devices that train on their own data'
    text='Serves a run to devices that join with edge-client, folds what they send,
 survives being killed at any time, and leaves a model and a report.'
    ;;
*) fail "\`$package\` is not a program of this project: give edge-client or aggregator" ;;
esac
case $architecture in
arm64) machine=aarch64 ;;
amd64) machine=x86_64 ;;
*) fail "\`$architecture\` is not an architecture that this packs for: give arm64 or amd64" ;;
esac
for tool in dpkg-deb:dpkg readelf:binutils gzip:gzip; do
    command -v "${tool%:*}" >/dev/null 2>&1 || fail "\`${tool%:*}\` is not there; install ${tool#*:}"
done

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
if [ -z "$from" ]; then
    "$here/build.sh" "$architecture" "$package"
    from=$root/target/portable/$architecture/$package
fi
[ -f "$from" ] || fail "there is no program $from"
case $(LC_ALL=C readelf --file-header "$from" | sed -n 's/.*Machine: *//p') in
AArch64) is=aarch64 ;;
*X86-64) is=x86_64 ;;
*) is=another ;;
esac
[ "$is" = "$machine" ] || fail "$from is a program for $is, not for $architecture"
run=
if [ "$(uname -m)" != "$machine" ]; then
    [ "$architecture" = arm64 ] || fail "a program for $architecture has to be run to write its manual pages: pack it on such a machine"
    run=$here/emulate.sh
fi

# 0.1.0, and which commit after it: the later, the newer.
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
when=$(git -C "$root" log -1 --format=%ct 2>/dev/null) || when=
if [ -n "$when" ]; then
    version=$version+git$(date -u -d "@$when" +%Y%m%d%H%M).$(git -C "$root" log -1 --format=%h --abbrev=8)
fi
export SOURCE_DATE_EPOCH="${when:-0}"

packages=$root/target/packages
mkdir -p "$packages"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"
lies() { # MODE FILE PLACE
    install -D -m "$1" "$2" "$stage/$3"
}
parts=$root/$package/packaging/debian
lies 755 "$from" "usr/bin/$package"
lies 644 "$parts/$package.service" "usr/lib/systemd/system/$package.service"
# It may hold a ticket; systemd reads it as root.
lies 640 "$parts/$package.default" "etc/default/$package"
echo "/etc/default/$package" >"$stage/conffiles"
if [ "$package" = aggregator ]; then
    lies 644 "$root/tests/configs/four-devices.toml" etc/aggregator/run.toml
    echo /etc/aggregator/run.toml >>"$stage/conffiles"
else
    for example in cuda.conf trainer.conf; do
        lies 644 "$parts/$example" "usr/share/doc/edge-client/examples/$example"
    done
fi
mkdir -p "$stage/usr/share/man/man1" "$stage/usr/share/bash-completion/completions"
# shellcheck disable=SC2086 # a command and its arguments, or nothing
$run "$from" man --out "$stage/usr/share/man/man1" || fail "$from cannot be run here; its message is above"
# shellcheck disable=SC2086
$run "$from" completions bash >"$stage/usr/share/bash-completion/completions/$package"
gzip -9n "$stage"/usr/share/man/man1/*
{
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\n'
    printf 'Copyright: the authors of this program\nLicense: MIT or Apache-2.0\n\nLicense: MIT\n'
    sed 's/^/ /; s/^ $/ ./' "$root/LICENSE-MIT"
    printf '\nLicense: Apache-2.0\n On Debian systems: /usr/share/common-licenses/Apache-2.0\n'
} >"$stage/copyright"
lies 644 "$stage/copyright" "usr/share/doc/$package/copyright"
rm "$stage/copyright"

glibc=$(readelf --version-info --wide "$from" | grep -o 'GLIBC_[0-9.]*' | cut -d_ -f2 | sort -V | tail -n 1)
needs="libc6 (>= ${glibc:?the program asks for no glibc}), adduser"
if readelf --dynamic "$from" | grep -q 'libgcc_s'; then
    needs="$needs, libgcc-s1"
fi
mkdir "$stage/DEBIAN"
mv "$stage/conffiles" "$stage/DEBIAN/conffiles"
(cd "$stage" && find usr etc -type f | LC_ALL=C sort | xargs md5sum) >"$stage/DEBIAN/md5sums"
for script in postinst prerm postrm; do
    sed "s/@PACKAGE@/$package/g; s/@MODE@/$mode/g" "$here/debian/$script" >"$stage/DEBIAN/$script"
    chmod 755 "$stage/DEBIAN/$script"
done
cat >"$stage/DEBIAN/control" <<EOF
Package: $package
Version: $version
Architecture: $architecture
Maintainer: The people who built this package <root@localhost>
Section: science
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$stage" | cut -f1)
Depends: $needs
Recommends: systemd
Description: $summary
 $text
EOF
chmod -R u+rwX,go-w "$stage"
find "$stage" -type d -exec chmod 755 {} +
result=$packages/${package}_${version}_$architecture.deb
dpkg-deb --root-owner-group -Zxz --build "$stage" "$result.new" >/dev/null
mv "$result.new" "$result"
echo "$result"
