#!/bin/sh
# Installs packages, uses what they bring, upgrades, removes and purges them: in a throw-away view of this very system (an
# overlay in a mount namespace), which is left as it was. Needs root, Debian or a derivative, and unshare (util-linux); ends
# with 77 where that view cannot be made, as in most containers.
#
#     edge-client/packaging/test.sh target/packages/*_amd64.deb

set -eu

fail() {
    printf '%s: %s\n' "$0" "$1" >&2
    exit 1
}

cannot() {
    printf '%s: packages are not tried: %s\n' "$0" "$1" >&2
    exit 77
}

[ $# -gt 0 ] || fail 'name the packages to test'
for package; do [ -f "$package" ] || fail "there is no $package"; done

# 1. Outside: a namespace of mounts, and in it the view.
if [ -z "${PACKAGES_UNDER_TEST:-}" ]; then
    [ "$(id -u)" = 0 ] || cannot 'only root can install packages, even where nothing is changed by it'
    unshare --mount --pid --fork true 2>/dev/null || cannot 'this system lets nobody have mounts of his own'
    exec unshare --mount --pid --fork env PACKAGES_UNDER_TEST=outside "$0" "$@"
fi
if [ "$PACKAGES_UNDER_TEST" = outside ]; then
    view=$(mktemp -d)
    mount -t tmpfs view "$view" || cannot 'this system lets nobody have files in memory'
    mkdir "$view/upper" "$view/work" "$view/root"
    mount -t overlay overlay -o "lowerdir=/,upperdir=$view/upper,workdir=$view/work" "$view/root" ||
        cannot 'this system lets nobody make an overlay of its files'
    mount -t proc proc "$view/root/proc" || cannot 'this system shows nobody its processes anew'
    # Services of the system are none of this test's: the scripts see no running systemd.
    mount -t tmpfs run "$view/root/run" && mount -t tmpfs packages "$view/root/mnt" ||
        cannot 'this system lets nobody have files in memory'
    cp "$@" "$view/root/mnt"
    cp "$0" "$view/root/mnt/test.sh"
    code=0
    PACKAGES_UNDER_TEST=inside chroot "$view/root" /bin/sh -c 'cd / && exec /mnt/test.sh /mnt/*.deb' || code=$?
    umount -R "$view/root" && umount "$view" && rmdir "$view"
    exit "$code"
fi

# 2. Inside.
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
holds() { # WHAT COMMAND...
    what=$1
    shift
    "$@" >/tmp/output 2>&1 || { cat /tmp/output >&2; fail "$package: $what: \`$*\` says no"; }
}
fails() {
    what=$1
    shift
    ! "$@" >/tmp/output 2>&1 || { cat /tmp/output >&2; fail "$package: $what: \`$*\` says yes"; }
}
for file; do
    package=$(dpkg-deb --field "$file" Package)
    command -v adduser >/dev/null || { apt-get update -q && apt-get install -yq adduser; } >/dev/null

    fails 'not installed before' test -e "/usr/bin/$package"
    holds 'installs' dpkg --install "$file"
    holds 'its files are whole' dpkg --verify "$package"
    holds 'the program runs' "$package" --version
    holds 'the manual is there' gzip -t "/usr/share/man/man1/$package.1.gz"
    holds 'bash reads the completions' bash -n "/usr/share/bash-completion/completions/$package"
    holds 'the user is there' getent passwd "$package"
    holds 'the state is its own' test "$(stat -c %U "/var/lib/$package")" = "$package"
    holds 'nobody else reads it' test "$(stat -c %A "/var/lib/$package" | cut -c8-10)" = ---
    if command -v systemd-analyze >/dev/null; then
        holds 'systemd takes the unit' systemd-analyze verify --man=no "/usr/lib/systemd/system/$package.service"
        cp /tmp/output /tmp/said
        fails 'and has nothing to say of it' grep . /tmp/said
    fi
    if command -v systemctl >/dev/null; then
        holds 'the unit can be enabled' systemctl enable "$package"
    fi

    # What the unit starts takes the arguments that it is given, as far as the configuration of the package goes.
    command=$(sed -n 's/^ExecStart=//p' "/usr/lib/systemd/system/$package.service")
    code=0
    # shellcheck disable=SC2016 # $1 and the variables are for the inner shell
    su -s /bin/sh "$package" -c 'set -a; eval "$1"; eval "exec timeout 2 $2"' sh \
        "$(cat "/etc/default/$package")" "$command" >/tmp/output 2>&1 || code=$?
    case $package:$code in
    aggregator:124 | aggregator:0) ;; # it served until it was told to stop
    edge-client:2 | edge-client:3) ;; # nobody has said yet what to join, and there is no data
    *) cat /tmp/output >&2; fail "$package: the unit's command ended with $code" ;;
    esac

    # An upgrade keeps what was configured and what was learnt.
    echo '# changed here' >>"/etc/default/$package"
    echo learnt >"/var/lib/$package/kept"
    holds 'upgrades' dpkg --install "$file"
    holds 'keeps the configuration' grep -q 'changed here' "/etc/default/$package"
    holds 'keeps the state' grep -q learnt "/var/lib/$package/kept"

    # Where systemd is at work, an upgrade neither waits for the service nor fails with it.
    mkdir -p /run/systemd/system /tmp/bin
    printf '#!/bin/sh\necho "$@" >>/tmp/asked\nexit 1\n' >/tmp/bin/systemctl
    chmod +x /tmp/bin/systemctl
    : >/tmp/asked
    holds 'upgrades with a service in trouble' \
        env "PATH=/tmp/bin:$PATH" "/var/lib/dpkg/info/$package.postinst" configure 0
    holds 'has it started again' grep -qx -e "--no-block try-restart $package.service" /tmp/asked
    # One that has failed does not run, and may need the new program: `try-restart` would leave it alone.
    printf '#!/bin/sh\necho "$@" >>/tmp/asked\ncase $1 in is-failed | is-enabled) exit 0 ;; esac\nexit 1\n' >/tmp/bin/systemctl
    holds 'upgrades with a service that has failed' \
        env "PATH=/tmp/bin:$PATH" "/var/lib/dpkg/info/$package.postinst" configure 0
    holds 'has that started again, too' grep -qx -e "--no-block restart $package.service" /tmp/asked
    rm -r /run/systemd/system

    holds 'is removed' dpkg --remove "$package"
    fails 'takes the program along' test -e "/usr/bin/$package"
    fails 'leaves no link to a unit that is gone' \
        test -L "/etc/systemd/system/multi-user.target.wants/$package.service"
    holds 'keeps the configuration then' grep -q 'changed here' "/etc/default/$package"
    holds 'keeps the state then' grep -q learnt "/var/lib/$package/kept"
    holds 'comes back' dpkg --install "$file"
    holds 'as the same' grep -q learnt "/var/lib/$package/kept"

    holds 'is purged' dpkg --purge "$package"
    for left in "/var/lib/$package" "/etc/default/$package" "/etc/$package" "/usr/share/doc/$package"; do
        fails "leaves no $left" test -e "$left"
    done
    fails 'leaves no user' getent passwd "$package"
    echo "$(basename "$file"): installs, upgrades, is removed and purged as it should"
done
