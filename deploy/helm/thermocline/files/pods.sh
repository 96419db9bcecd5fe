#!/bin/bash
# Keeps the file of this node's pods up to date for the daemon beside it, has the daemon read its
# configuration again when that has changed, and labels the node with the number of its tiers.
set -uo pipefail
umask 077

node=${NODE_NAME:?the name of the node}
file=${PODS_FILE:-/run/thermocline-pods/pods.json}
config=${CONFIG_FOLDER:-/etc/thermocline}
list_seconds=${LIST_SECONDS:-60}
settle_seconds=${SETTLE_SECONDS:-2}
label=${LABEL_NODE:-false}
# The container ends after that many lists in a row that failed, so that somebody sees it.
fails_max=${FAILS_MAX:-10}
select=(--all-namespaces --field-selector "spec.nodeName=$node")

say() { echo "pods.sh: $*" >&2; }

# Only a whole list takes the place of the one before.
list() {
    kubectl get pods "${select[@]}" --output json >"$file.new" && [ -s "$file.new" ] &&
        mv -f "$file.new" "$file"
}

# A line for each event. The API server ends a watch after some minutes; then comes the next one.
events() {
    while sleep 1; do
        kubectl get pods "${select[@]}" --watch-only --output name
    done
}

config_sum() { cat "$config"/*.toml "$config"/conf.d/*.toml 2>/dev/null | sha256sum; }

tiers() {
    thermocline doctor --json | grep -o '"tier": *[0-9][0-9]*' | grep -o '[0-9]*$' | sort -u | wc -l
}

taken=$(config_sum)
# Tries once: what is refused is in the log, and is not better by itself.
take_config() {
    local sum
    sum=$(config_sum)
    [ "$sum" != "$taken" ] || return 0
    taken=$sum
    thermocline reload || say "the daemon goes on with the configuration before"
}

labelled=
label_node() {
    local now
    [ "$label" = true ] || return 0
    now=$(tiers)
    [ "$now" -gt 0 ] && [ "$now" != "$labelled" ] || return 0
    kubectl label node "$node" --overwrite "thermocline.dev/tiers=$now" && labelled=$now
}

exec 3< <(events)
watcher=$!
trap 'kill "$watcher" 2>/dev/null' EXIT
trap 'exit 0' TERM INT

fails=0
while :; do
    if list; then
        fails=0
    else
        fails=$((fails + 1))
        say "the node's pods cannot be listed, $fails times in a row"
        [ "$fails" -lt "$fails_max" ] || exit 1
    fi
    take_config
    label_node
    # The next event, or the time of the next list. Of many events at once one list is made.
    if read -r -t "$list_seconds" -u 3 _; then
        end=$((SECONDS + settle_seconds))
        while [ "$SECONDS" -lt "$end" ]; do
            read -r -t 1 -u 3 _ || [ $? -gt 128 ] || sleep 1
        done
    elif [ $? -le 128 ]; then
        sleep "$list_seconds"
    fi
done
