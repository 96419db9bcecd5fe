# Node 0 is full of idle memory, hotcold is on the slow node. The kernel is locked down while the
# daemon demotes, or before it starts.
cd "$LAB_SHARE"
sysctl -qw kernel.numa_balancing=0
free_mib() { awk '/MemFree/ { print int($4 / 1024) }' /sys/devices/system/node/node$1/meminfo; }
lock_down() { echo integrity >/sys/kernel/security/lockdown; }
diary() { read -r seconds _ </proc/uptime; echo "at $seconds s: $*" | tee -a kills; }
mountpoint -q /sys/kernel/security || mount -t securityfs none /sys/kernel/security
on-slow-node --widen-when 'test -e report' $HOTCOLD --mib "$MIB" --no-thp --report report >log 2>errors &
loader=$!
until [ -e report ]; do
    kill -0 $loader || fail "hotcold did not start"
    sleep 0.2
done
pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/' report)
group=/sys/fs/cgroup$(sed s/0::// /proc/$pid/cgroup)
until [ "$(cat $group/cpuset.mems.effective)" = 0-2 ]; do sleep 0.1; done
for node in 1 0; do
    fill-node $node $FREE_MIB cold$node "cold water" || fail "node $node cannot be filled"
done
for node in 0 1; do echo 0-2 >/sys/fs/cgroup/cold$node/cpuset.mems; done
sums=$(cat /dev/shm/cold? | md5sum)
echo free_before=$(free_mib 0)
printf '[demotion]\nstop_damon_stat = true\nidle_ms = 2000\n%s\n' "$MORE" >config.toml

[ "$WHEN" != before ] || lock_down
diary "node 0 is full"
$THERMOCLINE run --config config.toml --json >daemon 2>daemon-errors &
daemon=$!
if [ "$WHEN" = meanwhile ]; then
    tries=0
    until grep -q '"demotion_done":[1-9]' daemon; do
        sleep 0.5
        tries=$((tries + 1))
        [ $tries -lt 120 ] || fail "nothing is demoted: $(cat daemon-errors)"
    done
    lock_down
    diary "locked down"
fi
begun=$(date +%s)
hot_percent() { $HOTCOLD judge --report report --dram 0-1 | sed 's/.*"hot_in_dram":\([0-9.]*\).*/\1/' | awk '{ print int($1 * 100) }'; }
# By regions, too, where generations cannot be asked any more: what they did before may have been
# enough.
by_now() { [ "$WHEN" = never ] || grep -q '"by_damon_pages":[1-9]' daemon; }
until { [ "$(hot_percent)" -ge "$ENOUGH" ] && by_now; } || [ $(($(date +%s) - begun)) -ge "$SECONDS_ON" ]; do sleep 1; done
echo seconds=$(($(date +%s) - begun))
$HOTCOLD judge --report report --dram 0-1 >judged
kill -TERM $daemon
wait $daemon
echo daemon_status=$?
tail -n 1 daemon >last
diary "the daemon has ended"
[ "$(cat /sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds)" = 0 ] || fail "kdamonds stay"
[ "$WHEN" = never ] || {
    grep -q '\[integrity\]' /sys/kernel/security/lockdown || fail "the kernel is not locked down"
    grep -q 'y DAMON.s regions' daemon-errors || fail "no word of it: $(cat daemon-errors)"
    $THERMOCLINE doctor --config config.toml >doctor
    grep -q 'by DAMON.s regions' doctor || fail "doctor: $(cat doctor)"
    umount /sys/kernel/security
    $THERMOCLINE doctor >unmounted
    grep -q 'lockdown unknown' unmounted || fail "lockdown is not known where securityfs is not mounted: $(cat unmounted)"
}
kill -TERM $pid
wait $loader || fail "hotcold lost data"
[ "$(cat /dev/shm/cold? | md5sum)" = "$sums" ] || fail "cold memory was lost"
