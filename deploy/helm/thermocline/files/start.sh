#!/bin/sh
# Starts the daemon in its container.
set -eu

# The runtime lays a read-only mount of /proc/sys over the one below, which can be written. It is
# taken away in this container's mount namespace alone.
if mountpoint -q /proc/sys; then
    umount /proc/sys
fi

# The runtime gives a container a cgroup namespace of its own, in which the cgroups of other
# processes have other paths. The daemon names them as the node does.
exec nsenter --cgroup=/proc/1/ns/cgroup -- \
    thermocline run --config /etc/thermocline/thermocline.toml
