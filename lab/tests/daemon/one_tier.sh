# A machine with one node: nothing can be moved, and how much of its memory is hot can be told.
cd "$LAB_SHARE"
unusual_settings
original=$(all)
# The emulator keeps translations for longer than a processor, and what has one sets no accessed
# bit. A second program on the same processor makes the kernel switch address spaces every few ms,
# which ends them.
taskset -c 0 $HOTCOLD --mib 1 --rate 200000 --report other >other-log 2>&1 &
other=$!
taskset -c 0 $HOTCOLD --mib "$MIB" --hot-layout $LAYOUT --rate "$RATE" --no-thp --report report >log 2>errors &
loader=$!
until [ -e report ]; do sleep 0.2; done
timeout 60 $THERMOCLINE run --for 1s >out 2>refused
echo run_status=$?
grep -q 'thermocline record' refused || fail "what can be done here: $(cat refused)"
printf '[manager]\nname = "observe"\n' >service.toml
timeout 60 $THERMOCLINE run --config service.toml --for 1s >out 2>refused && fail "a service that observes has nothing to do here"
same "after what was refused"
[ ! -e $stat ] || leave='--set source.damon.stop_damon_stat=true'
$THERMOCLINE record --for "$SECONDS_ON"s -o trace $leave >out 2>recorded
echo record_status=$?
same "after the recording"
kill -INT $loader $other; wait $other; wait $loader || fail "hotcold: $(cat errors)"
$THERMOCLINE plan trace --sizes 10%,20%,25%,30%,50% >plan 2>plan-errors || fail "plan: $(cat plan-errors)"
$THERMOCLINE plan trace --sizes 10%,20%,25%,30%,50% --json >plan.json
cat plan
