# A program on the slow node is a pod. Nothing of it is managed until its pod asks for it; then its
# hot pages are promoted while dozens of other pods come and go, and when it asks to be left alone,
# no fault of it is reported any more.
cd "$LAB_SHARE"
unusual_settings
original=$(settings)
on-slow-node --widen-when 'test -e report' $HOTCOLD --mib "$MIB" --no-thp --report report >log 2>errors &
loader=$!
until [ -e report ]; do sleep 0.2; done
pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/' report)
group=$(sed -n 's/^0:://p' /proc/$pid/cgroup)
until [ "$(cat /sys/fs/cgroup$group/cpuset.mems.effective)" = 0-2 ]; do sleep 0.1; done
burstable=/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice
mkdir -p $burstable
# As the kubelet has it.
for above in /sys/fs/cgroup /sys/fs/cgroup/kubepods.slice $burstable; do echo +memory >$above/cgroup.subtree_control; done
mkdir -p $burstable/kubepods-burstable-poda_1.slice/cri.scope
echo $pid >$burstable/kubepods-burstable-poda_1.slice/cri.scope/cgroup.procs

# pod NAME UID ANNOTATION VALUE, as the API server has it.
pod() {
    printf '{"kind":"Pod","metadata":{"name":"%s","namespace":"ns","uid":"%s","annotations":{"thermocline.dev/%s":"%s"}},' "$1" "$2" "$3" "$4"
    printf '"status":{"phase":"Running","qosClass":"Burstable"}}\n'
}
file=/run/pods.json
publish() { cat >$file.new && mv $file.new $file; }
faults() { $THERMOCLINE status --json | sed -n 's/^ *"delivered": *\([0-9][0-9]*\).*/\1/p' | head -n 1; }
moved() { $THERMOCLINE status --json | sed -n 's/^ *"issued": *\([0-9][0-9]*\).*/\1/p' | head -n 1; }
# until_so SECONDS WHAT COMMAND...
until_so() {
    limit=$1 what=$2
    shift 2
    tries=0
    until "$@"; do
        kill -0 $daemon || fail "the daemon ended: $(cat daemon-errors)"
        sleep 0.5
        tries=$((tries + 1))
        [ $tries -lt $((2 * limit)) ] || fail "$what: $(tail -n 5 daemon-errors)"
    done
}

cat >config.toml <<END
[pods]
file = "$file"
look_ms = 1000
[demotion]
mode = "on"
[kernel]
scan_period_min_ms = 1000
scan_period_max_ms = 2000
END
$THERMOCLINE run --config config.toml --json >daemon 2>daemon-errors &
daemon=$!
until_so 30 "no daemon" sh -c "$THERMOCLINE status --json >/dev/null 2>&1"
sleep 5
echo before_the_file=$(faults)
$THERMOCLINE status | grep -q pods.unreadable || fail "a file that is not there is no finding: $($THERMOCLINE status)"

pod a a-1 manage true | publish
until_so 20 "the pod is no scope" grep -q '^pods: .*new: ns/a' daemon-errors
managed() { [ "$(faults)" -gt 200 ]; }
until_so 60 "no fault of a managed pod" managed
promoted() { [ "$(moved)" -gt 1000 ]; }
until_so 90 "nothing was moved" promoted

# Others come and go, some before their cgroup is there, some with annotations that are none.
for round in $(seq 20); do
    {
        pod a a-1 manage true
        for n in $(seq 40); do
            folder=$burstable/kubepods-burstable-podother_$n.slice
            if [ $(((n + round) % 3)) = 0 ]; then mkdir -p $folder; else rmdir $folder 2>/dev/null; fi
            [ $(((n + round) % 5)) = 0 ] || pod other-$n other-$n top-tier-cap "$((n % 7))Gi"
        done
        pod wrong wrong-1 top-tier-floor lots
    } | publish
    [ $((round % 4)) != 0 ] || { printf '{"items":[' >$file; sleep 1; }
    sleep 0.7
    kill -0 $daemon || fail "the daemon ended: $(cat daemon-errors)"
done
grep '^pods: ' daemon-errors | grep -q 'gone: .*ns/a\( \|$\)' && fail "the pod that stayed has gone: $(cat daemon-errors)"

pod a a-1 exclude true | publish
until_so 20 "the pod is still a scope" grep -q '^pods: .*gone: ns/a' daemon-errors
# Pages that are in DRAM by now have no hint faults anyway; those of the slow node still do.
sleep 2
from=$(faults)
sleep 3
echo left_alone=$(($(faults) - from))
kill -TERM $daemon
wait $daemon
echo daemon_status=$?
unchanged "at the end"
echo changes=$(grep -c '^pods: ' daemon-errors)
echo refused=$(grep -c 'the scopes stay as they are' daemon-errors)
kill -TERM $pid
wait $loader || fail "hotcold lost data"
