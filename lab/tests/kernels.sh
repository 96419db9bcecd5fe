# What the doctor says about a kernel with various configurations: a report for each name.
cd "$LAB_SHARE" && rm -f report-* facts
set -e
mkdir -p /sys/fs/cgroup/one /sys/fs/cgroup/two
ask() {
    printf '%b' "$2" >config.toml
    # Its exit status is the verdict, which the report contains, too.
    $THERMOCLINE doctor --json --config config.toml >"report-$1" || [ $? -le 2 ]
}
one='[[scope]]\ncgroup = "/one"\n'
two='[[scope]]\ncgroup = "/two"\n'
damon='[manager]\nname = "damon"\n[manager.damon]\nstop_damon_stat = '
ask default ''
ask generations '[demotion]\nway = "generations"\n'
ask regions '[demotion]\nway = "regions"\n'
ask regions-alone '[demotion]\nway = "regions"\nstop_damon_stat = true\n'
ask node '[demotion]\nway = "node"\n'
ask source '[source.damon]\nenabled = true\n'
ask source-alone '[source.damon]\nenabled = true\nstop_damon_stat = true\n'
ask manager "${damon}false\n"
ask manager-alone "${damon}true\n"
ask cgroup "$one${damon}true\n"
ask cgroups "$one$two${damon}true\n"
echo y >/sys/kernel/mm/lru_gen/enabled
ask generations-on '[demotion]\nway = "generations"\n'
{
    ! grep -q '^pgdemote_proactive ' /proc/vmstat || echo pgdemote_proactive
    for device in /sys/bus/dax/devices/*; do [ ! -e "$device" ] || echo dax; done
} >facts
