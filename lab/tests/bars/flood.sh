# As many hint faults as this machine makes, counted by the kernel and by the source: with the usual ring, then with 64 KiB.
set -e
cd "$LAB_SHARE"
balance=/sys/kernel/debug/sched/numa_balancing
echo 100 >$balance/scan_period_min_ms
echo 100 >$balance/scan_period_max_ms
echo 1024 >$balance/scan_size_mb
sysctl -qw kernel.numa_balancing=2 kernel.numa_balancing_promote_rate_limit_MBps=0
on-slow-node --widen-when 'test -e report' $HOTCOLD --mib 128 --hot-share 1 --access-share 1 --threads 2 --no-thp --report report >log 2>errors &
loader=$!
until [ -e report ]; do sleep 0.2; done
sleep 2
$HINTFAULT --seconds "$SECONDS_EACH" >wide-lines
tail -n 1 wide-lines >wide
$HINTFAULT --seconds "$SECONDS_EACH" --ring-kib 64 >narrow-lines
tail -n 1 narrow-lines >narrow
kill -TERM $(sed 's/.*"pid":\([0-9]*\).*/\1/' report)
wait $loader
