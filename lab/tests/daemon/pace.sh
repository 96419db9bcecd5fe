# hotcold is started by vfork, as services are, and does not find room for all of it in DRAM: the
# kernel scans it once a second of its time. Passes are counted without the daemon, and beside it:
# for as long as two take, but no longer than the kernel alone would take for little more than one.
cd "$LAB_SHARE"
balance=/sys/kernel/debug/sched/numa_balancing
fail() { echo "$1" >&2; cat daemon-errors >&2; exit 1; }
passes() { awk '/numa_scan_seq/ { print $3 }' /proc/$pid/sched; }

sysctl -qw kernel.numa_balancing=2
echo 2 >$balance/scan_size_mb
echo 5000 >$balance/scan_period_min_ms
# What a subshell runs before its last command is started by vfork where the shell can, and by fork
# where not.
($HOTCOLD --mib "$MIB" --no-thp --report report >log 2>errors; echo $? >hotcold-status) &
loader=$!
until [ -e report ]; do sleep 0.2; done
pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/' report)
sleep 5
before=$(passes)
sleep 15
echo alone_passes=$(($(passes) - before))
sysctl -qw kernel.numa_balancing=0
echo 256 >$balance/scan_size_mb

$THERMOCLINE run >daemon 2>daemon-errors &
daemon=$!
deadline=$(($(date +%s) + 120))
until grep -q '^numa_balancing_promote_rate_limit_MBps: 0 again' daemon-errors; do
    kill -0 $daemon 2>/dev/null || fail "the daemon has ended"
    [ "$(date +%s)" -lt $deadline ] || fail "periods were not renewed in 120 s"
    sleep 0.5
done
grep -q '^numa_balancing_promote_rate_limit_MBps: 1 for some steps' daemon-errors || fail "it does not say that a renewal begins"
sleep 5
before=$(passes) from=$(date +%s)
until [ $(($(passes) - before)) -ge 2 ] || [ $(($(date +%s) - from)) -ge 90 ]; do sleep 0.5; done
echo paced_passes=$(($(passes) - before)) paced_s=$(($(date +%s) - from)) | tr ' ' '\n'
echo mode=$(cat /proc/sys/kernel/numa_balancing)
kill $daemon
wait $daemon
echo daemon_status=$?
echo mode_after=$(cat /proc/sys/kernel/numa_balancing) size_after=$(cat $balance/scan_size_mb) | tr ' ' '\n'
kill $pid
wait $loader
echo loader_status=$(cat hotcold-status)
