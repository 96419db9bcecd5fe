# What a new operator does: installs $DEB on a guest with systemd, starts the service, puts Redis
# under load, looks, and removes all of it. Then the same once more with $ARCHIVE and its
# install.sh.
cd "$LAB_SHARE"
# All settings that can be read. What differs between two readings changes by itself.
state() { grep -rsH --exclude-dir=binfmt_misc . /proc/sys /sys/kernel/mm /sys/kernel/debug/sched /sys/devices/system/node 2>/dev/null | grep -av '^Binary' | sort; }
changes_by_itself() { comm -3 state-1 state-2 | sed 's/^\t//; s/:.*//' | sort -u; }
settled() { awk -F: 'NR == FNR { skip[$0] = 1; next } !($1 in skip)' moving "$1"; }
contents() { find /etc -xdev -type f ! -name ld.so.cache -exec md5sum {} + 2>/dev/null | sort -k 2; }
remember() {
    state >state-1; sleep 1; state >state-2; changes_by_itself >moving
    settled state-1 >settings-before; contents >contents-before; files >files-before
}
nothing_is_left() { # AFTER WHAT
    systemctl daemon-reload
    is_active && fail "it runs $1"
    files >files-after; comm -3 files-before files-after >differs
    contents >contents-after; comm -3 contents-before contents-after >>differs
    state >state-3; settled state-3 >settings-after
    # Over minutes more changes by itself than between two readings.
    comm -3 settings-before settings-after |
        grep -avE 'numastat|vmstat|meminfo|/debug/sched/(debug|domains)|/random/|[-_/]nr:|[-_]state:|ns_last_pid' >>differs
    [ ! -s differs ] || fail "left $1: $(head -n 20 differs)"
}
began=$(cut -d. -f1 /proc/uptime)
since() { echo $(($(cut -d. -f1 /proc/uptime) - began)); }

unusual_settings
original=$(settings)
remember
say "Installed and started, as the book says"
began=$(cut -d. -f1 /proc/uptime)
install
thermocline doctor >doctor 2>&1
systemctl enable --now thermocline || fail "enable: $(journalctl -u thermocline | tail -n 20)"
until_ 30 thermocline status
echo exposure_tenths=$(exposure)
say "It observes; then pages move, and metrics are served"
sed -i '/^name = "observe"$/d' /etc/thermocline/thermocline.toml
printf '[metrics]\nlisten = "127.0.0.1:9469"\n[daemon]\nreport_ms = 4000\n[recording]\nenabled = true\n' >/etc/thermocline/conf.d/10-metrics.toml
mkdir /etc/systemd/system/thermocline.service.d
cp /usr/share/thermocline/metrics.conf /etc/systemd/system/thermocline.service.d
systemctl daemon-reload
systemctl restart thermocline || fail "restart: $(journalctl -u thermocline | tail -n 20)"
echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control

say "Redis under load"
on-slow-node --widen-when 'test -e loaded' redis-server --save '' --appendonly no --port 6379 >redis-log 2>&1 &
redis=$!
until_ 60 redis-cli ping
data='--keys 60000 --value-bytes 1024'
$REDIS_LOAD load $data >loading || fail "Redis cannot be loaded: $(tail -n 1 loading)"
touch loaded
$REDIS_LOAD run $data --connections 1 --pipeline 8 --summary reading >reads 2>errors &
reader=$!
status() { thermocline status --json >status.json; }
# Of the engine's counters: other figures have some of their names.
figure() { sed -n '/^  "counters": {/,/^  }/p' status.json | sed -n "s/^    \"$1\": *\([0-9][0-9]*\).*/\1/p"; }
uptime_ms() { sed -n 's/^  "uptime_ns": *\([0-9]*\)[0-9]\{6\},*$/\1/p' status.json; }
metric() { sed -n "s/^thermocline_$1 \([0-9.]*\).*/\1/p" scraped; }
pages_come() { status && [ "$(figure pgpromote_success)" -gt 2000 ]; }
until_ 200 pages_come

say "Status, metrics and explain"
# Both show the newest snapshot, and there is one in four seconds: one of some tries meets the same.
same=
for _ in $(seq 20); do
    status && scrape || fail "status or metrics: $(cat scraped)"
    [ "$(uptime_ms)" = "$(metric uptime_seconds | awk '{ printf "%d", $1 * 1000 + 0.0001 }')" ] && same=1 && break
