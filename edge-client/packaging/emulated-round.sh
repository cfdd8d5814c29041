#!/bin/sh
# A federated run between the client for 64-bit ARM, emulated, and this machine's aggregator, over QUIC on the loopback: two
# devices train two rounds on the built-in data. Ends with 0 if both were of use and the run left a model.
#
#     edge-client/packaging/emulated-round.sh              builds both programs (build.sh says what that needs)
#     edge-client/packaging/emulated-round.sh CLIENT AGGREGATOR
#
# emulate.sh says what running the client needs. With SYSROOT naming the files of an old system, the round is a test that the
# client runs on it: of Debian 11's (glibc 2.31), for example, what `dpkg-deb -x libc6_2.31-*_arm64.deb DIR` unpacks.

set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
fail() {
    printf '%s: %s\n' "$0" "$1" >&2
    exit 1
}
case $# in
0)
    "$here/build.sh" arm64 edge-client
    (cd "$root" && cargo build --locked --release --package aggregator --bin aggregator)
    client=$root/target/portable/arm64/edge-client
    aggregator=$root/target/release/aggregator
    ;;
2) client=$1 aggregator=$2 ;;
*) fail 'give both programs, or none' ;;
esac
case $(LC_ALL=C readelf --file-header "$client") in
*AArch64*) ;;
*) fail "$client is no program for 64-bit ARM" ;;
esac

work=$(mktemp -d)
lab=
device=
end() {
    for process in $lab $device; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap end EXIT
trap 'exit 130' INT TERM

set -- "$root/tests/configs/four-devices.toml" --set run.rounds=2 --set data.clients=2 --set data.max-samples=400 \
    --set round.min-updates=2 --set round.min-clients-to-start=2
"$aggregator" data split "$@" --out "$work/shares" >/dev/null
"$aggregator" serve "$@" --listen 127.0.0.1:0 --runs "$work/runs" --ready-file "$work/ready" >"$work/lab" 2>&1 &
lab=$!
while [ ! -s "$work/ready" ]; do
    kill -0 "$lab" 2>/dev/null || { cat "$work/lab" >&2; fail 'the aggregator ended before devices could join'; }
    sleep 0.1
done
address=$(sed -n 's/.*"address":"\([^"]*\)".*/\1/p' "$work/ready")
"$aggregator" ticket --uses 2 --runs "$work/runs" --address "$address" --json |
    grep -o 'fed1[a-z0-9]*' >"$work/ticket" || fail 'the aggregator gave no ticket'

# From a file: a ticket among the arguments has the client start itself anew without it, which an emulator does not notice.
join() { # NUMBER
    "$here/emulate.sh" "$client" join --ticket-file "$work/ticket" --data "$work/shares/client-00$1" \
        --state "$work/state-$1" >"$work/device-$1" 2>&1
}
join 1 &
device=$!
join 0 || { cat "$work/device-0" "$work/lab" >&2; fail 'the first device failed'; }
wait "$device" || { cat "$work/device-1" "$work/lab" >&2; fail 'the second device failed'; }
device=
wait "$lab" || { cat "$work/lab" >&2; fail 'the aggregator failed'; }
lab=
cat "$work/device-0"
[ -s "$work/runs/four-devices/model.safetensors" ] || fail 'the run left no model'
[ "$(grep -c 'update accepted' "$work/device-0")" = 2 ] || fail 'an update of the first device was not accepted'
sed -n '$s/.*"accuracy":\([0-9.]*\).*/accuracy after two rounds: \1/p' "$work/runs/four-devices/rounds.jsonl"
