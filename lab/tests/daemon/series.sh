# Three published series, each against the same without it: fault counts against time where pages
# wait for long, samples as the only source, and pages moved ahead of a program that walks its
# memory.
cd "$LAB_SHARE"
field() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p"; }
fail() { echo "$1" >&2; exit 1; }
percent() { $HOTCOLD judge --report report --dram 0-1 | field "$1" | awk '{ print int($1 * 100) }'; }
diary() { read -r seconds _ </proc/uptime; echo "at $seconds s: $*" | tee -a kills; }
# start OPTION...: hotcold on the slow node, free to go anywhere.
start() {
    rm -f report
    on-slow-node --widen-when "test -e report" $HOTCOLD --no-thp --report report "$@" >log 2>>errors &
    loader=$!
    until [ -e report ]; do sleep 0.2; done
    pid=$(field pid <report)
    until [ "$(cat /sys/fs/cgroup$(sed s/0::// /proc/$pid/cgroup)/cpuset.mems.effective)" = 0-2 ]; do sleep 0.1; done
}
stop() {
    kill -TERM $pid
    wait $loader || fail "hotcold lost data"
}
# config RULE [LINE...]: scans that pass over all of a program in a second.
config() {
    rule=$1
    shift
    printf '%s\n' '[admission]' 'rate_limit_mbps = 64' '[demotion]' 'mode = "off"' '[kernel]' 'scan_size_mb = 64' \
        'scan_period_min_ms = 500' 'scan_period_max_ms = 500' '[rule]' "name = \"$rule\"" "$@"
}
sysctl -qw kernel.numa_balancing=0 kernel.numa_balancing_promote_rate_limit_MBps=0

# Each page is accessed once in $WAIT_S seconds on average.
start --mib 96 --hot-share 0.5 --access-share 0.5 --rate $((96 * 256 / WAIT_S))
for rule in latency fault-count; do
    config $rule >$rule.toml
    $THERMOCLINE observe --config $rule.toml --json --for ${SECONDS_EACH}s >daemon 2>daemon-errors || fail "$rule: $(cat daemon-errors)"
    tail -n 1 daemon >$rule
    diary "$rule has observed"
done
stop

misses start >/dev/null
misses sample 10 >/dev/null
start --mib 96 --access-share 0.98
config inter-arrival '[source.hintfault]' 'enabled = false' '[source.hwsample]' 'enabled = true' 'sampler = "lab-rings"' >inter-arrival.toml
$THERMOCLINE run --config inter-arrival.toml --json >daemon 2>daemon-errors &
daemon=$!
deadline=$(($(date +%s) + 120))
until [ "$(percent hot_in_dram)" -ge 80 ] || [ "$(date +%s)" -ge $deadline ]; do sleep 1; done
kill -TERM $daemon
wait $daemon || fail "inter-arrival: $(cat daemon-errors)"
tail -n 1 daemon >inter-arrival
$HOTCOLD judge --report report --dram 0-1 >judged
stop
misses sample none >/dev/null
misses stop >/dev/null
diary "inter-arrival has promoted"

# A program that reads its memory page by page, 300 a second: the kernel takes a hint fault where it
# comes to a page that is still on the slow node.
cat >walker.pl <<'END'
my ($way, $pages) = @ARGV;
my $memory = "x" x ($pages * 4096);
open my $ready, ">", "walking" or die; print $ready $$; close $ready;
my $touch = sub { my $byte = substr($memory, $_[0] * 4096, 1); select undef, undef, undef, 1 / 300 };
for (;;) {
    for my $i (0 .. $pages - 1) {
        if ($way eq "up") { $touch->($i) }
        elsif ($way eq "down") { $touch->($pages - 1 - $i) }
        else { $touch->($i % 2 ? $pages / 2 + ($i - 1) / 2 : $i / 2) }
    }
}
END
for way in $WAYS; do
    for speculative in false true; do
        rm -f walking
        on-slow-node --widen-when "test -e walking" perl walker.pl $way $PAGES &
        loader=$!
        until [ -s walking ]; do sleep 0.2; done
        until [ "$(cat /sys/fs/cgroup$(sed s/0::// /proc/$loader/cgroup)/cpuset.mems.effective)" = 0-2 ]; do sleep 0.1; done
        config latency '[rule.latency]' 'hot_threshold_ms = 60000' '[rule.speculative]' "enabled = $speculative" '[[scope]]' 'command = "perl"' >walk.toml
        $THERMOCLINE run --config walk.toml --json --for $((PAGES / 300))s >daemon 2>daemon-errors || fail "$way: $(cat daemon-errors)"
        tail -n 1 daemon >$way-$speculative
        kill -TERM $loader
        wait $loader
        diary "$way, speculative $speculative"
    done
done
