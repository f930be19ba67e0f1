#!/usr/bin/env bash
# The package as an operator meets it: a real systemd in a container, the .deb installed there, a device that publishes,
# and what arrives at a second broker. Then what happens to a gateway: kills, hangs, upgrades under load, removal.
#
#   tests/systemd.sh
#   tests/systemd.sh --footprint [MESSAGES]     instead, what the installed service takes of a gateway: a table
#
# Needs root, and Debian's systemd-container and debootstrap (installed where they are missing), and cargo-deb. The tree
# that is booted stays in target/systemd, for the next time; what is changed in it is gone with the container.
# Ends with 77 where no container can be had.
set -euo pipefail
cd "$(dirname "$0")/.."

footprint=0
case ${1:-} in
'') ;;
--footprint) footprint=${2:-200000} ;;
*) echo 'usage: tests/systemd.sh [--footprint [MESSAGES]]' >&2 && exit 2 ;;
esac

scratch=$(mktemp -d)
base=target/systemd/base
quick=target/quick
packages=target/systemd/packages
box='' leader=''
passed=0 failed=0

skip() {
    echo "skipped: $1"
    exit 77
}

end() {
    local code=$?
    # RTMIN+4 asks the systemd of the container to power off; a container that cannot is ended as a process.
    if [[ -n $leader ]]; then kill -s RTMIN+4 "$leader" 2>/dev/null || true; fi
    if [[ -n $box ]]; then
        within 15 gone || kill -KILL "$box" ${leader:+"$leader"} 2>/dev/null || true
        wait "$box" 2>/dev/null || true
    fi
    rm -rf "$scratch"
    exit "$code"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

gone() {
    ! kill -0 "$box" 2>/dev/null
}

# within SECONDS COMMAND…: waits until it holds.
within() {
    local limit=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        if ((SECONDS >= limit)); then
            echo "not within its time: $*" >&2
            return 1
        fi
        sleep 0.1
    done
}

# --- What is needed -------------------------------------------------------------------------------------------------

needs() {
    command -v "$2" >/dev/null && return
    command -v apt-get >/dev/null || return
    export DEBIAN_FRONTEND=noninteractive
    timeout 300 apt-get install -y -qq "$1" >"$scratch/apt" 2>&1 </dev/null ||
        { timeout 300 apt-get update -qq && timeout 300 apt-get install -y -qq "$1"; } >"$scratch/apt" 2>&1 </dev/null
}

tree() {
    [[ -e $base.complete ]] && return
    rm -rf "$base"
    mkdir -p "${base%/*}"
    timeout 300 debootstrap --variant=minbase \
        --include=systemd,systemd-sysv,dbus,mosquitto,mosquitto-clients bookworm "$base" >"$scratch/debootstrap" 2>&1 &&
        touch "$base.complete"
}

# Fewer optimisations than a release: nobody waits for these programs to be fast.
quickly() {
    env CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_OPT_LEVEL=1 "$@"
}

package() {
    quickly env CARGO_TARGET_DIR=$quick packaging/build.sh --output "$packages/$1" "${@:2}"
}

[[ $(id -u) == 0 ]] || skip 'a container needs root'
needs systemd-container systemd-nspawn || skip 'systemd-nspawn is missing, and cannot be installed here'
needs debootstrap debootstrap || skip 'debootstrap is missing, and cannot be installed here'
command -v cargo-deb >/dev/null || quickly timeout 900 cargo install --quiet cargo-deb ||
    skip 'cargo-deb is missing, and cannot be installed here'
tree || skip "no Debian could be fetched: $(tail -n 1 "$scratch/debootstrap")"

rm -rf $packages && mkdir -p $packages
if ((footprint)); then
    packaging/build.sh --output $packages/now.deb
else
    package now.deb
    package next.deb --no-build --version 99.0.0-1
fi
echo "packages and tree: $SECONDS s"

# --- The container --------------------------------------------------------------------------------------------------

# Runs a command in it.
in_box() {
    nsenter --target "$leader" --mount --uts --ipc --net --pid --cgroup --root "$@"
}

# Runs a script in it.
script() {
    in_box bash -euc "cd /; $1" -- "${@:2}"
}

booted() {
    leader=$(pgrep -P "$box") && in_box systemctl is-system-running | grep -qE 'running|degraded'
}

disk=()
if ((footprint)); then
    # Without it the state is in the memory, too, and nothing is written.
    mkdir -m 700 "$scratch/disk"
    disk=(--bind="$scratch/disk:/var/lib/private")
fi
# What a container may not ask on its own, and the agent has to, is the state of the kernel's clock. A network of its own: the loopback and nothing else, so that no port is taken. A file system of its own over the tree.
SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 systemd-nspawn --directory="$base" --volatile=overlay --private-network \
    --bind-ro="$PWD/$packages:/packages" "${disk[@]}" --machine="tidegate-$$" --register=no --keep-unit --console=pipe \
    --system-call-filter='adjtimex clock_adjtime' --boot \
    >"$scratch/console" 2>&1 </dev/null &
box=$!
for ((tries = 0; tries < 300; tries++)); do
    if booted 2>/dev/null; then break; fi
    gone && skip "no container can be booted here: $(tail -n 1 "$scratch/console")"
    leader=''
    sleep 0.1
done
[[ -n $leader ]] || skip 'no container boots here within 30 s'

# --- Words for the steps --------------------------------------------------------------------------------------------

# it NAME COMMAND…: one test.
it() {
    local name=$1 status=0
    shift
    set +e
    (set -e && "$@") >"$scratch/step" 2>&1
    status=$?
    set -e
    if ((status == 0)); then
        passed=$((passed + 1))
        echo "test $name ... ok"
        grep -E '^(note|skipped): ' "$scratch/step" || true
    else
        failed=$((failed + 1))
        echo "test $name ... FAILED"
        cat "$scratch/step"
        in_box journalctl --no-pager -n 25 -u tidegate 2>&1 | cut -c 1-300 | sed 's/^/    /' || true
    fi
}

property() {
    in_box systemctl show tidegate --property="$1" --value
}

is() {
    [[ $(property "$1") == "$2" ]]
}

active() {
    is ActiveState active
}

# The agent hears its devices; `status` leaves with its health, which is not asked for here.
listening() {
    script 'tidegate status --json || (($? < 3))' | grep -q '"broker":{[^}]*"state":"connected"'
}

says() {
    in_box journalctl --no-pager -u tidegate | grep -qF "$1"
}

# readings DEVICE COUNT: published at QoS 1 by one client, a minute's worth of an hour that is over.
readings() {
    script 'seq "$2" | while read -r n; do echo "{\"ts\":$(($3 + n)),\"power\":$n}"; done |
        mosquitto_pub -q 1 -l -t "meters/north/$1/telemetry"' "$1" "$2" "$hour"
}

# Closes the hours of a device.
heartbeat() {
    script 'mosquitto_pub -q 1 -t "meters/north/$1/heartbeat" -m "{\"ts\":$(date +%s%3N)}"' "$1"
}

# How many readings of a device are in its hours at the centre, by the last revision of each.
counted() {
    in_box cat /var/tmp/centre | awk -v device="/window/hour/north/$1" '
        function number(name) {
            match($0, "\"" name "\":[0-9]+")
            return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0
        }
        substr($1, length($1) - length(device) + 1) == device {
            start = number("start"); revision = number("revision")
            if (!(start in last) || revision >= last[start]) { last[start] = revision; samples[start] = number("samples") }
        }
        END { for (start in samples) n += samples[start]; print n + 0 }'
}

counts() {
    [[ $(counted "$1") == "$2" ]]
}

# All that was published of a device, and nothing twice, is at the centre.
arrives() {
    heartbeat "$1"
    within 30 counts "$1" "$2" || { echo "$1: $(counted "$1") of $2"; return 1; }
}

# The begin of the hour before the last one.
hour=$((($(date +%s) / 3600 - 2) * 3600000))

# --- The steps ------------------------------------------------------------------------------------------------------

brokers() {
    script 'echo "127.0.0.1 localhost" >/etc/hosts
        grep -v "^persistence_location" >/etc/mosquitto/conf.d/tidegate.conf
        printf "listener 2883 127.0.0.1\nallow_anonymous true\nuser root\n" >/etc/centre.conf
        systemctl restart mosquitto
        systemd-run --quiet --unit=centre mosquitto -c /etc/centre.conf' <config/mosquitto.conf
    within 20 script 'mosquitto_pub -p 2883 -t x -m x && mosquitto_pub -t x -m x'
    script 'systemd-run --quiet --unit=observer --property=StandardOutput=append:/var/tmp/centre \
        mosquitto_sub -p 2883 -q 1 -c -i observer -t "tidegate/#" -F "%t %p"'
}

installs() {
    # The installer comes back although there is no broker yet, and nobody has said what time it is.
    script 'systemctl stop mosquitto && timeout 20 dpkg -i /packages/now.deb'
    within 20 is ActiveState activating
    within 20 says 'check host and port, and that the broker runs'
    script 'dpkg --verify tidegate && systemctl is-enabled tidegate'
    script 'dpkg-query --show --showformat="\${Conffiles}\n" tidegate | grep /etc/tidegate/tidegate.toml'
    script 'test -e /usr/share/man/man1/tidegate.1.gz && test -e /usr/share/man/man5/tidegate.toml.5.gz'
    script 'test -e /usr/share/doc/tidegate/examples/mosquitto.conf'
    script 'bash -c "source /usr/share/bash-completion/completions/tidegate && complete -p tidegate"'
}

# As it is shipped: it runs, connected to the broker of the gateway, and is not started again and again.
runs_as_shipped() {
    within 20 listening
    is NRestarts 0
    active
}

is_configured() {
    script 'sed -i "s/^\[upstream\]/&\nport = 2883/; s/^#trust-host = false/trust-host = true/" /etc/tidegate/tidegate.toml
        sed -i "s/^#commit-interval.*/commit-interval = \"2s\"/" /etc/tidegate/tidegate.toml
        tidegate check && systemctl restart tidegate'
    within 20 listening
    active
}

aggregates() {
    readings first 100
    arrives first 100
}

is_hardened() {
    local verdict
    verdict=$(in_box systemd-analyze security --no-pager --threshold=15 tidegate.service) ||
        { echo "$verdict" | tail -n 40; return 1; }
    echo "note: $(grep 'Overall exposure' <<<"$verdict")"
    script '[[ $(stat -c %u:%a "/proc/$1") != 0:* ]]' "$(property MainPID)"
    script '[[ $(stat -c %a /var/lib/private/tidegate) == 700 ]]'
    # Nothing was forbidden that it wants.
    ! script 'journalctl --no-pager -u tidegate | grep -iE "not permitted|SIGSYS|read-only"'
}

# asking NUMBER ARGUMENT…: a system call by the rules of the agent's unit, in a copy of it that does nothing else.
asking() {
    script 'cat >/usr/local/bin/ask' <<'PERL'
my ($number, @arguments) = map { $_ + 0 } @ARGV;
my $room = "\0" x 512;
syscall($number, @arguments, $room) >= 0 or die "$!\n";
PERL
    script 'cd /run/systemd/system
        sed "s|^ExecStart=.*|ExecStart=/usr/bin/perl /usr/local/bin/ask $1|; s/^Type=.*/Type=oneshot/
            s/^Restart=.*/Restart=no/; /Directory/d" /usr/lib/systemd/system/tidegate.service >asking.service
        systemctl daemon-reload && systemctl start asking' "$*"
}

# What the agent asks the kernel of its clock, clock_adjtime of CLOCK_REALTIME that changes nothing; and setpriority to
# the priority that it has, which would succeed without the rules.
may_ask_for_the_clock() {
    local ask='305 0' raise='141 0 0 0'
    if [[ $(uname -m) == aarch64 ]]; then ask='266 0' raise='140 0 0 0'; fi
    asking "$ask" || { in_box journalctl --no-pager -n 20 -u asking; return 1; }
    if asking "$raise"; then echo 'the rules are not in force' && return 1; fi
}

operators_may_ask() {
    script 'cd /tmp
        as() { setpriv --reuid=nobody --regid=nogroup "$@" tidegate status --socket /run/tidegate/tidegate.sock; }
        as --groups=tidegate-operators || (($? < 3))
        as --clear-groups && exit 1 || (($? == 3))'
}

# A kill before the commit: what was not acknowledged comes again, what was is not counted twice.
survives_a_kill() {
    local before restarts
    before=$(property MainPID) restarts=$(property NRestarts)
    readings killed 3000
    script 'kill -KILL "$1"' "$before"
    readings killed-too 500
    within 30 is NRestarts $((restarts + 1))
    within 20 listening
    arrives killed 3000
    arrives killed-too 500
    [[ $(property MainPID) != "$before" ]]
}

is_killed_when_it_hangs() {
    script 'mkdir -p /run/systemd/system/tidegate.service.d
        printf "[Service]\nWatchdogSec=3\n" >/run/systemd/system/tidegate.service.d/watchdog.conf
        systemctl daemon-reload && systemctl restart tidegate'
    within 20 active
    local restarts
    restarts=$(property NRestarts)
    script 'kill -STOP "$1"' "$(property MainPID)"
    readings hung 500
    within 30 says 'Watchdog timeout'
    within 30 is NRestarts $((restarts + 1))
    within 20 active
    arrives hung 500
    script 'rm /run/systemd/system/tidegate.service.d/watchdog.conf
        systemctl daemon-reload && systemctl restart tidegate'
    within 20 active
}

reloads() {
    local before
    if ! grep -rqF 'SignalKind::hangup' src; then
        echo 'skipped: this program does not read its configuration again'
        return
    fi
    before=$(property MainPID)
    script 'sed -i "s/^#idle-timeout.*/idle-timeout = \"4m\"/" /etc/tidegate/tidegate.toml && systemctl reload tidegate'
    within 20 says 'the configuration is loaded anew'
    within 20 active
    [[ $(property MainPID) == "$before" ]]
    readings reloaded 100
    arrives reloaded 100
}

# Publishes one reading after the other until it is enough; says how many the broker has taken.
load() {
    script 'n=0
        while [[ ! -e /run/enough ]]; do
            mosquitto_pub -q 1 -t "meters/north/$1/telemetry" -m "{\"ts\":$(($2 + n)),\"power\":$n}"
            n=$((n + 1))
            echo "$n" >/run/load
        done' "$1" "$hour"
}

loaded() {
    (($(in_box cat /run/load) >= $1))
}

is_upgraded_under_load() {
    local before loader
    before=$(property MainPID)
    load upgraded &
    loader=$!
    within 20 loaded 200
    script 'timeout 30 dpkg -i /packages/next.deb'
    within 30 listening
    within 20 loaded 600
    in_box touch /run/enough
    wait "$loader"
    [[ $(property MainPID) != "$before" ]]
    script '[[ $(dpkg-query --show --showformat="\${Version}" tidegate) == 99.0.0-1 ]]'
    # Its configuration is the operator's.
    script 'grep -q "port = 2883" /etc/tidegate/tidegate.toml'
    arrives upgraded "$(in_box cat /run/load)"
}

newer_store() {
    script 'cp /var/lib/tidegate/store/written-by /run/written-by
        echo "tidegate 98.0.0, store format 999, records 99" >/var/lib/tidegate/store/written-by'
}

old_store() {
    script 'cat /run/written-by >/var/lib/tidegate/store/written-by'
}

downgrade_is_refused() {
    local before status=0
    before=$(property MainPID)
    newer_store
    script 'dpkg -i /packages/now.deb' >"$scratch/refusal" 2>&1 || status=$?
    cat "$scratch/refusal"
    ((status != 0))
    grep -q 'written by tidegate 98.0.0 (store format 999, records 99)' "$scratch/refusal"
    grep -q 'Keep tidegate 98.0.0' "$scratch/refusal"
    # The one that is there goes on, undisturbed.
    script '[[ $(dpkg-query --show --showformat="\${Version} \${Status}" tidegate) == "99.0.0-1 install ok installed" ]]'
    active
    [[ $(property MainPID) == "$before" ]]
    old_store
}

# The agent itself refuses, too, once, and says why.
newer_store_is_refused() {
    newer_store
    in_box systemctl restart tidegate || true
    within 20 is ActiveState failed
    is ExecMainStatus 78
    says 'written by tidegate 98.0.0'
    old_store
    in_box systemctl start tidegate
    within 20 listening
    # Where the older one reads the store, it may come back.
    script 'timeout 30 dpkg -i /packages/now.deb'
    within 20 listening
    readings downgraded 100
    arrives downgraded 100
}

# A service that cannot run is not started for ever, and who installs is told.
wrong_configuration_is_told() {
    script 'sed -i "s/^\[store\]/&\nmode = 1/" /etc/tidegate/tidegate.toml
        timeout 30 dpkg -i /packages/now.deb 2>&1 | tee /dev/stderr | grep "unknown key"'
    within 20 is ActiveState failed
    is ExecMainStatus 78
    script 'sed -i "/^mode = 1/d" /etc/tidegate/tidegate.toml && systemctl restart tidegate'
    within 20 listening
}

removal_keeps() {
    script 'timeout 30 dpkg --remove tidegate
        [[ $(systemctl is-active tidegate) != active ]]
        [[ ! -e /usr/bin/tidegate && -e /etc/tidegate/tidegate.toml && -e /var/lib/private/tidegate/store/db ]]'
    readings removed 100
    script 'timeout 30 dpkg -i /packages/now.deb'
    within 20 listening
    arrives removed 100
    # Of the time before.
    script 'tidegate device list | grep north/first'
}

purge_leaves_nothing() {
    script 'timeout 30 dpkg --purge tidegate
        for path in /var/lib/private/tidegate /var/lib/tidegate /etc/tidegate /run/tidegate /usr/share/doc/tidegate; do
            if [[ -e $path || -L $path ]]; then echo "$path is left" && exit 1; fi
        done
        [[ $(systemctl is-enabled tidegate 2>/dev/null) != enabled ]]'
}

# --- The footprint --------------------------------------------------------------------------------------------------

# field NAME FILE: of the agent's process.
field() { in_box awk -v name="$1:" '$1 == name { print $2 }' "/proc/$agent/$2"; }
cpu() { in_box awk '{ print $14 + $15 }' "/proc/$agent/stat"; }
has_handled() { (($(in_box tidegate status --json | grep -oE '"received":[0-9]+' | grep -oE '[0-9]+') >= $1)); }
has_sent_all() { in_box tidegate status --json | grep -q '"outbox":{"entries":0,'; }

# readings_of DEVICES: in turn, a minute of event time apart, up to now.
readings_of() {
    awk -v n="$1" -v all="$footprint" -v now="$(date +%s)" 'BEGIN {
        for (i = 0; i < all; i++)
            printf "{\"id\":\"l-%05d\",\"samples\":[{\"t\":\"%s\",\"c\":%.1f}]}\n", i % n,
                strftime("%Y-%m-%dT%H:%M:%SZ", now - 60 * int((all - 1 - i) / n), 1), 20 + i % 7
    }'
}

