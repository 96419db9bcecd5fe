# Node 0 is full of memory with a floor just below what it is, and hotcold, on the slow node, may
# have but a little of the top tier. The daemon has to demote down to the floor and to promote up to
# the cap, and no further, however much it would like to.
cd "$LAB_SHARE"
unusual_settings
sysctl -qw kernel.numa_balancing=0
original=$(settings)
free_mib() { awk '/MemFree/ { print int($4 / 1024) }' /sys/devices/system/node/node$1/meminfo; }
# KiB of a cgroup's memory in the top tier.
top_kib() { awk '$1 == "anon" || $1 == "file" { for (i = 2; i <= NF; i++) if (split($i, p, "=") == 2 && (p[1] == "N0" || p[1] == "N1")) s += p[2] } END { print int(s / 1024) }' /sys/fs/cgroup/$1/memory.numa_stat; }
# The diary is shown where the guest ends too early.
diary() { read -r seconds _ </proc/uptime; echo "at $seconds s: $*" | tee -a kills; }
pattern='the water below is cold'

on-slow-node --widen-when 'test -e report' $HOTCOLD --mib "$MIB" --no-thp --report report >log 2>errors &
loader=$!
until [ -e report ]; do sleep 0.2; done
pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/' report)
capped=$(sed s,0::/,, /proc/$pid/cgroup)
until [ "$(cat /sys/fs/cgroup/$capped/cpuset.mems.effective)" = 0-2 ]; do sleep 0.1; done
sync
echo 3 >/proc/sys/vm/drop_caches
fill-node 0 $FREE_MIB kept "$pattern" || fail "node 0 cannot be filled"
sum=$(md5sum </dev/shm/kept)
echo 0-2 >/sys/fs/cgroup/kept/cpuset.mems
kept_before=$(top_kib kept)
floor_mib=$((kept_before / 1024 - SPARE_MIB))
echo kept_before=$kept_before
echo floor_kib=$((floor_mib << 10))
echo capped_before=$(top_kib $capped)

cat >config.toml <<END
[demotion]
mode = "on"
idle_ms = 2000
cpu_percent = 100
[kernel]
scan_period_min_ms = 1000
scan_period_max_ms = 2000
[[scope]]
name = "kept"
cgroup = "/kept"
top_tier_floor_mib = $floor_mib
[[scope]]
name = "capped"
cgroup = "/$capped"
top_tier_cap_mib = $CAP_MIB
END
# What contradicts itself is refused before anything is done.
sed "s/^top_tier_floor_mib.*/&\ntop_tier_cap_mib = 1/" config.toml >contradiction.toml
$THERMOCLINE config check contradiction.toml >out 2>&1 && fail "a floor above the cap is accepted: $(cat out)"
grep -q 'top_tier_cap_mib of the scope is 1 MiB' out || fail "the contradiction is not named: $(cat out)"
sed "s/^mode.*/mode = \"auto\"/" config.toml >auto.toml
timeout 30 $THERMOCLINE run --config auto.toml --for 1s >out 2>&1 || fail "run with mode auto: $(cat out)"
grep -q 'nothing is demoted: scope\[0\] has a top_tier_floor_mib' out || fail "nobody asked for consent: $(cat out)"
unchanged "after a run without consent"
timeout 60 $THERMOCLINE doctor --config config.toml >doctored || [ $? = 1 ] || fail "doctor: $(cat doctored)"
grep -q "scope\[1\] holds .* MiB of the top tier, its cap is $CAP_MIB MiB" doctored || fail "doctor: $(cat doctored)"
diary "node 0 is full"

$THERMOCLINE run --config config.toml --json >daemon 2>daemon-errors &
daemon=$!
least=$kept_before most=0 seconds=0 enough=0
while [ $enough -lt 5 ]; do
    sleep 1
    seconds=$((seconds + 1))
    [ $seconds -lt 90 ] || { diary "floor or cap was not reached: $(tail -n 1 daemon)"; break; }
    kill -0 $daemon || fail "the daemon ended: $(cat daemon-errors)"
    now=$(top_kib kept)
    [ "$now" -lt $least ] && least=$now
    now=$(top_kib $capped)
    [ "$now" -gt $most ] && most=$now
    # Both limits bind, and five seconds more to go beyond them.
    tail -n 2 daemon | grep -q '"scope_cap":[1-9].*"kept_by_floor":[1-9]' && enough=$((enough + 1))
done
echo least_kept=$least
echo most_capped=$most
diary "both limits have been tried"
$THERMOCLINE status >status-text || fail "status: $(cat status-text)"
grep '^scope' status-text
# A hot page that is still below tells why.
cold=$(perl -e 'local $/; open my $f, "<", "report" or die; my $report = <$f>;
    my ($base) = $report =~ /"base":(\d+)/; my ($hot) = $report =~ /"hot_ranges":\[(.*?)\]\]/;
    while ($hot =~ /(\d+),(\d+)/g) { printf "0x%x\n", $base + $_ * 4096 for $1 .. $2 - 1 }' | awk 'NR % 200 == 1')
for page in $cold; do
    $THERMOCLINE explain $pid $page >explained || fail "explain: $(cat explained)"
    grep -q 'refused; scope_cap' explained && break
done
cat explained
kill -TERM $daemon
wait $daemon
echo daemon_status=$?
tail -n 1 daemon >last
unchanged "after the run"
kill -TERM $pid
wait $loader || fail "hotcold lost data"
[ "$(md5sum </dev/shm/kept)" = "$sum" ] || fail "memory with a floor was lost"
