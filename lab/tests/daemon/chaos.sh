# A program in scope, one that is excluded, and a daemon, to which happens what $EVENTS say, for
# $SECONDS_LONG seconds.
cd "$LAB_SHARE"
modprobe fuse || fail "this kernel has no FUSE"
unusual_settings
echo 0 >/proc/sys/kernel/numa_balancing
original=$(settings)
groups=/sys/fs/cgroup
state=/run/thermocline
mkdir $state
# A state folder on a small disk of its own, so that it can be filled.
mount -t tmpfs -o size=1m,mode=700 none $state
out=/dev/shm/daemon
cat >config.toml <<END
[[scope]]
cgroup = "/managed"
[[scope]]
cgroup = "/left-alone"
exclude = true
[demotion]
mode = "off"
[kernel]
scan_period_min_ms = 1000
scan_period_max_ms = 2000
[manager.damon]
stop_damon_stat = true
END
now() { read -r seconds _ </proc/uptime; echo ${seconds%.*}; }
# Base pages of a process's own on the slow node: those of libraries are others' too.
low() { awk '!/ file=/ { for (i = 1; i <= NF; i++) if ($i ~ /^N2=/) s += substr($i, 4) } END { print s + 0 }' /proc/$1/numa_maps; }
# A program of that many MiB in this cgroup, whose memory is on the slow node; it does something
# else first.
program() {
    mkdir -p $groups/$1
    echo 2 >$groups/$1/cpuset.mems
    rm -f report-$1
    sh -c "echo \$\$ >$groups/$1/cgroup.procs; $3 exec $HOTCOLD --mib $2 --no-thp --report report-$1" >log-$1 2>&1 &
    pid=$!
    tries=0
    until [ -e report-$1 ]; do
        sleep 0.2
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "$1 does not start: $(cat log-$1)"
    done
    echo 0-2 >$groups/$1/cpuset.mems
}
end() {
    kill -CONT $1
    kill -TERM $1
    wait $1 || fail "$2 lost data: $(tail -n 3 log-$2)"
    until rmdir $groups/$2 2>/dev/null; do sleep 0.1; done
}
promoted() { tail -n 2 $out | sed -n 's/.*"pgpromote_candidate":[0-9]*,"pgpromote_success":\([0-9]*\),.*/\1/p' | tail -n 1; }
start() {
    # Else what the last one has said would be taken for the next one's.
    rm -f $out
    $THERMOCLINE run --config config.toml --json >$out 2>>errors &
    daemon=$!
    tries=0
    until [ -s $out ]; do
        sleep 0.2
        tries=$((tries + 1))
        kill -0 $daemon || fail "the daemon did not start: $(tail -n 5 errors)"
        [ $tries -lt 300 ] || fail "the daemon says nothing: $(tail -n 5 errors)"
    done
}
# Runs a verb of the command; how it ends is its own matter, how long it takes is ours. A switch is
# answered when one manager has ended and another works, so that it is counted by itself.
slowest=0
slowest_switch=0
verb() {
    began=$(now)
    timeout -s KILL 60 $THERMOCLINE "$@" >verb 2>&1
    code=$?
    [ $code != 137 ] || fail "$* hangs"
    [ $code -lt 3 ] || fail "$* ended with $code: $(tail -n 3 verb)"
    took=$(($(now) - began))
    case $1 in
        switch) [ $took -le $slowest_switch ] || slowest_switch=$took ;;
        *) if [ $took -gt $slowest ]; then slowest=$took; echo "$* took $took s"; fi ;;
    esac
}
# Pages that the excluded program has lost since it started, summed over its lives.
lost=0
count_lost() {
    left=$(low $excluded)
    if [ $left -lt $excluded_had ]; then lost=$((lost + excluded_had - left)); echo "the excluded program has $left of $excluded_had pages on its node"; fi
    excluded_had=$left
}
new_managed() { program managed 48 "$1"; managed=$pid; }
new_excluded() { program left-alone 24 ""; excluded=$pid; excluded_had=$(low $excluded); }
done_so_far=0
total_promoted=0
count_promoted() { total_promoted=$((total_promoted + $(promoted) + 0)); }