done
[ -n "$same" ] || fail "status and metrics never show the same moment: $(uptime_ms) $(metric uptime_seconds)"
compared=0
for name in numa_hint_faults proposed issued moved batches pgpromote_candidate pgpromote_success pgmigrate_success \
    pgmigrate_fail pgdemote merged dropped ticks; do
    [ -n "$(metric ${name}_total)" ] || fail "no metric $name: $(cat scraped)"
    [ "$(figure $name)" = "$(metric ${name}_total)" ] || fail "$name: $(figure $name) in status, $(metric ${name}_total) in metrics"
    compared=$((compared + 1))
done
echo counts_compared=$compared
by_us=$(sed -n 's/^thermocline_moved_pages_total{direction="promoted",by="thermocline"} //p' scraped)
[ "$by_us" = "$(figure pgpromote_success)" ] || fail "$by_us promoted by us in metrics: $(grep moved_pages scraped)"
# Pages of Redis, of which some are among those that status counts.
pages_of_redis() {
    awk '/rw-p 00000000 00:00 0 *(\[heap\])?$/ { print $1 }' /proc/$redis/maps | while IFS=- read -r from to; do
        at=$((0x$from))
        while [ $at -lt $((0x$to)) ]; do printf '0x%x\n' $at; at=$((at + 97 * 4096)); done
    done | head -n 120
}
explained=0 moved=0
for at in $(pages_of_redis); do
    thermocline explain $redis "$at" --json >explained.json 2>explain-errors || fail "explain: $(cat explain-errors)"
    explained=$((explained + 1))
    grep -q '"what": "moved"' explained.json && moved=$((moved + 1))
    [ $moved -ge 3 ] && break
done
[ $moved -ge 1 ] && [ $moved -le "$(figure pgpromote_success)" ] || fail "$moved of $explained pages moved, says explain: $(cat explained.json)"
echo explained=$explained moved=$moved
echo seconds_to_the_counts=$(since)
kill $reader; wait $reader
$REDIS_LOAD verify $data >verified || fail "Redis lost data: $(tail -n 1 verified)"
kill $redis; wait $redis

say "A page of the last hour"
# The recording is written every few seconds; the programs have ended, and nothing more is promoted.
row() { sed -n "/id=\"moved\"/,/<\/table>/s/^<tr><td>$1<\/td><td[^>]*>\([0-9,]*\)<.*/\1/p" page.html | tr -d ,; }
for _ in $(seq 20); do
    thermocline report --last 1h -o page.html >reported 2>&1 || fail "report: $(cat reported)"
    status && on_page=$(row promoted)
    [ "$on_page" = "$(figure pgpromote_success)" ] && break
    sleep 2
done
[ "$on_page" = "$(figure pgpromote_success)" ] || fail "$on_page promoted on the page, $(figure pgpromote_success) in status: $(cat reported)"
echo promoted_on_the_page=$on_page
[ "$(stat -c %a /var/lib/thermocline)" = 700 ] || fail "others may read the recording: $(ls -ld /var/lib/thermocline)"

say "Removed and purged"
rm -r /etc/systemd/system/thermocline.service.d
purge
nothing_is_left "after the purge"

say "The archive"
mkdir /tmp/unpacked && tar -C /tmp/unpacked -xzf "$ARCHIVE" || fail "tar"
/tmp/unpacked/*/install.sh >installing 2>&1 || fail "install.sh: $(cat installing)"
# The shell remembers where the package had it.
hash -r
systemctl daemon-reload
sed -i '/^name = "observe"$/d' /etc/thermocline/thermocline.toml
systemctl enable --now thermocline || fail "enable from the archive: $(journalctl -u thermocline | tail -n 20)"
until_ 30 thermocline status
[ "$(settings)" = "$original" ] && fail "it set nothing"
before=$(main_pid)
/tmp/unpacked/*/install.sh >installing 2>&1 || fail "upgrade by install.sh: $(cat installing)"
is_active && [ "$(main_pid)" != "$before" ] || fail "the former one still runs after install.sh"
kill -KILL $(main_pid)
sh /usr/local/share/thermocline/install/install.sh purge || fail "install.sh purge"
rm -r /tmp/unpacked
unchanged "after install.sh purge"
nothing_is_left "after install.sh purge"
