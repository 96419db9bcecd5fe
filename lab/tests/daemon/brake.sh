# hotcold is promoted at a steady, low rate. A second program of its scope waits for memory, again
# and again, because of its own limit: what the scope waits rises while we move, so that the brake
# has to engage. Once the waiting ends soon, and once it goes on: then it was not the moves, and
# they have to go on.
cd "$LAB_SHARE"
unusual_settings
sysctl -qw kernel.numa_balancing=0
original=$(settings)
# The diary is shown where the guest ends too early.
diary() { read -r seconds _ </proc/uptime; echo "at $seconds s: $*" | tee -a kills; }
scope=/sys/fs/cgroup/braked
mkdir $scope
echo "+cpuset +memory" >$scope/cgroup.subtree_control
mkdir $scope/load $scope/stall
echo 2 >$scope/load/cpuset.mems
echo 8M >$scope/stall/memory.high
# A program that is made to wait whenever it takes more memory, as there is no swap.
stall() { sh -c "echo \$\$ >$scope/stall/cgroup.procs; exec perl -e 'push @kept, qq(x) x 65536 while 1'" & staller=$!; }
relieve() { kill -9 $staller; wait $staller 2>/dev/null; }
pressure() { sed 's/.*total=//' $scope/memory.pressure | tr '\n' ' '; }
# The scope's brake in the latest line: rate_bp, by, some_bp.
brake() { tail -n 1 daemon 2>/dev/null | sed 's/.*"brakes":\[\([^]]*\)\].*/\1/'; }
# until_brake SECONDS WHAT PATTERN: waits until the scope's brake matches.
until_brake() {
    waited=0
    until brake | grep -qE "$3"; do
        sleep 0.5
        waited=$((waited + 1))
        [ $waited -lt $(($1 * 2)) ] || fail "$2: $(brake); pressure $(pressure); $(cat daemon-errors)"
        kill -0 $daemon || fail "the daemon ended: $(cat daemon-errors)"
    done
    diary "$2: $(brake)"
}
# Pages that we have promoted; the kernel's own come later in the line.
promoted() { tail -n 1 daemon | grep -o '"pgpromote_success":[0-9]*' | head -n 1 | cut -d : -f 2; }

# Whether those who ask are told of the brake, while it is on. On a machine that is busy an answer
# may be late.
told=0
ask() {
    for try in 1 2 3; do
        $THERMOCLINE status >status-text && $THERMOCLINE explain $pid $base >explained &&
            grep -q 'by memory pressure, since ' status-text && grep -q 'by memory pressure, since ' explained && told=1 && return
        brake | grep -q '"by":"pressure"' || return
    done
}

cat >config.toml <<END
[admission]
rate_limit_mbps = 1
[kernel]
scan_period_min_ms = 1000
scan_period_max_ms = 2000
[[scope]]
name = "braked"
cgroup = "/braked"
END
timeout 60 $THERMOCLINE doctor --config config.toml >doctored || [ $? = 1 ] || fail "doctor: $(cat doctored)"
grep -q 'memory pressure is not known' doctored && fail "doctor: $(cat doctored)"
echo 0 >$scope/cgroup.pressure
timeout 60 $THERMOCLINE doctor --config config.toml >doctored || [ $? = 1 ] || fail "doctor: $(cat doctored)"
grep -q 'braked by ping-pong alone.*cgroup.pressure' doctored || fail "nothing is said of pressure that is off: $(cat doctored)"
echo 1 >$scope/cgroup.pressure

sh -c "echo \$\$ >$scope/load/cgroup.procs; exec $HOTCOLD --mib $MIB --hot-share 0.6 --no-thp --report report" >log 2>errors &
loader=$!
until [ -e report ]; do sleep 0.2; done
pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/' report)
base=$(printf 0x%x "$(sed 's/.*"base":\([0-9]*\).*/\1/' report)")
echo 0-2 >$scope/load/cpuset.mems
$THERMOCLINE run --config config.toml --json >daemon 2>daemon-errors &
daemon=$!
until_brake 60 "free" '"rate_bp":10000'
waited=0
until [ "$(promoted)" -gt 2000 ]; do
    sleep 0.5
    waited=$((waited + 1))
    [ $waited -lt 120 ] || fail "nothing is promoted: $(tail -n 1 daemon)"
done
diary "$(promoted) pages promoted; $(brake)"

stall
until_brake 60 "the scope is braked" '"by":"pressure"'
ask
relieve
until_brake 120 "free again after the pressure" '"rate_bp":10000'
before=$(promoted)

stall
until_brake 60 "the scope is stopped" '"rate_bp":0,'
stopped=$(promoted)
sleep 3
echo moved_while_stopped=$(($(promoted) - stopped))
ask
until_brake 120 "free again under pressure" '"rate_bp":10000'
echo some_bp="$(brake | sed 's/.*"some_bp":\([0-9]*\).*/\1/')"
resumed=$(promoted)
waited=0
until [ "$(promoted)" -gt $((resumed + 256)) ] || [ $waited = 120 ]; do sleep 0.5; waited=$((waited + 1)); done
echo moved_before=$before
echo moved_after=$(($(promoted) - resumed))
echo told=$told
relieve
kill -TERM $daemon
wait $daemon
echo daemon_status=$?
tail -n 1 daemon >last
cat daemon-errors
unchanged "after the run"
kill -TERM $pid
wait $loader || fail "hotcold lost data"
