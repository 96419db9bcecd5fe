# $HOTCOLD on the slow node, in mode $BALANCING, then for $SECONDS_ON with a daemon that promotes
# whatever is accessed.
cd "$LAB_SHARE"
vmstat() { awk -v n="$1" '$1 == n { print $2 }' /proc/vmstat; }
cat >config.toml <<END
[kernel]
scan_period_min_ms = 500
scan_period_max_ms = 1000
[rule]
name = "latency"
[rule.latency]
hot_threshold_ms = 600000
feedback = false
END
sysctl -qw kernel.numa_balancing=$BALANCING kernel.numa_balancing_promote_rate_limit_MBps=0
for knob in scan_period_min_ms scan_period_max_ms; do echo 1000 >/sys/kernel/debug/sched/numa_balancing/$knob; done
# Otherwise the kernel looks for huge pages on the CPU's own node only, which the cpuset forbids.
echo always >/sys/kernel/mm/transparent_hugepage/defrag
on-slow-node --widen-when 'test -e report' $HOTCOLD --mib "$MIB" $HOTCOLD_FLAGS --report report >log 2>errors &
loader=$!
until [ -e report ]; do sleep 0.2; done
pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/' report)
group=/sys/fs/cgroup$(sed s/0::// /proc/$pid/cgroup)
until [ "$(cat $group/cpuset.mems.effective)" = 0-2 ]; do sleep 0.1; done
huge() { awk '/^AnonHugePages/ { print $2 / 2048 }' /proc/$pid/smaps_rollup; }
echo huge_before=$(huge)
$HOTCOLD judge --report report --dram 0-1 --save snapshot >judged-first
kernel=$(vmstat pgpromote_success)
split=$(vmstat thp_split_page)
timeout $((SECONDS_ON + 60)) $THERMOCLINE run --config config.toml --json --for "$SECONDS_ON"s >daemon 2>daemon-errors
echo daemon_status=$?
tail -n 1 daemon >last
$HOTCOLD judge --report report --dram 0-1 --before snapshot >judged
echo kernel_promoted=$(($(vmstat pgpromote_success) - kernel))
echo huge_after=$(huge)
echo split=$(($(vmstat thp_split_page) - split))
kill -TERM $pid
wait $loader || { echo "hotcold lost data"; exit 1; }
