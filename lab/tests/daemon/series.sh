# Three published series, each against the same without it. The program is on the slow node, free to
# go anywhere, and mainline's rule is the one beside.
cd "$LAB_SHARE"
field() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p"; }
fail() { echo "$1" >&2; exit 1; }
judge() { $HOTCOLD judge --report report --dram 0-1; }
diary() { read -r seconds _ </proc/uptime; echo "at $seconds s: $*" | tee -a kills; }
# until_there FILE...
until_there() { for file in "$@"; do until [ -s $file ]; do sleep 0.1; done; done; }
until_widened() {
    until [ "$(cat /sys/fs/cgroup$(sed s/0::// /proc/$1/cgroup)/cpuset.mems.effective)" = 0-2 ]; do sleep 0.1; done
}
# start OPTION...: hotcold.
start() {
    rm -f report
    on-slow-node --widen-when "test -e report" $HOTCOLD --no-thp --report report "$@" >log 2>>errors &
    loader=$!
    until_there report
    pid=$(field pid <report)
    until_widened $pid
}
stop() {
    kill -TERM $pid
    wait $loader || fail "hotcold lost data"
}
# config RULE LINE...: all memory is scanned each 100 ms of a task's CPU time.
limit=64
config() {
    rule=$1
    shift
    printf '%s\n' '[admission]' "rate_limit_mbps = $limit" '[demotion]' 'mode = "off"' '[kernel]' 'scan_size_mb = 256' \
        'scan_period_min_ms = 100' 'scan_period_max_ms = 100' '[rule]' "name = \"$rule\"" "$@" >config.toml
}
# begun: the daemon is at work. What it prints is read when it has ended: of a file in the shared
# folder that grows, a reader would leave holes.
begun() {
    $THERMOCLINE run --config config.toml --json >/tmp/lines 2>daemon-errors &
    daemon=$!
    # In its first second it has no figures yet.
    until $THERMOCLINE status --json >status 2>>errors && grep -q counters status; do
        kill -0 $daemon || fail "the daemon ended: $(cat daemon-errors)"
        sleep 0.2
    done
}
reloaded() { $THERMOCLINE reload >>errors 2>&1 || fail "not reloaded: $(cat errors)"; }
# ended NAME: NAME has the daemon's lines.
ended() {
    kill -TERM $daemon
    wait $daemon || fail "$1: $(cat daemon-errors)"
    cp /tmp/lines $1
    diary "$1 has ended"
}
sysctl -qw kernel.numa_balancing=0 kernel.numa_balancing_promote_rate_limit_MBps=0
# A thread is first scanned after so much of its time, and then as often until it is told otherwise.
echo 100 >/sys/kernel/debug/sched/numa_balancing/scan_delay_ms

counts() {
    start --mib 32 --hot-share 0.02 --access-share 0.99927 --rate $SLOW_RATE
    config latency
    begun
    # A task is not scanned before it has run for long enough.
    until grep -q '"stamped": *[1-9]' status; do
        sleep 0.2
        $THERMOCLINE status --json >status
    done
    for rule in latency fault-count; do
        [ $rule = latency ] || { config $rule && reloaded; }
        wc -l <log >mark-$rule-from
        judge >$rule-before
        $THERMOCLINE status --json >$rule-from
        sleep $SECONDS_EACH
        wc -l <log >mark-$rule-to
        judge >$rule-after
        $THERMOCLINE status --json >$rule-to
    done
    ended counts
    stop
    mv log slow-log
}

# Three programs read some memory page by page, up, down, and from both halves in turn, and then
# other memory for other windows. Each waits until all of it is marked, and tells how many page
# faults it took.
cat >walker.pl <<'END'
my ($way, $pages, $rate, @windows) = @ARGV;
sub of { open my $file, "<", "/proc/self/$_[0]" or die; local $/; my $text = <$file>; $text =~ $_[1] or die; $1 }
sub tell_in { open my $file, ">", $_[0] or die; print $file $_[1]; close $file }
my %memory;
$memory{$_} = "x" x ($pages * 4096) for @windows;
tell_in("$way-allocated", "$$\n");
until (-e "watched") { select undef, undef, undef, 0.1 }
my $passes = of("sched", qr/numa_scan_seq\D*(\d+)/);
1 while of("sched", qr/numa_scan_seq\D*(\d+)/) < $passes + 1;
tell_in("$way-marked", 1);
for my $windows (@windows) {
    until (-e "$windows-from") { select undef, undef, undef, 0.1 }
    # Without windows it does not matter how soon pages move.
    my $pause = 1 / ($windows eq "none" ? 300 : $rate);
    my $before = of("stat", qr/^(?:\S+ ){9}(\d+)/);
    for my $i (0 .. $pages - 1) {
        my $page = $way eq "up" ? $i : $way eq "down" ? $pages - 1 - $i : $i % 2 ? ($pages + $i - 1) / 2 : $i / 2;
        my $byte = substr $memory{$windows}, $page * 4096, 1;
        select undef, undef, undef, $pause;
    }
    tell_in("$windows-$way", of("stat", qr/^(?:\S+ ){9}(\d+)/) - $before);
}
sleep 600;
END
# walk_config WINDOWS
walk_config() {
    speculative="enabled = true
windows = \"$1\""
    [ $1 = none ] && speculative="enabled = false"
    config latency '[rule.latency]' 'hot_threshold_ms = 60000' '[rule.speculative]' "$speculative" '[[scope]]' 'command = "perl"'
}
walks() {
    for way in up down both; do
        on-slow-node --widen-when "test -e $way-allocated" perl walker.pl $way $PAGES $PAGES_A_SECOND $WINDOWS &
    done
    until_there up-allocated down-allocated both-allocated
    for way in up down both; do until_widened $(cat $way-allocated); done
    walk_config none
    begun
    touch watched
    until_there up-marked down-marked both-marked
    for windows in $WINDOWS; do
        [ $windows = none ] || { walk_config $windows && reloaded; }
        $THERMOCLINE status --json >$windows-status && mv $windows-status $windows-from
        until_there $windows-up $windows-down $windows-both
        # The last moves end, and status tells of them.
        sleep 1.5
        $THERMOCLINE status --json >$windows-to
        for way in up down both; do echo "${windows}_$way=$(cat $windows-$way)"; done
    done
    kill $(cat *-allocated)
    ended walks
}

# until_hot NAME SECONDS: the hot pages come up, and so long a time after.
until_hot() {
    begun
    deadline=$(($(date +%s) + 60))
    until [ "$(judge | field hot_in_dram | awk '{ print int($1 * 100) }')" -ge 90 ] || [ "$(date +%s)" -ge $deadline ]; do sleep 1; done
    sleep $2
    ended $1
    judge >$1-judged
    stop
}
hot_pages() {
    # The hot 10 MB take some seconds to come up.
    limit=4
    start --mib 48 --access-share 0.98 --rate $RATE
    config latency
    until_hot latency-of-hot 0
    misses start >/dev/null
    misses sample asked || fail "the plugin does not let its reader choose a period"
    start --mib 48 --access-share 0.98 --rate $RATE
    config inter-arrival '[source.hintfault]' 'enabled = false' '[source.hwsample]' 'enabled = true' 'sampler = "lab-rings"' \
        'period = 20' 'period_min = 10' 'period_max = 40' '[reverse]' 'cpu_permille = 200' 'round_ms = 1000' \
        '[daemon]' 'report_ms = 250'
    # The periods that follow, each seen in a line.
    until_hot inter-arrival 3
}
counts
walks
hot_pages