# row DEVICES: a service without a past, to which so many send their messages as fast as the broker and it take them. So CPU time
# is that of a backlog, and less is written for each message than in a trickle, of which benches/disk has the figures.
row() {
    script 'systemctl stop tidegate && rm -rf /var/lib/private/tidegate/store && systemctl start tidegate'
    within 30 listening
    agent=$(property MainPID)
    local idle used
    idle=$(field VmRSS status) used=$(cpu)
    # mosquitto_pub stops early when its packet ids, 65,535 of them, begin anew, and the broker drops what is more than its
    # queue takes.
    local part sent=0
    readings_of "$1" | split -l 50000 - "$scratch/readings-"
    for part in "$scratch"/readings-*; do
        script 'mosquitto_pub -q 1 -t loggers/x -l' <"$part"
        sent=$((sent + $(wc -l <"$part")))
        within 300 has_handled "$sent"
    done
    rm "$scratch"/readings-*
    within 600 has_sent_all
    sleep 11 # the last commit
    awk -v n="$1" -v b="$idle" -v r="$(field VmRSS status)" -v h="$(field VmHWM status)" -v c="$(($(cpu) - used))" \
        -v hz="$(getconf CLK_TCK)" -v w="$(field write_bytes io)" -v m="$footprint" \
        'BEGIN { printf "%8d  %9.1f  %10.1f  %9.1f  %13.1f  %15.0f\n", n, b / 1024, r / 1024, h / 1024, c / hz * 1e6 / m, w / m }'
}

