# $HOTCOLD on the slow node, and a daemon that sees nothing but page faults, through the kernel's
# ring of samples; then one whose ring is as small as rings are and who stands still for a while.
cd "$LAB_SHARE"
vmstat() { awk -v n="$1" '$1 == n { print $2 }' /proc/vmstat; }
# $1: size of the ring. Where every hint fault is taken, the first one has to be enough.
config() {
    cat <<END
[source.hintfault]
enabled = false
[source.hwsample]
enabled = true
sampler = "page-faults"
cpu_budget_permille = 1000
ring_kib = $1
[kernel]
scan_period_min_ms = 500
scan_period_max_ms = 1000
[rule]
name = "frequency"
[rule.frequency]
freq_threshold = 1
END
}
config 1024 >wide.toml
config 8 >narrow.toml
sysctl -qw kernel.numa_balancing=0 kernel.numa_balancing_promote_rate_limit_MBps=0
for knob in scan_period_min_ms scan_period_max_ms; do echo 1000 >/sys/kernel/debug/sched/numa_balancing/$knob; done
on-slow-node --widen-when 'test -e report' $HOTCOLD --mib 96 --no-thp --report report >log 2>errors &
loader=$!
until [ -e report ]; do sleep 0.2; done
pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/' report)
$HOTCOLD judge --report report --dram 0-1 --save snapshot >judged-first
$THERMOCLINE doctor --config wide.toml --json >doctor
kernel=$(vmstat pgpromote_success)
faults=$(vmstat pgfault)
timeout 90 $THERMOCLINE run --config wide.toml --json --for 15s >daemon 2>daemon-errors
echo daemon_status=$?
echo page_faults=$(($(vmstat pgfault) - faults))
echo kernel_promoted=$(($(vmstat pgpromote_success) - kernel))
tail -n 1 daemon >wide
$HOTCOLD judge --report report --dram 0-1 --before snapshot >judged

$THERMOCLINE run --config narrow.toml --json --for 90s >daemon 2>daemon-errors &
daemon=$!
# In its first second it answers that it has just started.
until $THERMOCLINE status >status-text 2>/dev/null && grep -q '^samples' status-text; do sleep 0.2; done
kill -STOP $daemon
faults=$(vmstat pgfault)
perl -e '$x = "x" x (64 << 20)'
echo burst=$(($(vmstat pgfault) - faults))
kill -CONT $daemon
sleep 2
# What was lost on a CPU is told with its next record that finds room.
for cpu in 0 1; do taskset -c $cpu perl -e '$x = "x" x (1 << 18)'; sleep 1; done
sleep 1
kill -TERM $daemon
wait $daemon
echo narrow_status=$?
tail -n 1 daemon >narrow
cat status-text
kill -TERM $pid
wait $loader || { echo "hotcold lost data"; exit 1; }
