# hotcold is on the slow node, and the daemon sees nothing but the regions that DAMON tells of:
# first refused beside others' use of DAMON, then at work, then killed.
cd "$LAB_SHARE"
vmstat() { awk -v n="$1" '$1 == n { print $2 }' /proc/vmstat; }
field() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p"; }
# $1 of the judge's verdict as a percentage in whole numbers.
percent() { $HOTCOLD judge --report report --dram 0-1 | field "$1" | awk '{ print int($1 * 100) }'; }
unusual_settings
# To switch it off and on patches code that hotcold is running, which QEMU does not always survive.
sysctl -qw kernel.numa_balancing=0
original=$(all)
# No other source, and none of the settings that another would need.
cat >config.toml <<END
[source.hintfault]
enabled = false
[source.damon]
enabled = true
sample_ms = 20
aggregation_ms = 400
stop_damon_stat = true
[reverse]
cpu_permille = 200
round_ms = 2000
[kernel]
numa_balancing = 0
[demotion]
mode = "off"
END
grep -v stop_damon_stat config.toml >no-consent.toml

echo 1 >$damon/nr_kdamonds
timeout 60 $THERMOCLINE run --config config.toml --for 1s >out 2>refused && fail "kdamonds of others were not respected"
grep -q 'somebody else has set up DAMON' refused || fail "others: $(cat refused)"
[ "$(cat $damon/nr_kdamonds) $(cat $damon/0/state)" = "1 off" ] || fail "kdamonds of others were touched"
echo 0 >$damon/nr_kdamonds
if [ -e $stat ]; then
    timeout 60 $THERMOCLINE run --config no-consent.toml --for 1s >out 2>refused && fail "DAMON_STAT was not respected"
    grep -q source.damon.stop_damon_stat refused || fail "DAMON_STAT: $(cat refused)"
fi
timeout 60 $THERMOCLINE run --config config.toml --dry-run --for 1s >out 2>dry || fail "dry run: $(cat dry)"
grep -q 'nr_kdamonds: 0 -> 3' dry || fail "dry run: $(cat dry)"
same "after the refusals and the dry run"
echo refused=1

on-slow-node --widen-when 'test -e report' $HOTCOLD --mib "$MIB" --hot-layout contiguous --access-share 1 --no-thp --report report >log 2>errors &
loader=$!
until [ -e report ]; do sleep 0.2; done
pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/' report)
$THERMOCLINE doctor --config config.toml --json >doctor
$HOTCOLD judge --report report --dram 0-1 --save snapshot >judged-first
faults=$(vmstat numa_hint_faults)
$THERMOCLINE run --config config.toml --json >daemon 2>daemon-errors &
daemon=$!
deadline=$(($(date +%s) + 60))
until [ "$(percent hot_in_dram)" -ge 90 ] || [ "$(date +%s)" -ge $deadline ]; do sleep 1; done
# What is not hot must not follow.
sleep "$SECONDS_AFTER"
$THERMOCLINE status >status-text || fail "no status: $(cat daemon-errors)"
$HOTCOLD judge --report report --dram 0-1 --before snapshot >judged
# The first fifth is hot; where it ends a region may reach over, but not in its midst.
base=$(sed 's/.*"base":\([0-9]*\).*/\1/' report)
$THERMOCLINE explain $pid $(printf 0x%x $((base + MIB * 1048576 / 10))) >explained || fail "explain: $(cat explained)"
kill -TERM $daemon
wait $daemon
echo daemon_status=$?
echo hint_faults=$(($(vmstat numa_hint_faults) - faults))
cat daemon-errors status-text explained
tail -n 1 daemon >last
same "after the run"

$THERMOCLINE run --config config.toml >daemon-killed 2>daemon-errors &
daemon=$!
for try in $(seq 100); do [ "$(cat $damon/2/state 2>/dev/null)" = on ] && break; sleep 0.2; done
kill -9 $daemon || fail "the daemon had ended: $(cat daemon-errors)"
wait $daemon 2>/dev/null
# The kernel says busy while a kdamond holds the lock of its files.
for try in $(seq 50); do state=$(cat $damon/0/state 2>/dev/null) && break; sleep 0.1; done
[ "$state" = on ] || fail "the killed daemon had no kdamond"
$THERMOCLINE restore >restored || fail "restore: $(cat restored)"
same "after the kill and restore"
echo killed=1
kill -TERM $pid
wait $loader || fail "hotcold lost data"
