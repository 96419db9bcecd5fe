# Two processes that stand for virtual machine monitors, their memory on the slow node, and a daemon
# that sees nothing of them but the frames that the lab's sampler names: no hint faults, no
# processes. $HOTCOLD has hot and cold pages; of the memory of $PAGES every eighth page is pinned.
cd "$LAB_SHARE"
vmstat() { awk -v n="$1" '$1 == n { print $2 }' /proc/vmstat; }
field() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p"; }
judge() { $HOTCOLD judge --report "$1" --dram 0-1; }
# $1 as a percentage in whole numbers.
percent() { judge "$1" | field "$2" | awk '{ print int($1 * 100) }'; }
# Pages of process $1 by node, of its large mapping.
pages_on() { awk -v n="N$2" '/anon=/ { for (i = 1; i <= NF; i++) if (split($i, a, "=") == 2 && a[1] == n) s += a[2] } END { print s + 0 }' /proc/$1/numa_maps; }
# Waits until $1 holds, but not beyond the deadline.
deadline=$(($(date +%s) + 150))
until_true() { until eval "$1" || [ "$(date +%s)" -ge $deadline ]; do sleep 1; done; }
start_hotcold() {
    on-slow-node --widen-when "test -e $1" $HOTCOLD --report "$1" --seed 7 $2 >log-$1 2>>errors &
    loader=$!
    until [ -e "$1" ]; do sleep 0.2; done
}
cat >config.toml <<END
[source.hintfault]
enabled = false
[source.hwsample]
enabled = true
sampler = "lab-rings"
cpu_budget_permille = 200
[reverse]
cpu_permille = 200
round_ms = 2000
[kernel]
numa_balancing = 0
[demotion]
mode = "off"
END
sysctl -qw kernel.numa_balancing=0
echo always >/sys/kernel/mm/transparent_hugepage/defrag
$THERMOCLINE doctor --config config.toml --json >doctor
mkfifo /run/ask
on-slow-node --widen-when 'test -s said' $PAGES guest "$GUEST_PAGES" </run/ask >said 2>>errors &
guest=$!
exec 3>/run/ask
until [ -s said ]; do sleep 0.2; done
start_hotcold base "--mib $MIB --no-thp"
faults=$(vmstat numa_hint_faults)
kernel=$(vmstat pgpromote_success)
misses start >/dev/null
misses sample "$EVERY" >/dev/null

$THERMOCLINE run --config config.toml --json >daemon 2>daemon-errors &
daemon=$!
until_true '[ $(percent base hot_in_dram) -ge 90 ] && [ $(pages_on $guest 0) -ge $((GUEST_PAGES * 3 / 4)) ]'
judge base >judged-base
echo guest_in_dram=$(pages_on $guest 0)
echo guest_on_slow=$(pages_on $guest 2)
tail -n 1 daemon >first
address=$(sed 's/ready \(0x[0-9a-f]*\) .*/\1/' said)
$THERMOCLINE explain $guest $address >explained
$THERMOCLINE status >status-text
kill -TERM $loader
wait $loader || { echo "hotcold lost data"; exit 1; }

# Another process, in frames that the first one had, with huge pages. What is sampled before its
# cpuset allows node 0 would be left alone for a minute.
misses sample none >/dev/null
start_hotcold huge "--mib $MIB --grain-kib 2048"
group=/sys/fs/cgroup$(sed s/0::// /proc/$loader/cgroup)
until [ "$(cat $group/cpuset.mems.effective)" = 0-2 ]; do sleep 0.1; done
misses sample "$EVERY" >/dev/null
deadline=$(($(date +%s) + 100))
echo huge=$(awk '/^AnonHugePages/ { print $2 / 2048 }' /proc/$loader/smaps_rollup)
until_true '[ $(percent huge hot_in_dram) -ge 90 ]'
judge huge >judged-huge
kill -TERM $daemon
wait $daemon
echo daemon_status=$?
tail -n 1 daemon >last
echo hint_faults=$(($(vmstat numa_hint_faults) - faults))
echo kernel_promoted=$(($(vmstat pgpromote_success) - kernel))
misses sample none >/dev/null
kill -TERM $loader
wait $loader || { echo "hotcold lost data"; exit 1; }
echo check >&3
deadline=$(($(date +%s) + 60))
until_true '[ $(wc -l <said) -ge 2 ]'
echo guest_says=$([ "$(tail -n 1 said)" = ok ] && echo 1 || echo 0)
cat status-text explained
