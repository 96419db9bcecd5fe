# hotcold twice, larger than the DRAM that it finds: with pages that are all alike, and with hot
# ones among cold ones. Beside the first a daemon runs until it has found that moves gain nothing,
# and for $QUIET_SECONDS more; beside the second until nine in ten hot pages are in DRAM.
cd "$LAB_SHARE"
fail() { echo "$1" >&2; cat daemon-errors >&2; exit 1; }
free_mib() { awk '/MemFree/ { s += $4 } END { print int(s / 1024) }' /sys/devices/system/node/node$1/meminfo; }
figure() { tail -n 1 daemon | grep -o "\"$1\":[0-9]*" | sed -n '1s/.*://p'; }
judge() { $HOTCOLD judge --report report --dram 0-1 | sed 's/.*"hot_in_dram":\([0-9.]*\).*/\1/' | awk '{ print int($1 * 100) }'; }
printf '[payoff]\nenabled = true\nloan_s = 20\nwatch_s = 10\n' >law.toml

sysctl -qw kernel.numa_balancing=0
sync
echo 3 >/proc/sys/vm/drop_caches
fill-node 0 $((FREE_MIB - $(free_mib 1))) fill

begin() { # What hotcold does
    rm -f report
    $HOTCOLD --mib "$MIB" --no-thp --report report $1 >log 2>errors &
    loader=$!
    until [ -e report ]; do sleep 0.2; done
    pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/' report)
    $THERMOCLINE run --json --config law.toml >daemon 2>daemon-errors &
    daemon=$!
    from=$(date +%s)
}
# Waits until a condition holds, for a time.
wait_until() { # seconds, what, condition
    until eval "$3"; do
        kill -0 $daemon 2>/dev/null || fail "the daemon has ended"
        [ $(($(date +%s) - from)) -lt "$1" ] || fail "$2: not within $1 s: $(tail -n 1 daemon)"
        sleep 1
    done
    echo "$2: after $(($(date +%s) - from)) s"
}
end() {
    kill -TERM $daemon
    wait $daemon || fail "exit status $?"
    kill -TERM $pid
    wait $loader || fail "hotcold lost data"
}

begin "--hot-share 0.5 --access-share 0.5"
wait_until 150 "pages that are all alike are refused" '[ "$(figure not_worth)" -gt 1000 ]'
before=$(figure pgpromote_success)
sleep "$QUIET_SECONDS"
echo moved_alike=$(($(figure pgpromote_success) - before))
echo refused_alike=$(figure not_worth)
cp daemon daemon-alike
end

begin ""
wait_until 200 "hot pages are promoted" '[ "$(judge)" -ge 90 ]'
echo moved_hot=$(figure pgpromote_success)
cp daemon daemon-hot
end
