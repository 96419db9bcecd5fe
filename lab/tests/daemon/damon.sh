# hotcold is on the slow node while DAMON manages: first refused beside others' use of DAMON, then
# at work, then killed.
cd "$LAB_SHARE"
vmstat() { awk -v n="$1" '$1 == n { print $2 }' /proc/vmstat; }
unusual_settings
# To switch it off and on patches code that hotcold is running, which QEMU does not always survive.
sysctl -qw kernel.numa_balancing=0
original=$(all)
# The manager's defaults but for times that are shorter.
cat >config.toml <<END
[manager]
name = "damon"
[manager.damon]
sample_ms = 20
aggregation_ms = 400
regions_max = 1000
quota_ms = 2000
promote_time_ms = 1000
cold_ms = 5000
stop_damon_stat = true
END

echo 1 >$damon/nr_kdamonds
timeout 60 $THERMOCLINE run --config config.toml --for 1s >out 2>refused && fail "kdamonds of others were not respected"
grep -q 'somebody else has set up DAMON' refused || fail "others: $(cat refused)"
[ "$(cat $damon/nr_kdamonds) $(cat $damon/0/state)" = "1 off" ] || fail "kdamonds of others were touched"
echo 0 >$damon/nr_kdamonds
if [ -e $stat ]; then
    timeout 60 $THERMOCLINE run --manager damon --for 1s >out 2>refused && fail "DAMON_STAT was not respected"
    grep -q stop_damon_stat refused || fail "DAMON_STAT: $(cat refused)"
fi
same "after the refusals"
echo refused=1

on-slow-node --widen-when 'test -e report' $HOTCOLD --mib "$MIB" --hot-layout contiguous --access-share 1 --no-thp --report report >log 2>errors &
loader=$!
until [ -e report ]; do sleep 0.2; done
pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/' report)
$HOTCOLD judge --report report --dram 0-1 --save snapshot >judged-first
promoted=$(vmstat pgpromote_success)
migrated=$(vmstat pgmigrate_success)
timeout 90 $THERMOCLINE run --config config.toml --json --for "$SECONDS_ON"s >daemon 2>daemon-errors
status=$?
echo daemon_status=$status
[ $status = 0 ] || fail "the daemon: $(cat daemon-errors)"
echo kernel_promoted=$(($(vmstat pgpromote_success) - promoted))
echo migrated=$(($(vmstat pgmigrate_success) - migrated))
cat daemon-errors
tail -n 1 daemon >last
$HOTCOLD judge --report report --dram 0-1 --before snapshot >judged
same "after the run"

$THERMOCLINE run --config config.toml >daemon 2>daemon-errors &
daemon=$!
tries=0
until $THERMOCLINE status >status-text 2>/dev/null && grep -q 'manager damon' status-text; do
    sleep 0.5
    tries=$((tries + 1))
    [ $tries -lt 60 ] || fail "no status: $(cat status-text)"
    kill -0 $daemon || fail "the daemon ended: $(cat daemon-errors)"
done
cat status-text
kill -9 $daemon
wait $daemon 2>/dev/null
# The kernel says busy while a kdamond holds the lock of its files.
for try in $(seq 50); do state=$(cat $damon/0/state 2>/dev/null) && break; sleep 0.1; done
[ "$state" = on ] || fail "the killed daemon had no kdamond"
$THERMOCLINE restore >restored || fail "restore: $(cat restored)"
same "after the kill and restore"
echo killed=1

migratepages $pid 0,1 2
promoted=$(vmstat pgpromote_success)
timeout 60 $THERMOCLINE run --manager numab2 --json --for 15s >daemon 2>daemon-errors
echo numab2_status=$?
echo numab2_promoted=$(($(vmstat pgpromote_success) - promoted))
cat daemon-errors
tail -n 1 daemon >numab2
same "after numab2"
kill -TERM $pid
wait $loader || fail "hotcold lost data"
