# Installs $DEB on a guest with systemd, changes a setting of the service's behind its back, and
# looks for the finding's two entries in the journal.
cd "$LAB_SHARE"
unusual_settings
original=$(settings)
install
sed -i '/^name = "observe"$/d' /etc/thermocline/thermocline.toml
systemctl start thermocline || fail "start: $(journalctl -u thermocline | tail -n 20)"
until_ 60 thermocline status
switch=/proc/sys/kernel/numa_balancing
ours=$(cat $switch)
[ "$ours" = 2 ] || fail "the service has set numa_balancing to $ours"

# An entry is a line, and a field of it "NAME":"VALUE".
entries() { journalctl -o json --no-pager -u thermocline THERMOCLINE_FINDING=settings.changed 2>/dev/null; }
of_priority() { entries | grep -c "\"PRIORITY\" *: *\"$1\""; }
all_entries() { entries | grep -c '"THERMOCLINE_FINDING" *: *"settings.changed"'; }
[ "$(all_entries)" = 0 ] || fail "before anything was changed: $(entries)"

say "Somebody changes a setting"
echo 0 >$switch
has_begun() { [ "$(all_entries)" -ge 1 ]; }
until_ 90 has_begun
# An entry too many would follow within some looks.
sleep 5
[ "$(all_entries)" = 1 ] && [ "$(of_priority 4)" = 1 ] || fail "it begins with: $(entries)"
entries | grep -q 'numa_balancing is 0' || fail "the entry does not name the setting: $(entries)"
echo begun=$(of_priority 4)
is_open() { thermocline status | grep -q '\[settings.changed\]'; }
until_ 90 is_open

say "And changes it back"
echo "$ours" >$switch
has_ended() { [ "$(all_entries)" -ge 2 ]; }
until_ 90 has_ended
sleep 5
[ "$(all_entries)" = 2 ] && [ "$(of_priority 6)" = 1 ] || fail "it ends with: $(entries)"
entries | tail -n 1 | grep -q '"MESSAGE" *: *"over after' || fail "the last entry tells of no end: $(entries)"
echo ended=$(of_priority 6)
is_open && fail "status still shows it: $(thermocline status)"

systemctl stop thermocline || fail "stop"
unchanged "after it was stopped"
purge
unchanged "after the purge"
