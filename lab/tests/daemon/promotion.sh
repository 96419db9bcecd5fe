# $HOTCOLD on the slow node, with free DRAM for at most a third of it: without the daemon, then with
# it for $ON_SECONDS, and where a busy machine does not get so far, for up to $MORE_SECONDS more.
set -e
cd "$LAB_SHARE"
vmstat() { awk -v n="$1" '$1 == n { print $2 }' /proc/vmstat; }
free_mib() { awk '/MemFree/ { s += $4 } END { print int(s / 1024) }' /sys/devices/system/node/node$1/meminfo; }
mark() { wc -l <log >"mark-$1"; }

sysctl -qw kernel.numa_balancing=0 kernel.numa_balancing_promote_rate_limit_MBps=0
on-slow-node --widen-when 'test -e report' $HOTCOLD --mib "$MIB" --no-thp --report report >log 2>errors &
loader=$!
until [ -e report ]; do sleep 0.2; done
pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/' report)
group=/sys/fs/cgroup$(sed s/0::// /proc/$pid/cgroup)
until [ "$(cat $group/cpuset.mems.effective)" = 0-2 ]; do sleep 0.1; done

# What is more is taken by a file in memory, which nothing can reclaim.
sync
echo 3 >/proc/sys/vm/drop_caches
fill-node 0 $((FREE_MIB - $(free_mib 1))) fill
echo free_mib=$(($(free_mib 0) + $(free_mib 1)))

mark quiet-from; sleep 5; mark quiet-to
sysctl -qw kernel.numa_balancing=2
$HOTCOLD judge --report report --dram 0-1 --save snapshot >judged-first
faults=$(vmstat numa_hint_faults)
mark off-from; sleep "$OFF_SECONDS"; mark off-to
echo off_hint_faults=$(($(vmstat numa_hint_faults) - faults))
$HOTCOLD judge --report report --dram 0-1 --before snapshot --save snapshot >judged-off
sysctl -qw kernel.numa_balancing=0 kernel.numa_balancing_promote_rate_limit_MBps=65536

kernel=$(vmstat pgpromote_success)
ticks() { awk '{ sub(/.*\) /, ""); print $12 + $13 }' /proc/$pid/stat; }
before=$(ticks)
mark on-from
$THERMOCLINE run --json >daemon 2>daemon-errors &
daemon=$!
sleep "$ON_SECONDS"
hot_percent() { $HOTCOLD judge --report report --dram 0-1 | sed 's/.*"hot_in_dram":\([0-9.]*\).*/\1/' | awk '{ print int($1 * 100) }'; }
deadline=$(($(date +%s) + MORE_SECONDS))
until [ "$(hot_percent)" -ge 90 ] || [ "$(date +%s)" -ge $deadline ]; do sleep 2; done
kill -TERM $daemon
wait $daemon && status=0 || status=$?
mark on-to
echo workload_ticks=$(($(ticks) - before))
$HOTCOLD judge --report report --dram 0-1 --before snapshot >judged-on
echo daemon_status=$status
echo kernel_promoted=$(($(vmstat pgpromote_success) - kernel))
tail -n 1 daemon >last
kill -TERM $pid
wait $loader
