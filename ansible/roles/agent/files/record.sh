# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Records the state of a host before a discover, for restore.sh.
# Arguments: MANAGER-JOB, then the files that the role writes.
# ROOT is a prefix of all paths, for tests.
set -e

job=$1
shift
record=$ROOT/var/lib/clusterm/before/discover

# The same job again, after an interruption: the first record is the right one.
if [ "$(cat "$record/job" 2>/dev/null)" = "$job" ]; then exit 0; fi

rm -rf "$record"
(umask 077 && mkdir -p "$record/files")
for file; do
	if [ ! -e "$ROOT$file" ]; then continue; fi
	mkdir -p "$record/files${file%/*}"
	# A link costs no space: the role replaces files and does not write into them.
	ln "$ROOT$file" "$record/files$file" 2>/dev/null || cp -a "$ROOT$file" "$record/files$file"
done
for unit in clusterm clusterm-agent; do
	systemctl is-active --quiet $unit.service && : >"$record/$unit.active"
	systemctl is-enabled --quiet $unit.service 2>/dev/null && : >"$record/$unit.enabled"
done
if [ -e "$ROOT/var/lib/clusterm-agent" ]; then : >"$record/state"; fi
# The name of the job completes the record.
printf '%s\n' "$job" >"$record/job"
echo recorded
