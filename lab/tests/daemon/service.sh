# Installs $DEB on a guest with systemd, has the service manage hotcold, kills and hangs it,
# upgrades it and purges it. Settings must be back after each end, and no file may stay.
cd "$LAB_SHARE"
unusual_settings
original=$(settings)
files >files-before
install
[ "$(systemctl is-enabled thermocline)" = disabled ] || fail "it is enabled without being asked for"
is_active && fail "it runs without being asked to"
thermocline config check /etc/thermocline/thermocline.toml >/dev/null || fail "the installed configuration"
unchanged "after installing"
echo exposure_tenths=$(exposure)

say "The first day: it watches"
# The first day: it watches, for which it has the kernel take hint faults, and moves nothing.
systemctl start thermocline || fail "start: $(journalctl -u thermocline | tail -n 20)"
is_active || fail "it is not active"
thermocline status >status || fail "status: $(cat status)"
systemctl stop thermocline || fail "stop"
# Events go to the journal.
in_journal() { journalctl -u thermocline | grep -q "$1"; }
until_ 10 in_journal 'settings put back'
unchanged "after it watched"

say "Then it works"
# Then it works, under the unit's restrictions.
sed -i '/^name = "observe"$/d' /etc/thermocline/thermocline.toml
systemctl start thermocline || fail "start: $(journalctl -u thermocline | tail -n 20)"
# systemd takes the controller away from where it does not need it.
echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
on-slow-node --widen-when 'test -e report' $HOTCOLD --mib 96 --no-thp --report report >log 2>errors &
loader=$!
promoted() { thermocline status --json | sed -n 's/.*"pgpromote_success": *\([0-9]*\).*/\1/p' | head -n 1; }
hot_pages_come() { [ "$(promoted)" -gt 2000 ]; }
until_ 60 hot_pages_come
echo promoted=$(promoted)

say "Another configuration"
# Another configuration is taken without a restart, or refused as a whole.
before=$(main_pid)
extra=/etc/thermocline/conf.d/10-rate.toml
printf '[admission]\nrate_limit_mbps = 128\n' >$extra
systemctl reload thermocline || fail "reload: $(journalctl -u thermocline | tail -n 20)"
thermocline config diff >out 2>&1 && grep -q 'nothing differs' out || fail "after a reload: $(cat out)"
printf '[admission]\nrate_limit_mbps = 256\n[queue]\ncapacity = 64\n' >$extra
systemctl reload thermocline 2>/dev/null && fail "half of a configuration was taken"
thermocline config diff >out 2>&1
grep -q 'rate_limit_mbps: 128 -> 256' out || fail "after a refused reload: $(cat out)"
rm $extra
systemctl reload thermocline || fail "reload again: $(journalctl -u thermocline | tail -n 20)"
[ "$(main_pid)" = "$before" ] && is_active || fail "a reload ended it"

say "Metrics, for which the package brings what the unit must allow"
dropped=/etc/systemd/system/thermocline.service.d
mkdir $dropped
cp /usr/share/thermocline/metrics.conf $dropped
printf '[metrics]\nlisten = "127.0.0.1:9469"\n' >/etc/thermocline/conf.d/20-metrics.toml
systemctl daemon-reload
systemctl restart thermocline || fail "restart with metrics: $(journalctl -u thermocline | tail -n 20)"
ticks() { thermocline status --json | sed -n 's/^ *"ticks": *\([0-9]*\).*/\1/p' | head -n 1; }
it_ticks() { [ "$(ticks)" -gt 10 ]; }
until_ 30 it_ticks
# What is scraped lies between what status says before and after.
before=$(ticks)
scrape || fail "no metrics: $(cat scraped)"
echo exposure_with_metrics_tenths=$(exposure)
scraped=$(sed -n 's/^thermocline_ticks_total \([0-9]*\).*/\1/p' scraped)
[ "$before" -le "$scraped" ] && [ "$scraped" -le "$(ticks)" ] || fail "$before, then $scraped in metrics: $(cat scraped)"
grep -q '^thermocline_info{.*manager="thermocline"' scraped || fail "who manages: $(cat scraped)"
rm -r $dropped /etc/thermocline/conf.d/20-metrics.toml
systemctl daemon-reload
systemctl restart thermocline || fail "restart without metrics"
original_restarts=$(restarts)
[ "$original_restarts" = 0 ] || fail "it was restarted $original_restarts times"

say "kill -KILL (main_pid)"
kill -KILL $(main_pid)
settings_are_back() { [ "$(settings)" = "$original" ]; }
until_ 8 settings_are_back
until_ 30 is_active
echo restarts_after_kill=$(restarts)

say "A loop that hangs"
# A loop that hangs is ended and started again.
mkdir -p /run/systemd/system/thermocline.service.d
printf '[Service]\nWatchdogSec=4s\nTimeoutAbortSec=2s\n' >/run/systemd/system/thermocline.service.d/soon.conf
systemctl daemon-reload
systemctl restart thermocline || fail "restart with a short watchdog"
sleep 10
[ "$(restarts)" = 0 ] || fail "the watchdog ends a loop that turns"
kill -STOP $(main_pid)
restarted() { [ "$(restarts)" -ge 1 ] && is_active; }
until_ 40 restarted
echo restarts_after_hang=$(restarts)
rm -r /run/systemd/system/thermocline.service.d
systemctl daemon-reload

say "A configuration that cannot be used"
# A configuration that cannot be used is not tried again.
systemctl stop thermocline || fail "stop before a bad configuration"
cp /etc/thermocline/thermocline.toml sound
echo 'nonsense = 1' >>/etc/thermocline/thermocline.toml
systemctl start thermocline 2>/dev/null && fail "it starts with a key that there is not"
sleep 12
echo status_of_bad_configuration=$(systemctl show -P ExecMainStatus thermocline)
echo restarts_with_bad_configuration=$(restarts)
unchanged "after a bad configuration"
cp sound /etc/thermocline/thermocline.toml
systemctl start thermocline || fail "start after a bad configuration"

say "An upgrade has"
# An upgrade has the new one run; what the administrator changed stays.
before=$(main_pid)
install
is_active || fail "it does not run after the upgrade: $(cat dpkg-log)"
[ "$(main_pid)" != "$before" ] || fail "the former one still runs"
grep -q '^name = "observe"$' /etc/thermocline/thermocline.toml && fail "the upgrade undid a change"

say "systemctl stop thermocline || fail stop"
systemctl stop thermocline || fail "stop"
unchanged "after it was stopped"
systemctl start thermocline || fail "start before the removal"
purge
unchanged "after the purge"
systemctl daemon-reload
is_active && fail "it runs after the purge"
files >files-after
comm -13 files-before files-after >left-behind
kill -TERM $(sed 's/.*"pid":\([0-9]*\).*/\1/' report)
wait $loader || fail "hotcold lost data"
