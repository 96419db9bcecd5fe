# A process hangs with its mmap lock held, on a file system that never answers, beside a program
# whose memory is on the slow node: while the daemon works, before it starts where it goes by
# commands, and while DAMON watches it. Then the daemon's own loop is held.
cd "$LAB_SHARE"
modprobe fuse || fail "this kernel has no FUSE"
# Base pages of a process on the slow node.
low() { awk '{ for (i = 1; i <= NF; i++) if ($i ~ /^N2=/) s += substr($i, 4) } END { print s + 0 }' /proc/$1/numa_maps; }
field() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" $2; }
# Seconds that a command takes; it is killed where it takes too long.
took() {
    began=$(date +%s)
    timeout -s KILL 60 "$@" >said 2>&1
    code=$?
    [ $code != 137 ] || fail "$* hangs"
    echo $(($(date +%s) - began))
}
# A process that will hang, with its memory on the slow node.
begin_to_hang() {
    mkdir -p mounted
    rm -f report-hung
    $HANG mounted $HUNG_MIB report-hung &
    server=$!
    until [ -s report-hung ]; do sleep 0.2; kill -0 $server || fail "no process that hangs"; done
    hung=$(cat report-hung)
    migratepages $hung 0,1 2
}
hang() {
    kill -USR1 $hung
    for try in $(seq 30); do
        timeout -s KILL 2 cat /proc/$hung/cmdline >/dev/null || return 0
        sleep 1
    done
    fail "it does not hang"
}
# The file system ends, and with it the process.
end_hang() {
    kill -TERM $server
    wait $server || fail "the file system did not end well"
}
begin_hotcold() {
    rm -f report
    $HOTCOLD --mib $MIB --no-thp --report report >log 2>&1 &
    hotcold=$!
    until [ -s report ]; do sleep 0.2; kill -0 $hotcold || fail "hotcold: $(cat log)"; done
    migratepages $hotcold 0,1 2
    had=$(low $hotcold)
}
end_hotcold() {
    kill -TERM $hotcold
    wait $hotcold || fail "hotcold lost data"
}
until_promoted() {
    for try in $(seq 120); do
        [ $(($(low $hotcold) * 2)) -gt $had ] || return 0
        kill -0 $daemon || fail "the daemon has ended: $(cat errors)"
        sleep 1
    done
    fail "$1: $(low $hotcold) of $had pages are still on the slow node: $(tail -n 1 out) $(cat errors)"
}
daemon() {
    rm -f out
    $THERMOCLINE run --config $1 --json >out 2>errors &
    daemon=$!
    for try in $(seq 300); do
        [ ! -s out ] || return 0
        kill -0 $daemon || fail "the daemon did not start: $(cat errors)"
        sleep 0.2
    done
    fail "the daemon says nothing: $(cat errors)"
}
# Ends the daemon, which must not take long; tells its status and how many seconds it took.
end_daemon() {
    began=$(date +%s)
    kill -TERM $daemon
    # Its threads that the kernel keeps in a call outlive it.
    for try in $(seq 300); do
        case "$(sed -n 's/^State:\t\(.\).*/\1/p' /proc/$daemon/status 2>/dev/null)" in Z | "") break ;; esac
        sleep 0.1
    done
    seconds=$(($(date +%s) - began))
    echo ${1}_end_s=$seconds
}
common='[demotion]
mode = "off"
[kernel]
scan_period_min_ms = 1000
scan_period_max_ms = 2000
'
unusual_settings
original=$(all)
but_damon=$(settings)

echo "$common" >everybody.toml
begin_to_hang
daemon everybody.toml
hung_had=$(low $hung)
for try in $(seq 60); do [ $(low $hung) -eq $hung_had ] || break; sleep 0.5; done
hang
begin_hotcold
until_promoted "beside a process that hangs"
echo status_s=$(took $THERMOCLINE status)
base=$(field base report)
echo explain_s=$(took $THERMOCLINE explain $hotcold $(printf 0x%x $base))
grep -q . said || fail "nothing was explained"
echo explain_hung_s=$(took $THERMOCLINE explain $hung $(printf 0x%x $base))
echo doctor_s=$(took $THERMOCLINE doctor)
grep -q "process $hung (hang) is set aside" errors || fail "the process that hangs is not named: $(cat errors)"
end_daemon everybody
same "beside a process that hangs"
end_hotcold
tail -n 1 out >last-everybody

# It hangs already, and the daemon asks each process for its command.
cat >commands.toml <<END
$common
[[scope]]
command = "report"
END
daemon commands.toml
begin_hotcold
until_promoted "by commands"
echo commands_status_s=$(took $THERMOCLINE status)
end_daemon commands
same "by commands"
end_hotcold
end_hang

# DAMON watches it when it comes to hang.
begin_to_hang
cat >watched.toml <<END
$common
[[scope]]
pids = [$hung]
[source.damon]
enabled = true
addresses = "virtual"
stop_damon_stat = true
END
daemon watched.toml
for try in $(seq 100); do case "$(cat $damon/0/state)" in on) break ;; esac; sleep 0.2; done
kdamond=$(cat $damon/0/pid)
# The kdamond's state, and how often it has run.
turns() { sed -n 's/^\(State\|voluntary_ctxt_switches\):[ \t]*//p' /proc/$kdamond/status | tr '\n' ' '; }
hang
# A kdamond that takes the mmap lock hangs too. Whether it takes it differs between kernels.
watched_hung=0
for try in $(seq 10); do
    before=$(turns)
    sleep 1
    case "$before" in D*) [ "$before" != "$(turns)" ] || watched_hung=1 ;; esac
    [ $watched_hung = 0 ] || break
done
echo watched_hung=$watched_hung
if [ $watched_hung = 1 ]; then
    for try in $(seq 100); do ! grep -q "keeps kdamond" errors || break; sleep 0.2; done
    grep -q "process $hung keeps kdamond 0 waiting" errors || fail "a kdamond that hangs is not told: $(cat errors)"
fi
echo watched_status_s=$(took $THERMOCLINE status)
end_daemon watched
cat errors
if [ $watched_hung = 1 ]; then
    [ "$(settings)" = "$but_damon" ] || fail "while DAMON hangs: $(settings)"
    grep -q "kdamond 0 hangs" errors || fail "the kdamond that could not be ended is not told"
else
    same "while DAMON watches a process that hangs"
fi
end_hang
wait $daemon
echo watched_exit=$?
echo restore_s=$(took $THERMOCLINE restore)
same "after the process that hung has ended"

# The loop is held by who traces its thread.
daemon everybody.toml
cat >hold <<'END'
my ($pid, $seize, $interrupt, $all) = (shift() + 0, 0x4206, 0x4207, 0x40000000);
syscall(101, $seize, $pid, 0, 0) == 0 && syscall(101, $interrupt, $pid, 0, 0) == 0 or die "ptrace: $!";
waitpid $pid, $all;
syswrite STDOUT, "held\n";
waitpid $pid, $all;
END
perl hold $daemon >held &
holder=$!
for try in $(seq 50); do [ ! -s held ] || break; sleep 0.1; done
[ -s held ] || fail "the loop is not held"
sleep 8
echo held_status_s=$(took $THERMOCLINE status)
cp said held-status
end_daemon held
same "while the loop is held"
wait $holder
wait $daemon
echo held_exit=$?
cat errors held-status
grep -q "did not end within" errors || fail "the daemon does not say that its loop is held: $(cat errors)"
grep -q "has not turned" held-status || fail "the status does not say that the loop is held: $(cat held-status)"
$THERMOCLINE restore >restored || fail "restore: $(cat restored)"
same "after the loop was held"
