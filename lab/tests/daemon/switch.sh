# Managers take over from each other in one daemon: each finds the settings as they were before all,
# and the last one leaves them so.
cd "$LAB_SHARE"
damon=/sys/kernel/mm/damon/admin/kdamonds
stat=/sys/module/damon_stat/parameters/enabled
limit=/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps
all() { settings; echo "kdamonds $(cat $damon/nr_kdamonds)"; [ ! -e $stat ] || echo "stat $(cat $stat)"; }
unusual_settings
original=$(all)
cat >config.toml <<END
[manager.numab2]
promote_rate_limit_mbps = 77
[manager.damon]
stop_damon_stat = true
END
$THERMOCLINE run --config config.toml --manager numab2 >daemon 2>daemon-errors &
daemon=$!
manages() { $THERMOCLINE status --json 2>/dev/null | grep -q "\"manager\": *\"$1\""; }
# $1 manages, by its own word.
settle() {
    tries=0
    until manages $1; do
        sleep 0.3
        tries=$((tries + 1))
        [ $tries -lt 100 ] || fail "$1 does not manage: $($THERMOCLINE status 2>&1 | head -n 3; tail -n 5 daemon-errors)"
        kill -0 $daemon || fail "the daemon ended: $(cat daemon-errors)"
    done
}
settle numab2
[ "$(cat $limit)" = 77 ] || fail "numab2: the limit is $(cat $limit)"

$THERMOCLINE switch damon >switched 2>&1 || fail "to damon: $(cat switched; cat daemon-errors)"
cat switched
settle damon
[ "$(cat $damon/nr_kdamonds)" -gt 0 ] || fail "damon: there is no kdamond"
[ "$(cat $limit)" = 4321 ] || fail "damon: numab2 has left its limit, $(cat $limit)"

$THERMOCLINE switch thermocline >switched 2>&1 || fail "to thermocline: $(cat switched; cat daemon-errors)"
settle thermocline
[ "$(cat $damon/nr_kdamonds) $(cat $limit)" = "0 0" ] || fail "thermocline: $(all)"
$THERMOCLINE switch thermocline >switched 2>&1 || fail "to itself: $(cat switched)"

# Somebody else has set up DAMON: who manages goes on, and no setting is put back meanwhile.
echo 1 >$damon/nr_kdamonds
put_back=$(grep -c 'settings put back' daemon-errors)
$THERMOCLINE switch damon >switched 2>&1 && fail "kdamonds of others were not respected"
grep -q 'manager thermocline goes on' switched || fail "the refusal: $(cat switched)"
grep -q 'somebody else has set up DAMON' switched || fail "the refusal: $(cat switched)"
cat switched
[ $(grep -c 'settings put back' daemon-errors) = $put_back ] || fail "settings were put back for a refusal"
[ "$(cat $damon/nr_kdamonds) $(cat $damon/0/state)" = "1 off" ] || fail "kdamonds of others were touched"
echo 0 >$damon/nr_kdamonds
settle thermocline
[ "$(cat $limit)" = 0 ] || fail "thermocline again: $(all)"

$THERMOCLINE switch observe >switched 2>&1 || fail "to observe: $(cat switched; cat daemon-errors)"
settle observe
$THERMOCLINE switch nobody >switched 2>&1 && fail "nobody manages"
kill -TERM $daemon
wait $daemon
echo daemon_status=$?
[ "$(all)" = "$original" ] || fail "at the end: $(all)"
$THERMOCLINE switch numab2 >switched 2>&1 && fail "switched without a daemon"
echo switches=$(grep -c 'takes over from' daemon-errors)

$THERMOCLINE observe --for 20s >daemon 2>daemon-errors &
daemon=$!
settle observe
$THERMOCLINE switch numab2 >switched 2>&1 && fail "observe moves pages"
cat switched
kill -TERM $daemon
wait $daemon
