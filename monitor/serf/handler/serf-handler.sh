#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A serf event handler that tells clusterm who is there and who is not. Needs curl.
#
#   serf agent … -event-handler 'member-join,member-update,member-leave,member-failed=/PATH/serf-handler.sh'
#
# It reports to CLUSTERM_URL (http://127.0.0.1:9007 or unix:///PATH, say), or else
# through the socket CLUSTERM_SOCKET. serf waits for it: what no manager takes in
# 5 s is lost.
set -eu
case $SERF_EVENT in
  member-join | member-update) event=discovered ;;
  member-leave | member-failed) event=disappeared ;;
  *) exit 0 ;;
esac
url=${CLUSTERM_URL:-unix://${CLUSTERM_SOCKET:-/run/clusterm/clusterm.sock}}
case $url in unix://*)
  set -- --unix-socket "${url#unix://}"
  url=http://localhost
  ;;
esac

# A line on standard input is a member: name, address, role, tags, with tabs in
# between. What comes from the network goes into JSON only if it needs no quoting.
nodes=$(awk -F '\t' '{
  label = serial = addr = ""
  n = split($4, tag, ",")
  for (i = 1; i <= n; i++) {
    if (sub(/^NodeLabel=/, "", tag[i])) label = tag[i]
    else if (sub(/^NodeSerial=/, "", tag[i])) serial = tag[i]
    else if (sub(/^NodeAddr=/, "", tag[i])) addr = tag[i]
  }
  if (label ~ /^[A-Za-z0-9._-]+$/ && serial ~ /^[A-Za-z0-9._-]+$/ && addr ~ /^[A-Za-z0-9.:_-]+$/)
    printf "{\"label\":\"%s\",\"serial\":\"%s\",\"addr\":\"%s\"}\n", label, serial, addr
}')
[ -n "$nodes" ] || exit 0

post() {
  list=$1
  shift
  printf '{"monitor_event":{"name":"%s","nodes":[%s]}}' "$event" "$list" |
    curl -sS --fail-with-body --noproxy '*' --max-time 5 -H 'Content-Type: application/json' --data-binary @- "$@" "$url/monitor/event"
}
# All at once; where one of them is refused (22), each by itself. A manager that
# does not answer is not asked again: serf waits.
code=0
post "$(printf '%s\n' "$nodes" | paste -sd , -)" "$@" || code=$?
[ "$code" -eq 22 ] || exit "$code"
printf '%s\n' "$nodes" | while read -r node; do post "$node" "$@" || true; done
