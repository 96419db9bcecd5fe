#!/bin/sh
# Installs thermocline from this folder, or removes it:
#
#   ./install.sh [install]    installs, or upgrades what is installed; the service is not enabled
#   ./install.sh uninstall    stops the service, puts settings back, removes all but configuration
#   ./install.sh purge        removes the configuration as well
#
# PREFIX (default /usr/local) is where the program goes; the configuration is in /etc/thermocline.
# With DESTDIR everything goes below that folder, and no service is touched. The installed copy,
# PREFIX/share/thermocline/install/install.sh, removes what it came with.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=${DESTDIR:-}
prefix=${PREFIX:-/usr/local}
if [ -e "$here/manifest" ]; then
    # The installed copy.
    prefix=${here%/share/thermocline/install}
    prefix=${prefix#"$root"}
fi
config=$root/etc/thermocline
# What is known of the installation: its files, the folders made for them, the configuration as it
# was installed.
state=$root$prefix/share/thermocline/install

die() {
    echo "install.sh: $*" >&2
    exit 1
}

# Whether there is a service to look after.
has_service() { [ -z "$root" ] && [ -d /run/systemd/system ]; }

reload_units() {
    if has_service; then systemctl daemon-reload; fi
}

# Where a file of the package goes.
target() { # FILE
    case $1 in
        usr/share/zsh/vendor-completions/*) echo "$prefix/share/zsh/site-functions/${1##*/}" ;;
        usr/*) echo "$prefix/${1#usr/}" ;;
        *) echo "/$1" ;;
    esac
}

# The file, with the paths of this installation where it names some.
content() { # FILE
    case $1 in
        *.service | etc/*)
            sed "s#/usr/bin/thermocline#$prefix/bin/thermocline#
                s#/usr/share/thermocline#$prefix/share/thermocline#" "$here/files/$1"
            ;;
        *) cat "$here/files/$1" ;;
    esac
}

# Makes a folder and notes those that were not there, the outermost first.
folder() { # FOLDER
    [ ! -d "$root$1" ] || return 0
    folder "$(dirname "$1")"
    mkdir "$root$1"
    made="$made$1
"
}

# Puts a file in its place at once: a program that runs is not written to.
put() { # FILE TARGET MODE
    folder "$(dirname "$2")"
    content "$1" >"$root$2.tmp"
    chmod "$3" "$root$2.tmp"
    mv -f "$root$2.tmp" "$root$2"
}

# Puts a file of the configuration in its place unless the administrator has changed it there.
put_configuration() { # FILE
    to=/$1
    default=$state/default/$1
    if [ ! -e "$root$to" ] || cmp -s "$root$to" "$default"; then
        put "$1" "$to" 644
    elif ! content "$1" | cmp -s - "$root$to" && ! content "$1" | cmp -s - "$default"; then
        put "$1" "$to.new" 644
        echo "$to was changed and is kept; this version's is $to.new"
    fi
    put "$1" "${default#"$root"}" 644
}

install_all() {
    [ -d "$here/files" ] || die "there is nothing to install in $here: run it from the unpacked archive"
    case $prefix in /*) ;; *) die "PREFIX must be an absolute path: $prefix" ;; esac
    "$here/files/usr/bin/thermocline" --version >/dev/null ||
        die "the program does not run on this machine: it needs glibc 2.34, libelf.so.1 and libz.so.1"
    former=$(cat "$state/manifest" 2>/dev/null || true)
    made=$(cat "$state/folders" 2>/dev/null || true)
    made=${made:+$made
}
    [ -z "$root" ] || mkdir -p "$root"
    umask 022
    folder "${state#"$root"}"
    files=$(cd "$here/files" && find . -type f | sed 's#^\./##' | sort)
    for file in $files; do
        case $file in
            etc/*) put_configuration "$file" ;;
            usr/bin/*) put "$file" "$(target "$file")" 755 ;;
            *) put "$file" "$(target "$file")" 644 ;;
        esac
    done
    # What this version has no more.
    for file in $former; do
        case $file in
            etc/*) ;;
            *) echo "$files" | grep -qxF "$file" || rm -f "$root$(target "$file")" ;;
        esac
    done
    echo "$files" >"$state/manifest"
    printf %s "$made" >"$state/folders"
    [ "$here" = "$state" ] || cp "$here/install.sh" "$state/install.sh"
    reload_units
    if has_service && systemctl -q is-active thermocline; then systemctl restart thermocline; fi
}

# Removes all but the configuration, or that too.
remove_all() { # [CONFIGURATION]
    if has_service; then systemctl -q disable --now thermocline; fi
    # Stopping the service puts settings back. This is for a daemon that was killed.
    if [ -z "$root" ] && [ -e /run/thermocline ]; then
        "$prefix/bin/thermocline" restore >/dev/null ||
            die "settings are left changed, and nothing is removed: see \`thermocline restore --dry-run\`"
    fi
    for file in $(cat "$state/manifest"); do
        case $file in
            etc/*) ;;
            *) rm -f "$root$(target "$file")" ;;
        esac
    done
    made=$(cat "$state/folders")
    rm -rf "$state"
    remove_configuration "${1:-}"
    # The innermost first. Those that others use by now stay.
    echo "$made" | sed '1!G;h;$!d' | while read -r folder; do
        [ -z "$folder" ] || rmdir "$root$folder" 2>/dev/null || true
    done
    reload_units
}

remove_configuration() { # [CONFIGURATION]
    [ -n "$1" ] || return 0
    rm -rf "$config"
    if [ -n "$root" ]; then
        rmdir "$root/etc" 2>/dev/null || true
    else
        rm -rf /run/thermocline /run/thermocline.lock /var/lib/thermocline
    fi
}

case ${1:-install} in
    install) install_all ;;
    uninstall)
        [ -e "$state/manifest" ] || die "nothing is installed in ${root}$prefix: set PREFIX as it was for the installation"
        remove_all
        ;;
    purge) if [ -e "$state/manifest" ]; then remove_all configuration; else remove_configuration configuration; fi ;;
    *) die "unknown: $1; it takes install, uninstall or purge" ;;
esac