exec_() { end $managed managed; new_managed "sleep 2;"; }
restart() { count_lost; end $excluded left-alone; new_excluded; }
comes_and_goes() {
    for i in 1 2 3 4 5 6 7 8; do
        mkdir -p $groups/managed/$i
        sh -c "echo \$\$ >$groups/managed/$i/cgroup.procs; exec head -c 1000000 /dev/zero" >/dev/null
        rmdir $groups/managed/$i
    done
}
# Somebody sets a setting, to a value that is nobody else's, and sets it back as he found it. (With
# a rate limit of his own the kernel would promote, whoever owns the pages.)
setting() {
    file=$balance/scan_period_max_ms
    found=$(cat $file)
    echo 2345 >$file
    sleep 2
    echo "$found" >$file
    sleep 2
}
asked() {
    verb status
    verb status --json
    verb explain $managed $(sed -n 's/.*"base":\([0-9]*\).*/\1/p' report-managed)
    verb explain $excluded 0x1000
    verb doctor --config config.toml
    verb run --config config.toml --for 1s
    verb restore
}
garbage() {
    perl -e 'use Socket; for (1 .. 20) { socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die; connect($s, sockaddr_un($ARGV[0])) or next; syswrite($s, join("", map { chr(int(rand(256))) } 1 .. 1 + rand(5000))); shutdown($s, 1) if rand() < 0.5 }' $state/thermocline.sock 2>/dev/null
    verb status
}
idle_client() {
    perl -e 'use Socket; my @all; for (1 .. 100) { socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die; connect($s, sockaddr_un($ARGV[0])) or last; push @all, $s } sleep 5' $state/thermocline.sock 2>/dev/null &
    idle=$!
    verb status
    wait $idle
}
disk_full() {
    dd if=/dev/zero of=$state/full bs=4k 2>/dev/null
    setting
    verb status
    rm $state/full
}
stopped() { kill -STOP $daemon; sleep 3; kill -CONT $daemon; }
frozen() { kill -STOP $managed; sleep 3; kill -CONT $managed; }
# A process in scope hangs for a while, on a file system that never answers.
hung() {
    rm -f report-hung
    mkdir -p mounted
    $HANG mounted 8 report-hung &
    server=$!
    until [ -s report-hung ]; do sleep 0.2; kill -0 $server || fail "no process that hangs"; done
    hung=$(cat report-hung)
    echo $hung >$groups/managed/cgroup.procs
    kill -USR1 $hung
    verb status
    verb explain $hung 0x1000
    verb status
    kill -TERM $server
    wait $server || fail "the file system did not end well"
}
# Another manager takes over for a while.
switched() {
    # The engine of the next manager counts from zero.
    count_promoted
    verb switch damon
    verb status
    sleep 3
    verb switch thermocline
}
killed() {
    count_promoted
    kill -KILL $daemon
    wait $daemon 2>/dev/null
    if [ $((done_so_far % 2)) = 0 ]; then
        verb restore
        unchanged "after a kill and restore"
    fi
    start
}
terminated() {
    count_promoted
    kill -TERM $daemon
    wait $daemon || fail "the daemon ended with $?: $(tail -n 5 errors)"
    unchanged "after SIGTERM"
    start
}
chaos() {
    until=$(($(now) + SECONDS_LONG))
    for event in $EVENTS; do
        [ $(now) -lt $until ] || break
        case $event in exec) exec_ ;; *) $event ;; esac
        done_so_far=$((done_so_far + 1))
        kill -0 $daemon || fail "the daemon ended at $event: $(tail -n 5 errors)"
        count_lost
        [ $((done_so_far % 5)) != 0 ] || look_at_tables
        [ $((done_so_far % 10)) != 0 ] || echo "at $(now) s: $done_so_far events, the last $event" | tee -a kills
        if [ -z "$early" ] && [ $((until - $(now))) -lt $((SECONDS_LONG * 4 / 5)) ]; then resident; early=$beyond; fi
    done
}
# The daemon's memory, KiB, without its tables at their largest: they say how large they are and
# have bounds, and what they give back is kept for the next ones.
largest=0
look_at_tables() {
    $THERMOCLINE status --json >status.json || fail "status: $(cat status.json)"
    tables=$(perl -0777 -ne '$s += $1 while /"name": *"\w+_bytes",\s*"node": *null,\s*"value": *(\d+)/g; print int($s / 1024)' status.json)
    [ $tables -le $largest ] || largest=$tables
}
resident() {
    look_at_tables
    anon=$(sed -n 's/^RssAnon:[^0-9]*\([0-9]*\).*/\1/p' /proc/$daemon/status)
    echo "$anon KiB, $largest KiB of them tables" >>memory
    beyond=$((anon - largest))
}

early=
new_managed ""
start
new_excluded
chaos
echo early_kib=$early
resident
echo late_kib=$beyond
count_promoted
kill -TERM $daemon
wait $daemon
echo daemon_status=$?
unchanged "after all that"
tail -n 1 $out >last
cat memory
echo events=$done_so_far
echo slowest_s=$slowest
echo slowest_switch_s=$slowest_switch
echo excluded_lost=$lost
echo promoted=$total_promoted
end $managed managed
end $excluded left-alone
