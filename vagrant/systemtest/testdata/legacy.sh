#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# legacy.sh MASTER WORKER uses the contract of the first generation, as scripts
# of that time do, and exits with status 1 at the first wrong answer.
set -euo pipefail

master=$1 worker=$2
body=/tmp/answer

# call METHOD PATH STATUS [JSON] requires the status and leaves the answer in $body.
call() {
  local status args=(-s -o "$body" -w '%{http_code}' -X "$1" -H 'Content-Type: application/json')
  if [ $# -gt 3 ]; then args+=(-d "$4"); fi
  status=$(curl --max-time 60 "${args[@]}" "http://127.0.0.1:9007$2")
  printf '%s %s: %s\n' "$1" "$2" "$status"
  if [ "$status" != "$3" ]; then
    printf 'want %s; the answer is: %s\n' "$3" "$(cat $body)"
    exit 1
  fi
}

# is FILTER WANT requires the output of jq for the answer.
is() {
  local got
  got=$(jq -r "$1" $body)
  if [ "$got" != "$2" ]; then
    printf '%s is %s, want %s; the answer is: %s\n' "$1" "$got" "$2" "$(cat $body)"
    exit 1
  fi
}

# contains TEXT requires the text in the answer.
contains() {
  grep -qF -- "$1" $body || {
    printf 'the answer lacks %s: %s\n' "$1" "$(cat $body)"
    exit 1
  }
}

empty() {
  [ ! -s $body ] || {
    printf 'the answer to a POST is not empty: %s\n' "$(cat $body)"
    exit 1
  }
}

# another_ended reports whether a job has ended since the last call of ended.
previous=''
another_ended() {
  curl -s -o $body http://127.0.0.1:9007/info/job/last &&
    jq -e .id $body >/dev/null 2>&1 && [ "$(jq -r .id $body)" != "$previous" ]
}

# pause lets 0.2 s pass, 300 times at most.
tries=0
pause() {
  tries=$((tries + 1))
  [ $tries -lt 300 ] || exit 1
  read -r -t 0.2 <> <(:) || true
}

# ended STATUS waits until one more job has ended, and requires its status.
ended() {
  tries=0
  until another_ended; do pause; done
  call GET /info/job/last 200
  previous=$(jq -r .id $body)
  is .status "$1"
}

# events: several nodes at once, in any case; none, and an unknown name
call POST /monitor/event 200 '{"monitor_event":{"name":"DISCOVERED","nodes":[{"label":"old","serial":"1","addr":"10.77.0.201"},{"label":"old","serial":"2","addr":"10.77.0.202"}]}}'
empty
call GET /info/node/old-1 200
is .inventory_state.state Discovered
is .inventory_state.status Unallocated
is .monitoring_state.management_address 10.77.0.201
call GET /info/node/old-2 200
is .inventory_state.state Discovered
call POST /monitor/event/disappeared 200 '[{"Node-Label":"old","Node-Serial":"1","Node-Mgmt-Address":"10.77.0.201"},{"Node-Label":"old","Node-Serial":"2","Node-Mgmt-Address":"10.77.0.202"}]'
call GET /info/nodes 200
is '."old-1".inventory_state.state' Disappeared
is '."old-2".inventory_state.state' Disappeared
is "$(printf '."%s".inventory_state.state' "$master")" Discovered
call POST /monitor/discovered/old-1 200 '{"Node-Label":"old","Node-Serial":"1","Node-Mgmt-Address":"10.77.0.203"}'
call GET /info/node/old-1 200
is .configuration_state.ssh_address 10.77.0.203
call POST /monitor/event 500 '{"monitor_event":{"name":"discovered","nodes":[]}}'
call POST /monitor/event 500 '{"monitor_event":{"name":"exploded","nodes":[{"label":"old","serial":"1","addr":"10.77.0.201"}]}}'
call POST /monitor/discovered/old-1 500 '{"Node-Label":"old","Node-Serial":"9","Node-Mgmt-Address":"10.77.0.203"}'

# nodes: an unknown one is ignored by a query, and fails a request as a whole
call POST /info/nodes 200 "{\"nodes\":[\"$master\",\"nobody-0\"]}"
is length 1
call GET /info/node/nobody-0 500
call POST /commission/nodes 500 "{\"nodes\":[\"$master\",\"nobody-0\"],\"host_group\":\"service-master\"}"
contains nobody-0
call POST /commission/nodes 500 '{"nodes":[],"host_group":"service-master"}'
call POST /commission/nodes 500 "{\"nodes\":[\"$worker\"],\"host_group\":\"service-worker\"}"
call GET /info/job/last 500

# globals, and variables as an object and as a string
call POST /globals 200 '{"extra_vars":{"fleet":"old"}}'
empty
call GET /info/globals 200
is .extra_vars.fleet old

# a node is commissioned; without a group the first one is a master
call POST /commission/nodes 200 "{\"nodes\":[\"$master\"],\"extra_vars\":\"{\\\"note\\\": \\\"a string\\\"}\"}"
empty
ended Complete
call GET "/info/node/$master" 200
is .inventory_state.status Allocated
is .inventory_state.prev_status Provisioning
is .configuration_state.host_group service-master
is .configuration_state.inventory_vars.fleet old
call GET /info/logs/last 200
contains 'TASK [Write the file]'

call POST /commission/nodes 200 "{\"nodes\":[\"$worker\"],\"host_group\":\"service-worker\",\"extra_vars\":{\"hold\":\"go\"}}"
# its output can be followed while it runs
timeout 60 curl -sN http://127.0.0.1:9007/info/logs/active >/tmp/followed &
follower=$!
tries=0
until grep -qF 'Wait to be released' /tmp/followed; do
  kill -0 $follower 2>/dev/null || { # it asked before the job began
    timeout 60 curl -sN http://127.0.0.1:9007/info/logs/active >/tmp/followed &
    follower=$!
  }
  pause
done
call GET /info/job/active 200
is .status Running
call POST /decommission/nodes 500 "{\"nodes\":[\"$master\"]}"
address=$(curl -s "http://127.0.0.1:9007/info/node/$worker" | jq -r .configuration_state.ssh_address)
ssh -o StrictHostKeyChecking=no -o LogLevel=ERROR "$address" touch /run/go
wait $follower
ended Complete
call GET /info/logs/last 200
cmp $body /tmp/followed

call POST /maintenance/nodes 200 "{\"nodes\":[\"$worker\"]}"
ended Complete
call POST /update/nodes 200 "{\"nodes\":[\"$worker\"],\"host_group\":\"\"}"
ended Complete
call GET "/info/node/$worker" 200
is .configuration_state.host_group service-worker
call POST /decommission/nodes 200 "{\"nodes\":[\"$worker\"]}"
ended Complete
call POST /discover/nodes 200 '{"addressess":["10.77.0.99"]}'
ended Errored
is '.error | contains("10.77.0.99")' true

call GET /config 200
call POST /config 200 '{"config":{"jobs":{"forks":9}}}'
call GET /config 200
is '.. | .forks? // empty' 9
