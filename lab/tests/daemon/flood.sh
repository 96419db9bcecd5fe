# As many hint faults as this machine makes, counted by the kernel and by the source: with the usual
# ring, then with 64 KiB if $NARROW.
set -e
cd "$LAB_SHARE"
balance=/sys/kernel/debug/sched/numa_balancing
# With the usual delay, the kernel leaves out for seconds what a thread has not accessed since.
echo 0 >$balance/scan_delay_ms
for knob in scan_period_min_ms scan_period_max_ms; do echo 100 >$balance/$knob; done
# A scan of much at once is followed by a pause as long in proportion: small steps make the most
# faults.
echo 16 >$balance/scan_size_mb
sysctl -qw kernel.numa_balancing=2 kernel.numa_balancing_promote_rate_limit_MBps=0
on-slow-node --widen-when 'test -e report' $HOTCOLD --mib 128 --hot-share 1 --access-share 1 --threads 2 --no-thp --report report >log 2>errors &
loader=$!
until [ -e report ]; do sleep 0.2; done
sleep 2
$HINTFAULT --seconds "$SECONDS_EACH" >wide-lines
tail -n 1 wide-lines >wide
if [ -n "$NARROW" ]; then
    # The reader stands still for a while, so that faults are lost for certain.
    $HINTFAULT --seconds "$SECONDS_EACH" --ring-kib 64 >narrow-lines &
    reader=$!
    until grep -q attached narrow-lines; do sleep 0.2; done
    sleep 1
    kill -STOP $reader
    sleep $((SECONDS_EACH / 3))
    kill -CONT $reader
    wait $reader
    tail -n 1 narrow-lines >narrow
fi
kill -TERM $(sed 's/.*"pid":\([0-9]*\).*/\1/' report)
wait $loader
