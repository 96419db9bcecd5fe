# How the daemon treats its users: bad files, a second daemon, questions, SIGTERM, observe, doctor.
cd "$LAB_SHARE"
unusual_settings
original=$(settings)

# What is no configuration changes nothing and says what to do.
head -c 1024 /dev/urandom >random.toml
printf '[kernel]\nscan_size_mb = 3' >good-part
printf '[kernel]\nscan_size_mb = ' >truncated.toml
{ yes 'scan_size_mb = 1' | head -c 1048576; } >large.toml
printf '[kernel]\nscan_sise_mb = 3\n' >unknown.toml
printf '[kernel]\nscan_size_mb = 0\n' >range.toml
for name in random truncated large unknown range; do
    timeout 20 $THERMOCLINE run --config $name.toml --for 5s >out 2>errors
    status=$?
    [ $status = 2 ] || fail "$name: exit status $status: $(head -c 500 errors)"
    grep -q "$name.toml" errors || fail "$name: the file is not named: $(head -c 500 errors)"
    unchanged "$name"
    echo "$name: $(head -c 400 errors | tr '\n' ' ' | tr -cd '[:print:]')"
done
grep -q 'scan_size_mb' out errors || fail "range: the key is not named"

$THERMOCLINE doctor >doctored
echo "doctor=$?"

# In mode 1 the kernel would move pages itself.
echo 0 >/proc/sys/kernel/numa_balancing
original=$(settings)
on-slow-node --widen-when 'test -e report' $HOTCOLD --mib 96 --no-thp --report report >log 2>errors &
loader=$!
until [ -e report ]; do sleep 0.2; done
pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/' report)
$HOTCOLD judge --report report --dram 0-1 --save snapshot >judged-first
timeout 60 $THERMOCLINE observe --for 10s >observed 2>observed-errors || fail "observe: $(cat observed-errors)"
unchanged "after observe"
$HOTCOLD judge --report report --dram 0-1 --before snapshot >judged-observe
grep -q hotcold observed-errors || fail "observe does not tell of hotcold: $(cat observed-errors)"

$THERMOCLINE run >daemon 2>daemon-errors &
daemon=$!
sleep 4
timeout 20 $THERMOCLINE run --for 2s >second 2>second-errors
status=$?
echo "second daemon: exit status $status: $(tail -n 1 second-errors)"
[ $status != 0 ] && kill -0 $daemon || fail "the second daemon was not refused"
$THERMOCLINE restore >second 2>second-errors && fail "restore takes a running daemon's settings away"
echo "restore while running: $(tail -n 1 second-errors)"
grep -q "kill $daemon" second-errors || fail "the holder is not named: $(cat second-errors)"
[ "$(stat -c %a /run/thermocline.lock /run/thermocline/lock /run/thermocline/restore.log | sort -u)" = 600 ] || fail "others may open the locks"
# A daemon in a container with a /run of its own, and one that sees other numbers of processes.
unshare -m sh -c 'mount -t tmpfs none /run && exec timeout 20 $THERMOCLINE run --for 2s' >second 2>second-errors && fail "a second daemon runs in another mount namespace"
grep -q "kill $daemon" second-errors || fail "another mount namespace: $(cat second-errors)"
unshare -mpf --mount-proc timeout 20 $THERMOCLINE run --for 2s >second 2>second-errors && fail "a daemon runs in a pid namespace of its own"
grep -q -e --pid=host second-errors || fail "a pid namespace of its own: $(cat second-errors)"
moved=
for try in $(seq 60); do
    sleep 1
    $HOTCOLD judge --report report --dram 0-1 --save now >judged-run
    # Addresses of hot pages that are in DRAM now, from all over the program. The kernel has
    # promoted some of them itself, and of others the journal has forgotten what came first.
    promoted=$(perl -e 'local $/; sub all { open my $f, "<", shift or die; <$f> }
        my ($report, $now) = (all("report"), all("now"));
        my ($base) = $report =~ /"base":(\d+)/;
        my ($hot) = $report =~ /"hot_ranges":\[(.*?)\]\]/;
        my %hot; while ($hot =~ /(\d+),(\d+)/g) { $hot{$_} = 1 for $1 .. $2 - 1 }
        my ($runs) = $now =~ /"runs":\[(.*?)\]\]/; my ($page, @found) = 0;
        while ($runs =~ /(\d+|null),(\d+)/g) { for (1 .. $2) { push @found, $page if $1 ne "null" && $1 < 2 && $hot{$page}; $page++ } }
        printf "0x%x\n", $base + $found[$_ * @found / 16] * 4096 for 0 .. (@found ? 15 : -1)')
    for address in $promoted; do
        $THERMOCLINE explain $pid $address --json >explained || fail "explain: $(cat explained)"
        grep -q moved explained && moved=$address && break 2
    done
done
[ -n "$moved" ] || fail "no hot page moved: $(tail -n 1 daemon), $(cat explained)"
$THERMOCLINE explain $pid $moved >explained-text || fail "explain: $(cat explained-text)"
$THERMOCLINE status --json >status || fail "status"
$THERMOCLINE status >status-text || fail "status"
cat status-text explained-text
# Somebody else sets a setting: that is told and counted. The kernel may promote meanwhile, so that
# it comes last.
limit=/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps
was=$(cat $limit)
echo 7 >$limit
tries=0
until grep -q "$limit is 7: somebody else has set it" daemon-errors; do
    sleep 0.2
    tries=$((tries + 1))
    [ $tries -lt 100 ] || fail "a changed setting is not told: $(cat daemon-errors)"
done
[ "$(cat $limit)" = 7 ] || fail "it is set again though nobody asked for that"
sleep 2
timeout 20 $THERMOCLINE status >status-changed 2>&1
grep 'changed by others: 1 times' status-changed || fail "a changed setting is not counted: $(cat status-changed)"
echo $was >$limit
# What is as the daemon had it is its own again, and put back at the end.
tries=0
until $THERMOCLINE status | grep -q 'changed by others: 1 times, 0 times set again, 0 left so'; do
    sleep 0.5
    tries=$((tries + 1))
    [ $tries -lt 40 ] || fail "a setting that came back is still left: $($THERMOCLINE status | grep others)"
done
kill -TERM $daemon
wait $daemon
echo "terminated=$?"
unchanged "after SIGTERM"
$THERMOCLINE status >gone 2>&1 && fail "status without a daemon"
$THERMOCLINE explain $pid $moved >gone 2>&1 && fail "explain without a daemon"

# Who reads its lines has stopped, and who reads its errors has ended: it works on, answers, and
# puts settings back.
printf '[daemon]\nreport_ms = 100\n' >often.toml
mkfifo /run/stopped /run/ended
sleep 300 </run/stopped &
stopped=$!
true </run/ended &
$THERMOCLINE run --json --config often.toml >/run/stopped 2>/run/ended &
daemon=$!
sleep 6
timeout 10 $THERMOCLINE status --json >held || fail "nobody reads, and status is not answered: $(cat held)"
kill -TERM $daemon
wait $daemon
echo "unread=$?"
unchanged "after SIGTERM with nobody who reads"
kill $stopped
kill -TERM $pid
wait $loader || fail "hotcold lost data"
