# Programs on the slow node that differ in nothing but whose they are: excluded by command, by
# number, and by a cgroup that is made after the daemon has started and then made anew, and one that
# is nobody's exclusion. Then one in a scope that runs another program before it gets its memory.
cd "$LAB_SHARE"
sysctl -qw kernel.numa_balancing=0
# Base pages of a process's own on the slow node: those of libraries are others' too.
low() { awk '!/ file=/ { for (i = 1; i <= NF; i++) if ($i ~ /^N2=/) s += substr($i, 4) } END { print s + 0 }' /proc/$1/numa_maps; }
# How much less it is now.
lost() { echo $(($1 > $2 ? $1 - $2 : 0)); }
# A program of this name in this cgroup, made for it, whose memory is sent to the slow node; before
# it runs, its process does something else.
program() {
    group=/sys/fs/cgroup/$2
    mkdir $group
    cp $HOTCOLD $1
    rm -f report-$1
    sh -c "echo \$\$ >$group/cgroup.procs; $3 exec $4 ./$1 --mib $MIB --no-thp --report report-$1" >log-$1 2>&1 &
    pid=$!
    until [ -e report-$1 ]; do
        sleep 0.2
        kill -0 $pid || { cat log-$1; exit 1; }
    done
    [ -n "$4" ] || migratepages $pid 0,1 2
}
# Ends a program and its cgroup.
end() {
    kill -TERM $1
    wait $1 || true
    until rmdir /sys/fs/cgroup/$2 2>/dev/null; do sleep 0.1; done
}
# Seconds until a program has less than half of what it had on the slow node there, or too many.
until_moved() {
    seconds=0
    while [ $(($(low $1) * 2)) -gt $2 ] && [ $seconds -lt 60 ]; do sleep 1; seconds=$((seconds + 1)); done
}
daemon() {
    $THERMOCLINE run --config $1.toml --json >daemon-$1 2>errors-$1 &
    daemon=$!
    until [ -s daemon-$1 ]; do sleep 0.2; kill -0 $daemon || { cat errors-$1; exit 1; }; done
}
common='[demotion]
mode = "off"
[kernel]
scan_period_min_ms = 1000
scan_period_max_ms = 2000
'

program by-command one; command=$pid
command_before=$(low $command)
program by-number two; number=$pid
number_before=$(low $number)
program nobodys four; nobodys=$pid
nobodys_before=$(low $nobodys)
cat >excluding.toml <<END
$common
[[scope]]
command = "by-command"
exclude = true
[[scope]]
pids = [$number]
exclude = true
[[scope]]
cgroup = "/late"
exclude = true
END
daemon excluding
program in-late late; late=$pid
late_before=$(low $late)
until_moved $nobodys $nobodys_before
sleep 4
echo nobodys_before=$nobodys_before
echo nobodys_after=$(low $nobodys)
echo command_lost=$(lost $command_before $(low $command))
echo number_lost=$(lost $number_before $(low $number))
echo late_lost=$(lost $late_before $(low $late))
end $late late
program in-late late; late=$pid
late_before=$(low $late)
sleep 6
echo again_lost=$(lost $late_before $(low $late))
kill -TERM $daemon
wait $daemon
tail -n 1 daemon-excluding >last-excluding
for of in "$command one" "$number two" "$late late" "$nobodys four"; do end $of; done

# Memory that is spread over both tiers by weights (MPOL_WEIGHTED_INTERLEAVE, since Linux 6.9), for
# the sake of bandwidth; DAMON watches it too.
cat >spread <<'END'
#!/usr/bin/perl
my $nodes = pack "Q", 5;
syscall(238, 6, $nodes, 64) == 0 or die "set_mempolicy: $!";
exec @ARGV;
END
chmod +x spread
cat >including.toml <<END
$common
[[scope]]
cgroup = "/boxed"
[[scope]]
cgroup = "/spread"
[source.damon]
enabled = true
stop_damon_stat = true
END
program spread-out spread "" ./spread; spread=$pid
spread_before=$(low $spread)
daemon including
program boxed boxed "sleep 4;"; boxed=$pid
before=$(low $boxed)
until_moved $boxed $before
sleep 4
echo boxed_before=$before
echo boxed_after=$(low $boxed)
echo spread_before=$spread_before
echo spread_lost=$(lost $spread_before $(low $spread))
kill -TERM $daemon
wait $daemon
tail -n 1 daemon-including >last-including
end $boxed boxed
end $spread spread
