# hotcold is on the slow node, and the daemon sees nothing but the hot list that the device keeps:
# first in epochs, then, with another hotcold, always on.
cd "$LAB_SHARE"
vmstat() { awk -v n="$1" '$1 == n { print $2 }' /proc/vmstat; }
field() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p"; }
fail() { echo "$1" >&2; exit 1; }
# $2 of the judge's verdict on $1 as a percentage in whole numbers.
percent() { $HOTCOLD judge --report "$1" --dram 0-1 | field "$2" | awk '{ print int($1 * 100) }'; }
config() {
    cat <<END
rule.name = "$1"
rule.frequency.freq_window_ms = 1000
[source.hintfault]
enabled = false
[source.chmu]
enabled = true
$2
[reverse]
cpu_permille = 200
round_ms = 2000
[kernel]
numa_balancing = 0
[demotion]
mode = "off"
END
}
config adaptive 'epoch_ms = 1000
threshold = 24' >epoch.toml
# Fifty accesses within a second, whenever they began.
config frequency 'mode = "always-on"
threshold = 50' >always-on.toml
config latency '' >nobody.toml
sysctl -qw kernel.numa_balancing=0
$THERMOCLINE config check nobody.toml >out 2>refused && fail "a rule that counts nothing was taken"
grep -q 'makes nothing of what devices count' refused || fail "refused: $(cat refused)"
echo refused=1
faults=$(vmstat numa_hint_faults)
kernel=$(vmstat pgpromote_success)
misses start >/dev/null
$THERMOCLINE doctor --config epoch.toml --json >doctor

for mode in epoch always-on; do
    on-slow-node --widen-when "test -e $mode" $HOTCOLD --mib "$MIB" --rate "$RATE" --no-thp --report $mode >log-$mode 2>>errors &
    loader=$!
    until [ -e $mode ]; do sleep 0.2; done
    pid=$(field pid <$mode)
    # Pages that are told of before the cpuset allows node 0 would be left alone for a minute.
    until [ "$(cat /sys/fs/cgroup$(sed s/0::// /proc/$pid/cgroup)/cpuset.mems.effective)" = 0-2 ]; do sleep 0.1; done
    $HOTCOLD judge --report $mode --dram 0-1 --save snapshot-$mode >judged-first
    $THERMOCLINE run --config $mode.toml --json >daemon-$mode 2>>daemon-errors &
    daemon=$!
    deadline=$(($(date +%s) + 60))
    until [ "$(percent $mode hot_in_dram)" -ge 95 ] || [ "$(date +%s)" -ge $deadline ]; do sleep 1; done
    # What is not hot must not follow.
    sleep "$SECONDS_AFTER"
    if [ $mode = epoch ]; then
        $THERMOCLINE status >status-text || fail "no status: $(cat daemon-errors)"
        # Any of the hot ranges; they are in pages from the base.
        first=$(sed 's/.*"hot_ranges":\[\[\([0-9]*\).*/\1/' $mode)
        base=$(field base <$mode)
        $THERMOCLINE explain $pid $(printf 0x%x $((base + first * 4096))) >explained || fail "explain: $(cat explained)"
    fi
    $HOTCOLD judge --report $mode --dram 0-1 --before snapshot-$mode >judged-$mode
    kill -TERM $daemon
    wait $daemon
    echo ${mode}_status=$?
    tail -n 1 daemon-$mode >last-$mode
    kill -TERM $pid
    wait $loader || fail "hotcold lost data"
done
echo hint_faults=$(($(vmstat numa_hint_faults) - faults))
echo kernel_promoted=$(($(vmstat pgpromote_success) - kernel))
cat daemon-errors status-text explained
