# Three of hotcold on the slow node, each in its cgroup, while DAMON manages: one is excluded and
# the others move, the third of which comes later, below a cgroup that is named before it is there;
# then it is the other way round.
cd "$LAB_SHARE"
hierarchy=/sys/fs/cgroup
field() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p"; }
# $2 of the verdict on $1 as a percentage in whole numbers.
percent() { $HOTCOLD judge --report report-$1 --dram 0-1 | field "$2" | awk '{ print int($1 * 100) }'; }
# Waits until nearly all of what is hot of these is in DRAM, but not for ever.
come() {
    deadline=$(($(date +%s) + SECONDS_MOST))
    for name in "$@"; do
        until [ "$(percent $name hot_in_dram)" -ge 90 ] || [ "$(date +%s)" -ge $deadline ]; do sleep 1; done
    done
}
judge() { for name in a b c; do $HOTCOLD judge --report report-$name --dram 0-1 --before before-$name >judged-$1-$name; done; }
save() { for name in "$@"; do $HOTCOLD judge --report report-$name --dram 0-1 --save before-$name >/dev/null; done; }
pid() { sed 's/.*"pid":\([0-9]*\).*/\1/' report-$1; }
until_told() {
    for try in $(seq 100); do grep -q "$1" daemon-errors && return; sleep 0.2; done
    fail "not told: $1: $(cat daemon-errors)"
}
unusual_settings
sysctl -qw kernel.numa_balancing=0
original=$(all)

for name in a b; do
    on-slow-node --widen-when "test -e report-$name" $HOTCOLD --mib "$MIB" --hot-layout contiguous --access-share 1 --no-thp --report report-$name >log-$name 2>errors &
done
for name in a b; do
    until [ -e report-$name ]; do sleep 0.2; done
    group=$(sed s/0::// /proc/$(pid $name)/cgroup)
    until [ "$(cat $hierarchy$group/cpuset.mems.effective)" = 0-2 ]; do sleep 0.1; done
    eval "$name=$group"
done
save a b
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
scope() { printf '[[scope]]\ncgroup = "%s"\nexclude = %s\n' $1 $2; }
(cat config.toml; scope $a true; scope /later true) >excluding.toml
(cat config.toml; scope $a false; if [ -n "$ALLOWS" ]; then scope /later false; fi) >allowing.toml
(cat config.toml; scope $a false; scope $b false) >two.toml

# What this kernel cannot be told is refused, and what it is told shows beforehand.
timeout 60 $THERMOCLINE run --config two.toml --dry-run >out 2>two
two=$?
if [ -n "$ALLOWS" ]; then
    [ $two = 0 ] || fail "two cgroups: $(cat two)"
    grep -q "only pages charged to $a, $b may move\|only pages charged to $b, $a may move" two || fail "two cgroups: $(cat two)"
else
    [ $two != 0 ] || fail "two cgroups are accepted: $(cat two)"
    grep -q 'kernels before 6.14' two || fail "two cgroups: $(cat two)"
    timeout 60 $THERMOCLINE doctor --config two.toml >doctored
    grep -q 'kernels before 6.14' doctored || fail "doctor: $(cat doctored)"
fi
timeout 60 $THERMOCLINE run --manager damon --pid $$ --for 1s >out 2>refused && fail "processes are accepted"
grep -q 'scope\[0\].pids: is more than manager damon knows' refused || fail "processes: $(cat refused)"
timeout 60 $THERMOCLINE doctor --config excluding.toml >doctored
grep -q "all pages but those charged to $a may move" doctored || fail "doctor: $(cat doctored)"
same "after the refusals"
echo refused=1

$THERMOCLINE run --config excluding.toml --json >daemon 2>daemon-errors &
daemon=$!
until_told "all pages but those charged to $a may move"
for try in $(seq 100); do [ "$(cat $damon/2/state 2>/dev/null)" = on ] && break; sleep 0.2; done
# The kernel takes new filters at the end of an aggregation; a look every second finds the cgroup.
mkdir $hierarchy/later
echo "+memory +cpuset" >$hierarchy/later/cgroup.subtree_control
mkdir $hierarchy/later/inner
until_told "/later, /later/inner, $a may move\|$a, /later, /later/inner may move"
echo 2 >$hierarchy/later/inner/cpuset.mems
sh -c "echo \$\$ >$hierarchy/later/inner/cgroup.procs; exec $HOTCOLD --mib $MIB --hot-layout contiguous --access-share 1 --no-thp --report report-c" >log-c 2>errors-c &
until [ -e report-c ]; do sleep 0.2; done
echo 0-2 >$hierarchy/later/inner/cpuset.mems
save c
come b
sleep "$SECONDS_AFTER"
judge excluding
kill -TERM $daemon
wait $daemon
echo excluding_status=$?
tail -n 1 daemon >last-excluding
cat daemon-errors
same "after the run that excludes"

migratepages $(pid b) 0,1 2
save a b c
$THERMOCLINE run --config allowing.toml --json >daemon 2>daemon-errors &
daemon=$!
if [ -n "$ALLOWS" ]; then come a c; else come a; fi
sleep "$SECONDS_AFTER"
judge allowing
kill -TERM $daemon
wait $daemon
echo allowing_status=$?
cat daemon-errors
same "after the run that allows"
for name in a b c; do kill -TERM $(pid $name); done
wait
for name in a b c; do tail -n 1 log-$name; done
grep -q . errors errors-c && fail "hotcold lost data: $(cat errors errors-c)"
echo ended=1
