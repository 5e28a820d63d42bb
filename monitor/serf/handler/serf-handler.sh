#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A serf event handler that reports members to clusterm. It needs curl.
#
#   serf agent … -event-handler 'member-join,member-update,member-leave,member-failed=/PATH/serf-handler.sh'
#
# Set CLUSTERM_URL to the manager (http://127.0.0.1:9007 or unix:///PATH), or
# CLUSTERM_SOCKET to its socket. The script makes five attempts: for 15 s if no
# process listens, for 40 s if the manager does not answer. serf waits meanwhile and
# queues further events. After that the event is lost.
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

# A line on standard input is a member: name, address, role and tags, separated by
# tabs. The script does not quote, so it skips values with other characters.
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

# post reports a list of nodes. It returns 0 if the manager has recorded them, 2 if
# it refuses them, and 1 without an answer to that. The status is no help: this API
# family has 200 and 500 only.
post() {
  list=$1
  shift
  for pause in 1 2 4 8 0; do
    answer=$(printf '{"monitor_event":{"name":"%s","nodes":[%s]}}' "$event" "$list" |
      curl -sS -i --noproxy '*' --max-time 5 -H 'Content-Type: application/json' -H 'Expect:' \
        --data-binary @- "$@" "$url/monitor/event") || true
    printf '%s\n' "$answer"
    case $(printf '%s\n' "$answer" | tr '[:upper:]' '[:lower:]') in
      http/?.?' 200'*) return 0 ;;
      *'x-clusterm-problem: unavailable'* | *'x-clusterm-problem: conflict'*) ;;
      *'x-clusterm-problem: '*) return 2 ;;
    esac
    sleep "$pause"
  done
  return 1
}
# All in one request; after a refusal, each node alone, as long as a manager answers.
code=0
post "$(printf '%s\n' "$nodes" | paste -sd , -)" "$@" || code=$?
[ "$code" -eq 2 ] || exit "$code"
printf '%s\n' "$nodes" | while read -r node; do post "$node" "$@" || [ "$?" -eq 2 ] || exit 1; done
