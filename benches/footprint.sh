#!/usr/bin/env bash
# What a running agent takes of a gateway, by the size of its fleet: memory, CPU time and what it writes. A table.
#
#   benches/footprint.sh BINARY [MESSAGES]     of each fleet, 200,000 where nothing else is said
#
# Two brokers (config/mosquitto.conf) and the agent as in the shipped unit, by /proc. The fleet sends its messages as fast as the
# devices' broker takes them: so CPU time is that of a backlog, and what is written is less for each message than in a trickle,
# of which benches/disk has the figures.
set -euo pipefail
binary=$(realpath "${1:?usage: benches/footprint.sh BINARY [MESSAGES]}") messages=${2:-200000}
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
started=()
trap 'kill "${started[@]}" 2>/dev/null || true; wait; rm -rf "$scratch"' EXIT
export PATH=$PATH:/usr/sbin

# broker PORT
broker() {
    mkdir "$scratch/$1"
    { grep -vE '^(listener|persistence_location|acl_file) ' config/mosquitto.conf &&
        printf 'listener %s 127.0.0.1\npersistence_location %s/\nuser root\nlog_dest none\n' "$1" "$scratch/$1"; } >"$scratch/$1/conf"
    mosquitto -c "$scratch/$1/conf" 2>/dev/null &
    started+=($!)
    until mosquitto_pub -p "$1" -t hello -n 2>/dev/null; do sleep 0.1; done
}

# lines N: readings of N devices in turn, a minute of event time apart, up to now.
lines() {
    awk -v n="$1" -v all="$messages" -v now="$(date +%s)" 'BEGIN {
        for (i = 0; i < all; i++)
            printf "{\"id\":\"l-%05d\",\"samples\":[{\"t\":\"%s\",\"c\":%.1f}]}\n", i % n,
                strftime("%Y-%m-%dT%H:%M:%SZ", now - 60 * int((all - 1 - i) / n), 1), 20 + i % 7
    }'
}

field() { awk -v name="$1:" '$1 == name { print $2 }' "/proc/$agent/$2"; }
cpu() { awk '{ print $14 + $15 }' "/proc/$agent/stat"; }
handled() { "$binary" -c "$dir/conf.toml" status --json 2>/dev/null | grep -oE '"received":[0-9]+' | grep -oE '[0-9]+' || echo 0; }

# row DEVICES PORT
row() {
    dir=$scratch/agent-$1
    mkdir "$dir"
    : >"$dir/log"
    broker "$2" && broker $(($2 + 1))
    cat >"$dir/conf.toml" <<TOML
gateway.id = "footprint"
clock.trust-host = true
broker.port = $2
upstream = { host = "localhost", port = $(($2 + 1)) }
store.path = "$dir/store"
status.socket = "$dir/socket"
[[source]]
name = "loggers"
topic = "loggers/{any}"
device = "root:/id"
items = "/samples"
time = { from = "/t", as = "rfc3339" }
metric = [{ name = "temperature", from = "/c", unit = "°C" }]
TOML
    "$binary" -c "$dir/conf.toml" run 2>"$dir/log" &
    agent=$!
    started+=("$agent")
    until grep -q 'caught up' "$dir/log"; do sleep 0.1; done
    local before used
    before=$(field VmRSS status) used=$(cpu)
    # mosquitto_pub stops early when its packet ids, 65,535 of them, begin anew.
    lines "$1" | split -l 50000 --filter="mosquitto_pub -p $2 -q 1 -t loggers/x -l" -
    until (($(handled) >= messages)); do sleep 0.2; done
    sleep 11 # the last commit
    awk -v n="$1" -v b="$before" -v r="$(field VmRSS status)" -v h="$(field VmHWM status)" -v c="$(($(cpu) - used))" \
        -v hz="$(getconf CLK_TCK)" -v w="$(field write_bytes io)" -v m="$messages" \
        'BEGIN { printf "%8d  %11.1f  %11.1f  %11.1f  %14.1f  %15.0f\n", n, b / 1024, r / 1024, h / 1024, c / hz * 1e6 / m, w / m }'
}

printf '%8s  %11s  %11s  %11s  %14s  %15s\n' devices 'idle, MiB' 'after, MiB' 'peak, MiB' 'CPU s/million' 'written, B each'
row 1000 21841
row 10000 21851
