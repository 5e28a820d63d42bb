# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Restores the state of a host before a discover that failed, from the record of
# record.sh. It does nothing without a record of that job of that manager.
# Arguments: MANAGER-JOB, then the files that the role writes.
# ROOT is a prefix of all paths, for tests.
set -e

job=$1
shift
record=$ROOT/var/lib/clusterm/before/discover
state=$ROOT/var/lib/clusterm-agent

if [ "$(cat "$record/job" 2>/dev/null)" != "$job" ]; then exit 0; fi

# A fresh host has no agent to stop after an early failure.
systemctl disable --quiet --now clusterm-agent.service 2>/dev/null || :
for file; do
	if [ -e "$record/files$file" ]; then
		# A rename, because the program may be running.
		cp -a "$record/files$file" "$ROOT$file.clusterm-restore"
		mv "$ROOT$file.clusterm-restore" "$ROOT$file"
	else
		rm -f "$ROOT$file"
	fi
done
if [ -e "$record/state.taken" ]; then
	rm -rf "$state"
	mv "$record/state.taken" "$state"
elif [ ! -e "$record/state" ]; then
	rm -rf "$state"
fi
systemctl daemon-reload
for unit in clusterm-agent clusterm; do
	if [ -e "$record/$unit.enabled" ]; then systemctl enable --quiet $unit.service; fi
	if [ -e "$record/$unit.active" ]; then systemctl start --no-block $unit.service; fi
done
rm -rf "$record"
echo restored
