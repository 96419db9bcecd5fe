# The daemon sees nothing but the regions that DAMON tells of by processes' addresses: of hotcold,
# which is on the slow node, and of another one that starts when the first has ended. Then the
# daemon is killed.
cd "$LAB_SHARE"
vmstat() { awk -v n="$1" '$1 == n { print $2 }' /proc/vmstat; }
field() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p"; }
percent() { $HOTCOLD judge --report report-$1 --dram 0-1 | field hot_in_dram | awk '{ print int($1 * 100) }'; }
pid() { sed 's/.*"pid":\([0-9]*\).*/\1/' report-$1; }
# The kernel says busy while a kdamond holds the lock of its files.
state() { for try in $(seq 50); do cat $damon/$1/state 2>/dev/null && return; sleep 0.1; done; }
states() { for number in 0 1; do printf '%s ' "$(state $number)"; done; }
# begin NAME FLAGS 'VARIABLE=VALUE ...'
begin() {
    on-slow-node --widen-when "test -e report-$1" env $3 $HOTCOLD --mib "$MIB" --hot-layout contiguous --access-share 1 $2 --report report-$1 >log-$1 2>errors &
    loader=$!
    until [ -e report-$1 ]; do sleep 0.2; done
    $HOTCOLD judge --report report-$1 --dram 0-1 --save before-$1 >/dev/null
}
come() {
    deadline=$(($(date +%s) + SECONDS_MOST))
    until [ "$(percent $1)" -ge 90 ] || [ "$(date +%s)" -ge $deadline ]; do sleep 1; done
    # What is not hot must not follow.
    sleep "$SECONDS_AFTER"
    $HOTCOLD judge --report report-$1 --dram 0-1 --before before-$1 >judged-$1
}
# The first fifth is hot; where it ends a region may reach over, but not in its midst.
explain() {
    base=$(sed 's/.*"base":\([0-9]*\).*/\1/' report-$1)
    $THERMOCLINE explain $(pid $1) $(printf 0x%x $((base + MIB * 1048576 / 10))) >explained-$1 || fail "explain: $(cat explained-$1)"
}
# Otherwise the kernel looks for huge pages on the CPU's own node only, which the cpuset forbids.
echo always >/sys/kernel/mm/transparent_hugepage/defrag
unusual_settings
sysctl -qw kernel.numa_balancing=0
original=$(all)
cat >config.toml <<END
[source.hintfault]
enabled = false
[source.damon]
enabled = true
addresses = "virtual"
processes_max = 2
sample_ms = 20
aggregation_ms = 400
stop_damon_stat = true
[kernel]
numa_balancing = 0
[demotion]
mode = "off"
END

echo 1 >$damon/nr_kdamonds
timeout 60 $THERMOCLINE run --config config.toml --for 1s >out 2>refused && fail "kdamonds of others were not respected"
grep -q 'somebody else has set up DAMON' refused || fail "others: $(cat refused)"
echo 0 >$damon/nr_kdamonds
timeout 60 $THERMOCLINE run --config config.toml --dry-run --for 1s >out 2>dry || fail "dry run: $(cat dry)"
grep -q 'nr_kdamonds: 0 -> 2' dry || fail "dry run: $(cat dry)"
same "after the refusal and the dry run"
$THERMOCLINE doctor --config config.toml --json >doctor
echo refused=1

# In a heap that was grown by brk(2), beside which lies a hole that is none of the two largest.
begin a --no-thp "MALLOC_MMAP_MAX_=0 LD_PRELOAD=$FAR"
grep -q '^400000000000-' /proc/$(pid a)/maps || fail "nothing is mapped far away: $(cat /proc/$(pid a)/maps)"
heap=$(awk '$6 == "[heap]" { print $1 }' /proc/$(pid a)/maps)
base=$(sed 's/.*"base":\([0-9]*\).*/\1/' report-a)
[ $((0x${heap%-*})) -le $base ] && [ $base -lt $((0x${heap#*-})) ] || fail "$base is not in the heap $heap"
faults=$(vmstat numa_hint_faults)
$THERMOCLINE run --config config.toml --json >daemon 2>daemon-errors &
daemon=$!
come a
explain a
watched=$(states)
kill -TERM $(pid a)
wait $loader || fail "hotcold lost data"
for try in $(seq 50); do case "$(states)" in *on*on*) ;; *off*) break ;; esac; sleep 0.2; done
echo "kdamonds: $watched, then $(states)"
case "$(states)" in *off*) ;; *) fail "a process has ended and its kdamond has not" ;; esac
begin b "$FLAGS"
come b
explain b
$THERMOCLINE status >status-text || fail "no status: $(cat daemon-errors)"
kill -TERM $daemon
wait $daemon
echo daemon_status=$?
echo hint_faults=$(($(vmstat numa_hint_faults) - faults))
cat daemon-errors status-text explained-a explained-b
tail -n 1 daemon >last
same "after the run"

$THERMOCLINE run --config config.toml >daemon-killed 2>daemon-errors &
daemon=$!
for try in $(seq 100); do case "$(states)" in *on*) break ;; esac; sleep 0.2; done
kill -9 $daemon || fail "the daemon had ended: $(cat daemon-errors)"
wait $daemon 2>/dev/null
case "$(states)" in *on*) ;; *) fail "the killed daemon had no kdamond" ;; esac
$THERMOCLINE restore >restored || fail "restore: $(cat restored)"
same "after the kill and restore"
echo killed=1
kill -TERM $(pid b)
wait $loader || fail "hotcold lost data"
