# Sourced: the package $DEB on a guest with systemd, and what it may have left.
say() { echo "$(cut -d. -f1 /proc/uptime) s: $*" >>kills; }
files() {
    find /etc /usr/bin /usr/local /usr/share/man/man1 /usr/share/doc /usr/share/bash-completion /usr/share/zsh \
        /usr/share/fish /usr/share/thermocline /usr/lib/systemd /lib/systemd /var/lib /var/log /run -xdev \
        \( -path /run/lab -o -path /run/systemd -o -path /var/lib/dpkg -o -path /run/log -o -path /run/udev \
        -o -path /var/log/journal -o -path /run/credentials -o -path /run/motd.dynamic \) -prune -o -print 2>/dev/null | sort
    cut -d: -f1 /etc/passwd /etc/group
}
until_() { # SECONDS CONDITION...
    limit=$1; shift
    for _ in $(seq $((limit * 5))); do "$@" >/dev/null 2>&1 && return 0; sleep 0.2; done
    fail "not within $limit s: $*; $(systemctl status thermocline 2>&1 | tail -n 20)"
}
is_active() { [ "$(systemctl is-active thermocline)" = active ]; }
restarts() { systemctl show -P NRestarts thermocline; }
main_pid() { systemctl show -P MainPID thermocline; }
# Without triggers: the index of all man pages takes minutes here.
install() { /usr/bin/dpkg --no-triggers -i "$DEB" >dpkg-log 2>&1 || fail "dpkg: $(cat dpkg-log)"; }
purge() { /usr/bin/dpkg --no-triggers --purge thermocline >dpkg-log 2>&1 || fail "purge: $(cat dpkg-log)"; }
exposure() { systemd-analyze security --no-pager thermocline.service | sed -n 's/.*exposure level[^0-9]*\([0-9]*\)\.\([0-9]\).*/\1\2/p'; }
scrape() { bash -c 'exec 3<>/dev/tcp/127.0.0.1/9469 && printf "GET /metrics HTTP/1.0\r\n\r\n" >&3 && cat <&3' >scraped 2>&1; }

# Packages may start and stop services, as on a server; on the host they may not.
rm -f /usr/sbin/policy-rc.d
# It mounts what the settings are in.
systemctl start sysinit.target
