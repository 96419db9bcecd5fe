# Beside $PROCESSES processes, in $CGROUPS cgroups, of which every command is asked for and one has
# a floor, a program on the slow node is promoted.
cd "$LAB_SHARE"
low() { awk '{ for (i = 1; i <= NF; i++) if ($i ~ /^N2=/) s += substr($i, 4) } END { print s + 0 }' /proc/$1/numa_maps; }
took() {
    began=$(date +%s)
    timeout -s KILL 60 "$@" >said 2>&1 || fail "$*: $(cat said)"
    echo $(($(date +%s) - began))
}
unusual_settings
original=$(settings)
groups=/sys/fs/cgroup
sysctl -qw kernel.pid_max=4194304 kernel.threads-max=200000
echo max >$groups/cgroup.max.descendants
mkdir $groups/crowd $groups/kept
echo +memory >$groups/crowd/cgroup.subtree_control
cat >crowd <<'END'
my ($processes, $cgroups) = @ARGV;
for my $number (1 .. $cgroups) { mkdir "/sys/fs/cgroup/crowd/$number" or die "mkdir: $!" }
$SIG{TERM} = 'DEFAULT';
for my $number (1 .. $processes) {
    my $pid = fork;
    defined $pid or die "fork: $!";
    # Nothing of ours but to wait.
    if (!$pid) { sleep 100000 while 1 }
    next if $number > $cgroups;
    open my $procs, ">", "/sys/fs/cgroup/crowd/$number/cgroup.procs" or die "cgroup.procs: $!";
    print $procs "$pid\n";
    close $procs or die "cgroup.procs: $!";
}
open my $ready, ">", "ready" or die "ready: $!";
close $ready;
sleep 100000 while 1;
END
setsid perl crowd $PROCESSES $CGROUPS &
crowd=$!
for try in $(seq 900); do [ ! -e ready ] || break; kill -0 $crowd || fail "no crowd"; sleep 1; done
[ -e ready ] || fail "no crowd in time"
echo processes=$(ls /proc | grep -c '^[0-9]')
cat >config.toml <<END
[[scope]]
cgroup = "/kept"
top_tier_floor_mib = 8
[[scope]]
command = "report"
[kernel]
scan_period_min_ms = 1000
scan_period_max_ms = 2000
END
$THERMOCLINE run --config config.toml --json >out 2>errors &
daemon=$!
for try in $(seq 300); do [ ! -s out ] || break; kill -0 $daemon || fail "no daemon: $(cat errors)"; sleep 0.2; done
$HOTCOLD --mib $MIB --no-thp --report report >log 2>&1 &
hotcold=$!
until [ -s report ]; do sleep 0.2; kill -0 $hotcold || fail "hotcold: $(cat log)"; done
migratepages $hotcold 0,1 2
had=$(low $hotcold)
late=0
for try in $(seq 120); do
    [ $(($(low $hotcold) * 2)) -gt $had ] || break
    kill -0 $daemon || fail "the daemon has ended: $(cat errors)"
    $THERMOCLINE status >said || fail "status: $(cat said)"
    ! grep -q "has not turned" said || late=$((late + 1))
    sleep 1
done
echo had=$had
echo left=$(low $hotcold)
echo late=$late
echo status_s=$(took $THERMOCLINE status)
echo doctor_s=$(took sh -c "$THERMOCLINE doctor || [ \$? = 1 ]")
began=$(date +%s)
kill -TERM $daemon
wait $daemon || fail "the daemon did not end well: $(cat errors)"
echo end_s=$(($(date +%s) - began))
unchanged "after the run"
cat errors
tail -n 1 out >last
