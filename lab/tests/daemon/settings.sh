# Sourced: every kernel setting that the daemon may write.
balance=/sys/kernel/debug/sched/numa_balancing
settings() {
    for file in /proc/sys/kernel/numa_balancing /proc/sys/kernel/numa_balancing_promote_rate_limit_MBps \
        $balance/scan_size_mb $balance/scan_period_min_ms $balance/scan_period_max_ms $balance/scan_delay_ms \
        /sys/kernel/mm/numa/demotion_enabled /proc/sys/vm/min_unmapped_ratio /proc/sys/vm/min_slab_ratio; do
        echo "$file $(cat $file)"
    done
}
# Values that are nobody's defaults, so that putting back defaults would show.
unusual_settings() {
    echo 1 >/proc/sys/kernel/numa_balancing
    echo 4321 >/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps
    echo 123 >$balance/scan_size_mb
    echo 177 >$balance/scan_period_min_ms
    # A program that the kernel has come to scan once a minute only would keep us waiting for as
    # long.
    echo 243 >$balance/scan_period_max_ms
    echo 3 >/proc/sys/vm/min_unmapped_ratio
    echo 7 >/proc/sys/vm/min_slab_ratio
}
fail() { echo "failed: $*"; exit 1; }
unchanged() { [ "$(settings)" = "$original" ] || fail "$1: $(settings)"; }
