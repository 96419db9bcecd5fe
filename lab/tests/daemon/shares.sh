# A hog fills the top tier and accesses all of it more often than a server on the slow node accesses
# what it accesses most. Without a share the hog keeps DRAM; with one the server gets it back within
# a bounded time; and when the server has gone, the hog has its memory in DRAM again. All the while
# a third program, which is never slow and hardly accesses anything, keeps what it has.
cd "$LAB_SHARE"
unusual_settings
sysctl -qw kernel.numa_balancing=0
original=$(settings)
free_mib() { awk '/MemFree/ { s += $4 } END { print int(s / 1024) }' /sys/devices/system/node/node[01]/meminfo; }
# KiB of a cgroup's memory in the top tier.
top_kib() { awk '$1 == "anon" || $1 == "file" { for (i = 2; i <= NF; i++) if (split($i, p, "=") == 2 && (p[1] == "N0" || p[1] == "N1")) s += p[2] } END { print int(s / 1024) }' /sys/fs/cgroup/$1/memory.numa_stat; }
hot_percent() { $HOTCOLD judge --report report-server --dram 0-1 | sed 's/.*"hot_in_dram":\([0-9.]*\).*/\1/' | awk '{ print int($1 * 100) }'; }
# The diary is shown where the guest ends too early.
diary() { read -r seconds _ </proc/uptime; echo "at $seconds s: $*; the server has $(top_kib server) KiB, the hog $(top_kib hog), free $(free_mib) MiB" | tee -a kills; }
# program NAME NODES ARGUMENT...: hotcold in a cgroup of its own, allocated on these nodes.
program() {
    name=$1
    mkdir /sys/fs/cgroup/$name
    echo $2 >/sys/fs/cgroup/$name/cpuset.mems
    shift 2
    sh -c "echo \$\$ >/sys/fs/cgroup/$name/cgroup.procs; exec $HOTCOLD --no-thp --report report-$name $*" >log-$name 2>errors-$name &
    pid=$!
    until [ -e report-$name ]; do
        sleep 0.2
        kill -0 $pid || fail "$name: $(cat errors-$name)"
    done
    echo 0-2 >/sys/fs/cgroup/$name/cpuset.mems
}

program server 2 --mib $SERVER_MIB --hot-share 0.4 --rate $SERVER_RATE
server=$pid
program trading 0-1 --mib $TRADING_MIB --rate 1
trading=$pid
sync
echo 3 >/proc/sys/vm/drop_caches
# All pages alike.
program hog 0-1 --mib $(($(free_mib) - FREE_MIB)) --hot-share 0.5 --access-share 0.5
hog=$pid
hog_kib=$(top_kib hog)
echo hog_kib=$hog_kib
trading_kib=$(top_kib trading)
echo trading_kib=$trading_kib

share() {
    cat >config.toml <<END
[demotion]
mode = "on"
idle_ms = 2000
cpu_percent = 100
[kernel]
scan_period_min_ms = 1000
scan_period_max_ms = 2000
[[scope]]
name = "server"
cgroup = "/server"
top_tier_share_mib = $1
[[scope]]
name = "trading"
cgroup = "/trading"
never_slow = true
[[scope]]
name = "all else"
cgroup = "/"
END
}
share 0
# The doctor says what else keeps it in DRAM, until that is done.
slow='scope\[1\] is never_slow, and its cpuset allows node 2'
timeout 60 $THERMOCLINE doctor --config config.toml >doctored || [ $? = 1 ] || fail "doctor: $(cat doctored)"
grep -q "$slow" doctored || fail "the doctor does not say what may be slow: $(cat doctored)"
echo 0-1 >/sys/fs/cgroup/trading/cpuset.mems
timeout 60 $THERMOCLINE doctor --config config.toml >doctored || [ $? = 1 ] || fail "doctor: $(cat doctored)"
grep -q "$slow" doctored && fail "the doctor asks for what is done: $(cat doctored)"
# In a session of its own it has no terminal, whose end SIGHUP would tell of.
setsid $THERMOCLINE run --config config.toml --json >daemon 2>daemon-errors &
daemon=$!
sleep $WITHOUT_S
diary "without a share"
echo hot_without=$(hot_percent)
echo server_without=$(top_kib server)

share $SHARE_MIB
for try in 1 2 3; do $THERMOCLINE reload >out 2>&1 && break; sleep 1; done
grep -q 'top_tier_share_mib' out || fail "reload: $(cat out)"
waited=0
until [ "$(hot_percent)" -ge $HOT_MIN ]; do
    sleep 1
    waited=$((waited + 1))
    [ $waited -lt 120 ] || { diary "its share does not come: $(tail -n 1 daemon)"; break; }
    [ $((waited % 10)) != 0 ] || diary "$(hot_percent) % of what is hot"
    kill -0 $daemon || fail "the daemon ended: $(cat daemon-errors)"
done
diary "with a share"
echo back_s=$waited
echo hot_with=$(hot_percent)
echo server_with=$(top_kib server)
echo hog_with=$(top_kib hog)
$THERMOCLINE explain server >explained || fail "explain: $(cat explained)"
$THERMOCLINE status >status-text || fail "status: $(cat status-text)"
grep '^scope' status-text
cat explained
tail -n 1 daemon >shared

kill -TERM $server
wait $server || fail "the server lost data: $(cat errors-server)"
waited=0
until [ "$(top_kib hog)" -ge $((hog_kib - BACK_SLACK_KIB)) ]; do
    sleep 1
    waited=$((waited + 1))
    [ $waited -lt 120 ] || { diary "the hog does not come back: $(tail -n 1 daemon)"; break; }
done
diary "without the server"
echo hog_after=$(top_kib hog)
echo unused_s=$waited
kill -TERM $daemon
wait $daemon
echo daemon_status=$?
tail -n 1 daemon >last
unchanged "after the run"
echo trading_after=$(top_kib trading)
kill -TERM $hog $trading
wait $hog || fail "the hog lost data: $(cat errors-hog)"
wait $trading || fail "what is never slow lost data: $(cat errors-trading)"
