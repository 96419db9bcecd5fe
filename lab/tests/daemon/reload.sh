# A running daemon gets another configuration, fifty times, while a program runs: one that cannot be
# applied as a whole is refused, counters never decrease, and no decision is missing.
cd "$LAB_SHARE"
unusual_settings
original=$(settings)
on-slow-node --widen-when 'test -e report' $HOTCOLD --mib "$MIB" --no-thp --report report >log 2>errors &
loader=$!
base='[kernel]
scan_period_min_ms = 1000
scan_period_max_ms = 2000'
first() { printf '%s\n[admission]\nrate_limit_mbps = 256\n' "$base" >config.toml; }
second() {
    printf '%s\n[admission]\nrate_limit_mbps = 16\nresidency_ms = 500\n[rule]\nname = "latency"\n[daemon]\nreport_ms = 500\n' "$base" >config.toml
    printf '[[scope]]\nname = "load"\ncgroup = "%s"\n' "$group" >>config.toml
}
elsewhere() { printf '%s\n[[scope]]\nname = "other"\ncgroup = "/elsewhere"\n' "$base" >config.toml; }
first
# In a session of its own it has no terminal, whose end SIGHUP would tell of.
setsid $THERMOCLINE run --config config.toml --json --record trace >daemon 2>daemon-errors &
daemon=$!
tries=0
until $THERMOCLINE status --json >/dev/null 2>&1; do
    sleep 0.3
    tries=$((tries + 1))
    [ $tries -lt 100 ] || fail "no daemon: $(cat daemon-errors)"
    kill -0 $daemon || fail "the daemon ended: $(cat daemon-errors)"
done
until [ -e report ]; do sleep 0.2; done
group=$(sed -n 's/^0:://p' "/proc/$(sed 's/.*"pid":\([0-9]*\).*/\1/' report)/cgroup")

$THERMOCLINE config diff config.toml >out 2>&1 || fail "diff: $(cat out)"
grep -q 'nothing differs' out || fail "it goes by something else: $(cat out)"

# What cannot be applied as a whole is not applied at all.
second
sed -i '/^\[admission\]/i [queue]\ncapacity = 64\n' config.toml
$THERMOCLINE reload >out 2>&1 && fail "half of it was taken: $(cat out)"
grep -q 'queue.capacity: 65536 -> 64' out || fail "the key is not named: $(cat out)"
echo 'nonsense = 1' >>config.toml
# What it says of that is code that has not run yet, and comes slowly from the host's disk: an
# answer that is late is asked for again.
tries=0
while :; do
    $THERMOCLINE reload >out 2>&1 && fail "nonsense was taken: $(cat out)"
    grep -q 'config.toml:' out && break
    tries=$((tries + 1))
    grep -q 'has not turned' out && [ $tries -lt 5 ] || fail "no line is named: $(cat out)"
    sleep 1
done
echo late=$tries
first
$THERMOCLINE config diff config.toml >out 2>&1
grep -q 'nothing differs' out || fail "a refused configuration left something: $(cat out)"

proposed() { $THERMOCLINE status --json | sed -n 's/^ *"proposed": *\([0-9]*\).*/\1/p' | head -n 1; }
before=0
for round in $(seq 25); do
    second
    $THERMOCLINE reload >out 2>&1 || fail "round $round, second: $(cat out)"
    grep -q 'admission.rate_limit_mbps: 256 -> 16 MB/s' out || fail "round $round: $(cat out)"
    first
    if [ $((round % 2)) = 0 ]; then
        $THERMOCLINE reload >out 2>&1 || fail "round $round, first: $(cat out)"
    else
        # The same by a signal, which gets no answer.
        kill -HUP $daemon
        tries=0
        until $THERMOCLINE config diff config.toml 2>&1 | grep -q 'nothing differs'; do
            sleep 0.1
            tries=$((tries + 1))
            [ $tries -lt 100 ] || fail "SIGHUP: $($THERMOCLINE config diff config.toml 2>&1)"
        done
    fi
    kill -0 $daemon || fail "the daemon ended: $(cat daemon-errors)"
    now=$(proposed)
    [ "${now:-0}" -ge "$before" ] || fail "round $round: $now proposed, $before before"
    before=${now:-0}
done

# Whose faults are reported follows the scopes at once: none of the program's while it is in no
# scope, and again once it is. What has come to DRAM goes back first: pages there have no hint
# faults, whatever the scopes say.
faults() { $THERMOCLINE status --json | sed -n 's/^ *"delivered": *\([0-9]*\).*/\1/p' | head -n 1; }
elsewhere
$THERMOCLINE reload >out 2>&1 || fail "elsewhere: $(cat out)"
echo 2 >/sys/fs/cgroup$group/cpuset.mems
cat /sys/fs/cgroup/cpuset.mems.effective >/sys/fs/cgroup$group/cpuset.mems
sleep 2
from=$(faults)
sleep 3
echo out_of_scope=$(($(faults) - from))
second
$THERMOCLINE reload >out 2>&1 || fail "second again: $(cat out)"
grep -q 'scope' out || fail "the scopes are not named: $(cat out)"
tries=0
until [ $(($(faults) - from)) -gt 200 ]; do
    sleep 0.5
    tries=$((tries + 1))
    [ $tries -lt 120 ] || fail "no fault of a program that is in a scope again"
done
kill -TERM $daemon
wait $daemon
echo daemon_status=$?
[ "$(settings)" = "$original" ] || fail "at the end: $(settings)"
echo reloads=$(grep -c '^reloaded:' daemon-errors)
echo refused=$(grep -c '^not reloaded' daemon-errors)
kill -TERM $(sed 's/.*"pid":\([0-9]*\).*/\1/' report)
wait $loader || fail "hotcold lost data"
