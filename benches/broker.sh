#!/usr/bin/env bash
# What mosquitto itself writes to the disk with config/mosquitto.conf, by what waits in its queue: a table.
#
#   benches/broker.sh [SECONDS]     how long each row is watched (default 310, ten autosaves)
#
# Each row is a broker of its own with so many messages waiting for a session that is away. While it is watched,
# one message more comes every five seconds. The bytes are those of /proc/PID/io: what the process had the
# kernel write, without the file system's journal.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-310}
scratch=$(mktemp -d)
trap 'wait; rm -rf "$scratch"' EXIT
export PATH=$PATH:/usr/sbin

# A message of 150 bytes, topic and payload of a usual meter.
topic=meters/north/1EMH0012345678/telemetry
payload='{"ts":1795971610481,"power":2025.75,"energy_wh":18734512,"voltage":[229.8,230.4,231.1],"status":"0000000000000000"}'

written() { awk '/^write_bytes/ { print $2 }' "/proc/$1/io"; }

# row QUEUED PORT PUBLISHED: QUEUED messages wait; PUBLISHED says whether one more comes every five seconds.
row() {
    local dir=$scratch/$2 before after broker
    mkdir "$dir"
    { grep -vE '^(listener|persistence_location|acl_file) ' config/mosquitto.conf &&
        printf 'listener %s 127.0.0.1\npersistence_location %s/\nuser root\nlog_dest none\n' "$2" "$dir"; } >"$dir/conf"
    mosquitto -c "$dir/conf" 2>/dev/null &
    broker=$!
    trap "kill $broker" EXIT
    until mosquitto_sub -p "$2" -c -i away -q 1 -t 'meters/#' -E >/dev/null 2>&1; do sleep 0.1; done
    # mosquitto_pub stops early when its packet ids, 65,535 of them, begin anew.
    for ((left = $1; left > 0; left -= 25000)); do
        awk -v n=$((left < 25000 ? left : 25000)) -v line="$payload" 'BEGIN { while (n--) print line }' |
            mosquitto_pub -p "$2" -q 1 -t "$topic" -l
    done
    sleep 31 # the first file with all of it
    before=$(written "$broker")
    for ((left = seconds / 5; left > 0; left--)); do
        if [[ $3 == yes ]]; then mosquitto_pub -p "$2" -q 1 -t "$topic" -m "$payload"; fi
        sleep 5
    done
    after=$(written "$broker")
    awk -v q="$1" -v p="$3" -v b=$((after - before)) -v s="$seconds" -v f="$(stat -c %s "$dir/mosquitto.db")" \
        'BEGIN { printf "%8d  %-9s  %10d  %12d  %9.3f\n", q, p, f, b, b / s * 86400 / 1e9 }'
}

printf '%8s  %-9s  %10s  %12s  %9s\n' waiting more 'file, B' 'written, B' 'GB a day'
row 0 21831 no >"$scratch/0" &
row 0 21832 yes >"$scratch/1" &
row 1000 21833 yes >"$scratch/2" &
row 10000 21834 yes >"$scratch/3" &
row 99000 21835 yes >"$scratch/4" &
wait
cat "$scratch"/[0-4]
