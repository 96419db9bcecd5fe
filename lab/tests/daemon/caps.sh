# Two cgroups fill the top tier, and one of them is to have half of what it has. The daemon has to
# demote it down to its cap, and nothing of the other; and again after it has allocated more.
cd "$LAB_SHARE"
unusual_settings
sysctl -qw kernel.numa_balancing=0
original=$(settings)
# KiB of a cgroup's memory in the top tier.
top_kib() { awk '$1 == "anon" || $1 == "file" { for (i = 2; i <= NF; i++) if (split($i, p, "=") == 2 && (p[1] == "N0" || p[1] == "N1")) s += p[2] } END { print int(s / 1024) }' /sys/fs/cgroup/$1/memory.numa_stat; }
free_kib() { awk '/MemFree/ { print $4 }' /sys/devices/system/node/node$1/meminfo; }
# The diary is shown where the guest ends too early.
diary() { read -r seconds _ </proc/uptime; echo "at $seconds s: $*" | tee -a kills; }

sync
echo 3 >/proc/sys/vm/drop_caches
fill-node 0 $FREE_MIB hog "a hog has more than its share" || fail "node 0 cannot be filled"
# The daemon and its program's pages in the cache take some 10 MiB: a node that is full gives,
# whoever owns it.
fill-node 1 $((3 * FREE_MIB)) beside "and its neighbour has not" || fail "node 1 cannot be filled"
hog_sum=$(md5sum </dev/shm/hog) beside_sum=$(md5sum </dev/shm/beside)
echo 0-2 >/sys/fs/cgroup/hog/cpuset.mems
echo 0-2 >/sys/fs/cgroup/beside/cpuset.mems
hog_before=$(top_kib hog)
cap_mib=$((hog_before / 2048))
echo hog_before=$hog_before
echo beside_before=$(top_kib beside)
echo cap_kib=$((cap_mib << 10))

cat >config.toml <<END
[demotion]
idle_ms = 2000
cpu_percent = 100
scope_rate_mbps = 64
[[scope]]
name = "hog"
cgroup = "/hog"
top_tier_cap_mib = $cap_mib
[[scope]]
name = "beside"
cgroup = "/beside"
END
$THERMOCLINE run --config config.toml --json >daemon 2>daemon-errors &
daemon=$!
# Waits until the hog is at its cap, give or take what is left there, and stays for five seconds.
comes_down() {
    waited=0 enough=0
    while [ $enough -lt 5 ]; do
        sleep 1
        waited=$((waited + 1))
        [ $waited -lt 90 ] || { diary "$1: $(top_kib hog) KiB are above: $(tail -n 1 daemon)"; break; }
        kill -0 $daemon || fail "the daemon ended: $(cat daemon-errors)"
        now=$(top_kib hog)
        [ "$now" -lt $least ] && least=$now
        [ "$now" -le $(((cap_mib << 10) + SLACK_KIB)) ] && enough=$((enough + 1)) || enough=0
    done
    diary "$1: at $(top_kib hog) KiB after $waited s, beside it $(top_kib beside); free $(free_kib 0) and $(free_kib 1)"
}
least=$hog_before
comes_down before
echo first_s=$waited
echo hog_first=$(top_kib hog)
# On node 0: node 1 is full of what is beside it, which would have to make room.
sh -c 'echo $$ >/sys/fs/cgroup/hog/cgroup.procs
    yes more | numactl --membind=0 dd of=/dev/shm/more bs=1M iflag=fullblock count='$GROW_MIB' 2>/dev/null' || fail "it cannot grow"
echo hog_grown=$(top_kib hog)
comes_down grown
echo second_s=$waited
echo hog_second=$(top_kib hog)
echo beside_after=$(top_kib beside)
echo least_hog=$least
$THERMOCLINE status >status-text || fail "status: $(cat status-text)"
grep '^scope' status-text
kill -TERM $daemon
wait $daemon
echo daemon_status=$?
tail -n 1 daemon >last
unchanged "after the run"
[ "$(md5sum </dev/shm/hog)" = "$hog_sum" ] || fail "memory of the hog was lost"
[ "$(md5sum </dev/shm/beside)" = "$beside_sum" ] || fail "memory beside it was lost"
