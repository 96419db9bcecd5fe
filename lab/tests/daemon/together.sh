# hotcold is on the slow node, and the daemon reads hint faults, samples and the device's hot list
# at once. More samples are taken than may be read. Pages come up slowly, so that they wait for long
# enough to be seen by more than one source.
cd "$LAB_SHARE"
field() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p"; }
fail() { echo "$1" >&2; exit 1; }
percent() { $HOTCOLD judge --report report --dram 0-1 | field "$1" | awk '{ print int($1 * 100) }'; }
cat >config.toml <<END
[rule]
name = "frequency"
frequency.freq_window_ms = 1000
[admission]
rate_limit_mbps = 1
[source.hwsample]
enabled = true
sampler = "lab-rings"
cpu_budget_permille = 2
[source.chmu]
enabled = true
threshold = 16
[reverse]
cpu_permille = 200
round_ms = 2000
[kernel]
scan_size_mb = 64
scan_period_min_ms = 500
scan_period_max_ms = 500
[demotion]
mode = "off"
END
# Balancing among nodes, as stock kernels start with, would move pages before the daemon has begun.
sysctl -qw kernel.numa_balancing=2 kernel.numa_balancing_promote_rate_limit_MBps=0
misses start >/dev/null
misses sample 10 >/dev/null
on-slow-node --widen-when "test -e report" $HOTCOLD --mib "$MIB" --access-share 0.98 --rate "$RATE" --no-thp --report report >log 2>>errors &
loader=$!
until [ -e report ]; do sleep 0.2; done
pid=$(field pid <report)
# Pages that are told of before the cpuset allows node 0 would be left alone for a minute.
until [ "$(cat /sys/fs/cgroup$(sed s/0::// /proc/$pid/cgroup)/cpuset.mems.effective)" = 0-2 ]; do sleep 0.1; done
$THERMOCLINE run --config config.toml --json >daemon 2>daemon-errors &
daemon=$!
deadline=$(($(date +%s) + 150))
until [ "$(percent hot_in_dram)" -ge 90 ] || [ "$(date +%s)" -ge $deadline ]; do sleep 1; done
$HOTCOLD judge --report report --dram 0-1 >judged
# What each of some hot pages was moved for; the ranges are in pages from the base.
base=$(field base <report)
hot_ranges() { sed 's/.*"hot_ranges":\[\(.*\)\]\].*/\1/; s/\],\?/\n/g' report | tr -d '['; }
for first in $(hot_ranges | cut -d, -f1 | shuf -n "$ASKED"); do
    $THERMOCLINE explain $pid $(printf 0x%x $((base + first * 4096)))
done >explained
kill -TERM $daemon
wait $daemon
echo daemon_status=$?
tail -n 1 daemon >last
kill -TERM $pid
wait $loader || fail "hotcold lost data"
cat daemon-errors
