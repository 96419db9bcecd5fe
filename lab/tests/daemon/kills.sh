# The daemon is killed while it migrates a Redis that is read and verified all the time; once for
# each of $DELAYS, in ms.
cd "$LAB_SHARE"
unusual_settings
original=$(settings)
# A rule that has something to move as soon as there are faults, and a limit that keeps it busy for
# long.
cat >config.toml <<END
[kernel]
scan_size_mb = 256
scan_period_min_ms = 300
scan_period_max_ms = 500
[rule]
name = "latency"
[rule.latency]
hot_threshold_ms = 600000
feedback = false
[admission]
rate_limit_mbps = 16
END

on-slow-node --widen-when 'test -e loaded' redis-server --save '' --appendonly no --port 6379 >redis-log 2>&1 &
redis=$!
until redis-cli ping >/dev/null 2>&1; do sleep 0.2; done
data='--keys 60000 --value-bytes 1024'
$REDIS_LOAD load $data >loading || fail "Redis cannot be loaded: $(tail -n 1 loading)"
touch loaded
group=/sys/fs/cgroup$(sed s/0::// /proc/$redis/cgroup)
until [ "$(cat $group/cpuset.mems.effective)" = 0-2 ]; do sleep 0.1; done
$REDIS_LOAD run $data --connections 1 --pipeline 8 --summary reading >reads 2>errors &
reader=$!

slow_pages() { awk '{ for (i = 3; i <= NF; i++) if (sub(/^N2=/, "", $i)) s += $i } END { print s + 0 }' /proc/$redis/numa_maps; }
migrated() { awk '/^pgmigrate_success/ { print $2 }' /proc/vmstat; }
kills=0
while_migrating=0
# Whether the last daemon was killed and nothing has restored since.
unrestored=
# A daemon that starts after a kill says so.
says_so() { [ -z "$unrestored" ] || grep -q 'an earlier daemon was killed' daemon-errors || fail "after kill $kills the next start is silent: $(cat daemon-errors)"; }
for delay in $DELAYS; do
    $THERMOCLINE run --config config.toml >daemon 2>daemon-errors &
    daemon=$!
    tries=0
    # In mode 1 the kernel moves pages itself. (In mode 0 it would not, but to switch scans off and
    # on patches code that Redis is running, which QEMU does not always survive.)
    until [ "$(cat /proc/sys/kernel/numa_balancing)" = 2 ]; do
        sleep 0.05
        kill -0 $daemon || fail "the daemon ended: $(cat daemon-errors)"
    done
    migratepages $redis 0,1 2
    before=$(migrated)
    until [ $(($(migrated) - before)) -gt 50 ]; do
        sleep 0.1
        tries=$((tries + 1))
        [ $tries -lt 900 ] || fail "nothing migrates: $(tail -n 2 daemon; cat daemon-errors)"
        kill -0 $daemon || fail "the daemon ended: $(cat daemon-errors)"
    done
    sleep "$((delay / 1000)).$(printf %03d $((delay % 1000)))"
    kill -9 $daemon || fail "the daemon is gone: $(cat daemon-errors)"
    wait $daemon 2>/dev/null
    says_so
    left=$(slow_pages)
    kills=$((kills + 1))
    [ $left -gt 1000 ] && while_migrating=$((while_migrating + 1))
    read -r seconds _ </proc/uptime
    echo "at $seconds s: kill $kills, $delay ms after the first page: $(($(migrated) - before)) pages migrated, $left left" | tee -a kills
    [ "$(settings)" != "$original" ] || fail "the killed daemon had changed nothing"
    # Most of those that start after a kill are killed as well; now and then one may end by itself,
    # or the command restores.
    case $((kills % 5)) in
    3)
        $THERMOCLINE restore >restored || fail "restore: $(cat restored)"
        unchanged "kill $kills, after restore"
        unrestored=
        ;;
    0)
        unrestored=1
        $THERMOCLINE run --config config.toml --for 1s >daemon 2>daemon-errors || fail "the start after kill $kills: $(cat daemon-errors)"
        says_so
        unchanged "kill $kills, after the next start and its end"
        unrestored=
        ;;
    *) unrestored=1 ;;
    esac
done
if [ -n "$unrestored" ]; then
    $THERMOCLINE restore >restored || fail "restore: $(cat restored)"
fi
unchanged "after all kills"
kill -TERM $reader
wait $reader || fail "reading: $(tail -n 1 reads; cat errors)"
$REDIS_LOAD verify $data >verified || fail "Redis lost data: $(tail -n 1 verified)"
echo "read: $(cat reading)"
echo "verified: $(tail -n 1 verified)"
echo "kills=$kills"
echo "while_migrating=$while_migrating"
redis-cli shutdown nosave
