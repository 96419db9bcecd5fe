# Debian 12's own kernel: what the doctor says, what the source sees compared with the kernel's
# counters, and what a daemon does that promotes every accessed page.
cd "$LAB_SHARE"
generations=/sys/kernel/mm/lru_gen/enabled
cat >config.toml <<END
[kernel]
scan_period_min_ms = 500
scan_period_max_ms = 1000
[rule]
name = "latency"
[rule.latency]
hot_threshold_ms = 600000
feedback = false
END
$THERMOCLINE doctor --json >doctor
echo doctor=$?
echo y >$generations
$THERMOCLINE doctor --json >doctor-generations
echo n >$generations

# As many scans as possible, so that a few seconds are enough.
sysctl -qw kernel.numa_balancing=0 kernel.numa_balancing_promote_rate_limit_MBps=0
for knob in scan_delay_ms scan_period_min_ms scan_period_max_ms; do echo 100 >$balance/$knob; done
echo 16 >$balance/scan_size_mb
on-slow-node --widen-when 'test -e report' $HOTCOLD --mib 64 --threads 2 --no-thp --report report >log 2>errors &
loader=$!
until [ -e report ]; do sleep 0.2; done
pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/' report)
$HINTFAULT --seconds 4 --kernel-stamp >lines &
watcher=$!
until grep -q attached lines; do sleep 0.2; done
sysctl -qw kernel.numa_balancing=2
wait $watcher || fail "the source: $(cat lines)"
tail -n 1 lines >seen

unusual_settings
# Nothing else may move pages meanwhile.
sysctl -qw kernel.numa_balancing=0
original=$(settings)
$HOTCOLD judge --report report --dram 0-1 --save snapshot >judged-first
promoted() { awk '$1 == "pgpromote_success" { print $2 }' /proc/vmstat; }
kernel=$(promoted)
timeout 60 $THERMOCLINE run --config config.toml --json --for "$SECONDS_ON"s >daemon 2>daemon-errors
echo daemon_status=$?
tail -n 1 daemon >last
echo kernel_promoted=$(($(promoted) - kernel))
unchanged "after the run"
$HOTCOLD judge --report report --dram 0-1 --before snapshot >judged
kill -TERM $pid
wait $loader || fail "hotcold lost data"
