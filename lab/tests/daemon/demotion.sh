# Node 0 is full of cold memory, hotcold is on the slow node. The daemon, in its default
# configuration but for times that are shorter, has to keep free what it promises, by demoting what
# is cold, and to promote what is hot. Then it is killed while it demotes.
cd "$LAB_SHARE"
# Debian 12's own kernel comes with generations switched off.
echo y >/sys/kernel/mm/lru_gen/enabled
unusual_settings
sysctl -qw kernel.numa_balancing=0
original=$(settings)
vmstat() { awk -v n="$1" '$1 == n { s = $2 } END { print s + 0 }' /proc/vmstat; }
stalls() { awk '/^allocstall/ { s += $2 } END { print s }' /proc/vmstat; }
free_mib() { awk '/MemFree/ { print int($4 / 1024) }' /sys/devices/system/node/node$1/meminfo; }
# The diary is shown where the guest ends too early.
diary() { read -r seconds _ </proc/uptime; echo "at $seconds s: $*" | tee -a kills; }
# MiB of a cgroup's memory on a node.
on_node() { awk -v n="$2" '$1 == "anon" || $1 == "file" { for (i = 2; i <= NF; i++) if (split($i, p, "=") == 2 && p[1] == "N" n) s += p[2] } END { print int(s / 1048576) }' /sys/fs/cgroup/$1/memory.numa_stat; }
pattern='the water below is cold'
# fill NAME MIB NODES: so much memory of node 0 that belongs to a cgroup, which may have it on these
# nodes from then on.
fill() {
    mkdir /sys/fs/cgroup/$1
    echo 0 >/sys/fs/cgroup/$1/cpuset.mems
    sh -c 'echo $$ >/sys/fs/cgroup/$0/cgroup.procs; yes "$2" | dd of=/dev/shm/$0 bs=1M iflag=fullblock count=$1 2>/dev/null' $1 $2 "$pattern"
    echo $3 >/sys/fs/cgroup/$1/cpuset.mems
}
cat >config.toml <<END
[demotion]
way = "$WAY"
idle_ms = 2000
[kernel]
scan_period_min_ms = 1000
scan_period_max_ms = 2000
END

# The programs are on node 0 in a file system of memory alone: more is mapped there than there is
# page cache, so that nothing can be had by dropping.
mkdir programs /sys/fs/cgroup/programs
mount -t tmpfs none programs
echo 0 >/sys/fs/cgroup/programs/cpuset.mems
sh -c 'echo $$ >/sys/fs/cgroup/programs/cgroup.procs; for program; do strip -o programs/${program##*/} $program; done' sh $HOTCOLD $THERMOCLINE
HOTCOLD=$LAB_SHARE/programs/hotcold THERMOCLINE=$LAB_SHARE/programs/thermocline

on-slow-node --widen-when 'test -e report' $HOTCOLD --mib "$MIB" --no-thp --report report >log 2>errors &
loader=$!
until [ -e report ]; do
    kill -0 $loader || fail "hotcold did not start"
    sleep 0.2
done
pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/' report)
group=/sys/fs/cgroup$(sed s/0::// /proc/$pid/cgroup)
until [ "$(cat $group/cpuset.mems.effective)" = 0-2 ]; do sleep 0.1; done
sync
echo 3 >/proc/sys/vm/drop_caches
fill kept 24 0-1
fill-node 0 $FREE_MIB cold "$pattern" || fail "node 0 cannot be filled"
echo 0-2 >/sys/fs/cgroup/cold/cpuset.mems
sum=$(md5sum </dev/shm/cold)
echo free_before=$(free_mib 0)
echo kept_before=$(on_node kept 0)
[ "$(on_node cold 2)" = 0 ] || fail "the cold memory is not on node 0"

$HOTCOLD judge --report report --dram 0-1 --save snapshot >judged-first
diary "node 0 is full"
by_itself() { echo $(($(vmstat pgdemote_kswapd) + $(vmstat pgdemote_khugepaged))); }
commanded=$(vmstat pgdemote_direct) stalled=$(stalls) itself=$(by_itself)
$THERMOCLINE run --config config.toml --json >daemon 2>daemon-errors &
daemon=$!
# However slow the host is: until most of what is hot has come up, and as much that is cold has gone
# down.
begun=$(date +%s)
hot_percent() { $HOTCOLD judge --report report --dram 0-1 | sed 's/.*"hot_in_dram":\([0-9.]*\).*/\1/' | awk '{ print int($1 * 100) }'; }
done_by_now() { [ $(($(date +%s) - begun)) -ge "$SECONDS_ON" ] && [ "$(hot_percent)" -ge 60 ] && [ "$(on_node cold 2)" -ge $((MIB / 10)) ]; }
until done_by_now || [ $(($(date +%s) - begun)) -ge 240 ]; do sleep 2; done
# Promotions may use the room down to what admission leaves, so that the goal is met once nobody
# waits any more: what waits does so for 10 s.
kill -STOP $pid
sleep 15
kill -TERM $daemon
wait $daemon
echo daemon_status=$?
diary "the daemon has ended"
echo free_after=$(free_mib 0)
echo commanded=$(($(vmstat pgdemote_direct) + $(vmstat pgdemote_proactive) - commanded))
echo stalls=$(($(stalls) - stalled))
tail -n 1 daemon >last
$HOTCOLD judge --report report --dram 0-1 --before snapshot >judged
unchanged "after the run"
echo kept_after=$(on_node kept 0)
echo cold_down=$(on_node cold 2)
# The kernel may do so after the last that the daemon tells, too.
echo by_itself=$(($(by_itself) - itself))

# Killed while it demotes: until the next start the kernel demotes, then as before.
fill late $(($(free_mib 0) - FREE_MIB)) 0-2
printf '[demotion]\nway = "%s"\nidle_ms = 1000\nrate_limit_mbps = 1\nfree_goal_bp = 500\n' "$WAY" >slow.toml
$THERMOCLINE run --config slow.toml --json >killed 2>killed-errors &
daemon=$!
tries=0
until grep -q '"demotion_asked":[1-9]' killed; do
    sleep 0.5
    tries=$((tries + 1))
    [ $tries -lt 120 ] || fail "nothing is asked for: $(tail -n 1 killed; cat killed-errors)"
    kill -0 $daemon || fail "the daemon ended: $(cat killed-errors)"
done
diary "the second daemon demotes"
kill -9 $daemon
wait $daemon 2>/dev/null
grep -q true /sys/kernel/mm/numa/demotion_enabled || fail "demotion was not enabled"
timeout 60 $THERMOCLINE run --config slow.toml --for 1s >again 2>again-errors || fail "the next start: $(cat again-errors)"
grep -q 'an earlier daemon was killed' again-errors || fail "the next start is silent: $(cat again-errors)"
unchanged "after the kill and the next start"
diary "the third daemon has restored"
echo killed=1
kill -CONT $pid
kill -TERM $pid
wait $loader || fail "hotcold lost data"
[ "$(md5sum </dev/shm/cold)" = "$sum" ] || fail "cold memory was lost"