table() {
    installs && brokers
    script 'sed -i "s/^\[upstream\]/&\nport = 2883/; s/^#trust-host = false/trust-host = true/" /etc/tidegate/tidegate.toml'
    printf '%8s  %9s  %10s  %9s  %13s  %15s\n' devices 'idle, MiB' 'after, MiB' 'peak, MiB' 'CPU s/million' 'written, B each'
    row 1000
    row 10000
}

if ((footprint)); then
    table
    exit
fi

it 'the package installs' installs
it 'brokers of the gateway and of the centre' brokers
it 'it runs as it is shipped' runs_as_shipped
it 'it is configured by editing one file' is_configured
it 'a device publishes, the centre has the hour' aggregates
it 'the service is hardened' is_hardened
it 'it may ask for the state of the clock' may_ask_for_the_clock
it 'operators may ask how it is, others not' operators_may_ask
it 'killed, it returns and has lost nothing' survives_a_kill
it 'hanging, it is killed by the watchdog' is_killed_when_it_hangs
it 'it reloads' reloads
it 'an upgrade under load loses nothing' is_upgraded_under_load
it 'a downgrade below the store is refused' downgrade_is_refused
it 'a newer store is refused once' newer_store_is_refused
it 'a wrong configuration is told at once' wrong_configuration_is_told
it 'removed, state and configuration stay' removal_keeps
it 'purged, nothing stays' purge_leaves_nothing

result=ok
((failed == 0)) || result=FAILED
echo "test result: $result. $passed passed; $failed failed; 0 ignored; finished in $SECONDS s"
((failed == 0))
