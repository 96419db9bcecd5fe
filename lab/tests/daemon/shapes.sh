# What the doctor says of a machine's shape is what comes of it: with hotcold on the last node.
cd "$LAB_SHARE"
# By the daemon's own account.
promoted() { tail -n 2 daemon 2>/dev/null | sed -n 's/.*"pgpromote_candidate":[0-9]*,"pgpromote_success":\([0-9]*\),.*/\1/p' | tail -n 1; }
cat >config.toml <<END2
[kernel]
scan_size_mb = 64
scan_period_min_ms = 500
scan_period_max_ms = 1000
[[scope]]
command = "hotcold"
[[scope]]
cgroup = "/no/such.slice"
END2
echo tiers=$(ls -d /sys/devices/virtual/memory_tiering/memory_tier* | wc -l)
# The machine, and nothing of a configuration.
$THERMOCLINE doctor >doctor
echo doctor=$?
$THERMOCLINE doctor --config config.toml >doctor-scopes
echo doctor_scopes=$?
# Balancing among nodes, as stock kernels start with, would move pages before the daemon has begun.
# To the doctor it would be somebody's choice, which is another question.
sysctl -qw kernel.numa_balancing=0
absent=$(sed -n 's/.*\(scope\[1\]\.cgroup.*\) \[scope\.no_cgroup\].*/\1/p' doctor-scopes | head -n 1)
on-slow-node --widen-when 'test -e report' $HOTCOLD --mib 32 --no-thp --report report >log 2>errors &
loader=$!
until [ -e report ]; do sleep 0.2; done
pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/' report)
# Pages that are told of before the cpuset allows the others would be left alone for a minute.
until [ "$(cat /sys/fs/cgroup$(sed s/0::// /proc/$pid/cgroup)/cpuset.mems.effective)" = "0-$LAST" ]; do sleep 0.1; done
$THERMOCLINE run --config config.toml --json >daemon 2>daemon-errors &
daemon=$!
tries=0
until [ "$(promoted)" -gt 0 ] 2>/dev/null || [ $tries -ge 240 ]; do
    kill -0 $daemon || break
    sleep 0.5
    tries=$((tries + 1))
done
$THERMOCLINE status >status
kill -TERM $daemon
wait $daemon
echo run=$?
echo promoted=$(promoted)
echo "absent: $absent"
[ -n "$absent" ] && grep -qF "$absent" daemon-errors && grep -qF "$absent" status && echo absent=1
kill -TERM $pid
wait $loader || { echo "hotcold lost data"; exit 1; }

# A blocker of the doctor's is what run refuses for, in its words: these machines have nothing that
# samples.
printf '[source.hwsample]\nenabled = true\n' >samples.toml
$THERMOCLINE doctor --config samples.toml --json >blocked
echo blocked=$?
$THERMOCLINE run --config samples.toml --for 1s >out 2>refused
echo refused=$?
