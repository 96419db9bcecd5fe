# A daemon that promotes all the time, and what may happen to it: it stands still for $STOPPED_S
# seconds, its program is killed and its cgroup removed in the middle of a batch, it gets next to no
# CPU time, and memory of the slow node is taken away and comes back.
cd "$LAB_SHARE"
unusual_settings
original=$(settings)
cat >config.toml <<END
[kernel]
scan_size_mb = 256
scan_period_min_ms = 300
scan_period_max_ms = 500
[source.hintfault]
ring_kib = 64
[rule]
name = "latency"
[rule.latency]
hot_threshold_ms = 600000
feedback = false
[admission]
rate_limit_mbps = 8
residency_ms = 0
ping_pong_moves = 255
[brake]
enabled = false
END
start() {
    on-slow-node --widen-when "test -e $1" $HOTCOLD --mib "$2" --hot-share 1 --access-share 1 --no-thp --report "$1" >log-$1 2>errors-$1 &
    until [ -e "$1" ]; do sleep 0.2; done
    group=/sys/fs/cgroup$(sed s/0::// /proc/$!/cgroup)
    until [ "$(cat $group/cpuset.mems.effective)" = 0-2 ]; do sleep 0.1; done
}
# Not in the shared folder: while memory is taken away, bytes that were written to such a file got
# lost.
out=/dev/shm/daemon
$THERMOCLINE run --config config.toml --json >$out 2>daemon-errors &
daemon=$!
alive() { kill -0 $daemon 2>/dev/null || fail "$1: the daemon ended: $(tail -n 3 daemon-errors)"; }
promoted() { tail -n 2 $out | sed -n 's/.*"pgpromote_candidate":[0-9]*,"pgpromote_success":\([0-9]*\),.*/\1/p' | tail -n 1; }
# Back to the slow node, so that there is always something to promote; then until something was.
promotes() {
    before=$(promoted)
    migratepages $keeper 0,1 2
    tries=0
    until [ "$(promoted)" -gt "$((before + 50))" ]; do
        sleep 0.2
        tries=$((tries + 1))
        alive "$1"
        [ $tries -lt 300 ] || fail "$1: nothing is promoted: $(tail -n 1 $out | sed 's|.*"counters":||; s|"[a-z_-]*":0,||g' | head -c 3000)"
    done
    read -r seconds _ </proc/uptime
    echo "at $seconds s: it promotes $1"
}
start keeper 64
keeper=$!
until [ -n "$(promoted)" ]; do sleep 0.2; alive "at first"; done
promotes "at first"

kill -STOP $daemon
sleep "$STOPPED_S"
kill -CONT $daemon
promotes "after it stood still"
echo dropped=$(tail -n 1 $out | sed -n 's/.*"source":{[^}]*"dropped":\([0-9]*\).*/\1/p')

start victim 64
victim=$!
victims=$group
before=$(promoted)
until grep -q " N0=[1-9]" /proc/$victim/numa_maps || [ "$(promoted)" -gt "$((before + 2000))" ]; do sleep 0.1; alive "with two programs"; done
kill -9 $victim
wait $victim
until rmdir $victims 2>/dev/null; do sleep 0.05; done
promotes "after a program and its cgroup were gone"

mkdir /sys/fs/cgroup/starved
echo "1000 100000" >/sys/fs/cgroup/starved/cpu.max
echo $daemon >/sys/fs/cgroup/starved/cgroup.procs
sleep "$STARVED_S"
throttled=$(awk '/^nr_throttled/ { print $2 }' /sys/fs/cgroup/starved/cpu.stat)
echo throttled=$throttled
echo max >/sys/fs/cgroup/starved/cpu.max
promotes "after it was starved"

# The memory of the slow node, block by block, while pages come up from it. What is in use goes to
# other blocks or nodes, as far as it can be moved.
migratepages $keeper 0,1 2
blocks=$(for block in /sys/devices/system/node/node2/memory*; do basename $block; done)
for try in 1 2 3 4 5; do
    for block in $blocks; do
        [ "$(cat /sys/devices/system/memory/$block/state)" = offline ] || echo offline >/sys/devices/system/memory/$block/state 2>>unplugging
    done
done
gone=0
for block in $blocks; do [ "$(cat /sys/devices/system/memory/$block/state)" = offline ] && gone=$((gone + 1)); done
echo blocks=$(echo $blocks | wc -w)
echo gone=$gone
sleep 3
alive "without memory of the slow node"
for block in $blocks; do
    [ "$(cat /sys/devices/system/memory/$block/state)" = online ] || echo online_movable >/sys/devices/system/memory/$block/state
done
promotes "after memory of the slow node came back"

kill -TERM $daemon
wait $daemon
echo daemon_status=$?
tail -n 1 $out >last
unchanged "after all that"
kill -TERM $keeper
wait $keeper || fail "hotcold lost data: $(cat errors-keeper)"
