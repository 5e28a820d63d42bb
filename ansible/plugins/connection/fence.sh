# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh

# Runs a command on a host for a run of clusterm, unless the host has seen a later run. See ssh.py.
#
#   sh -c 'eval "$0"' fence.sh run CLAIM SUDO DRAIN COMMAND
#
# $CLUSTERM_FENCE is MANAGER/SCOPE/EPOCH/REVISION/RUN/JOB. It stays in the environment of the command, so the table of
# processes tells what runs for which token. The folder keeps the highest token of each scope. A command looks at the
# token after its mark can be seen, and a later run looks for marks after it has written its token: one of the two
# notices the other without a lock.
umask 077
# shellcheck disable=SC2153 # it is in the environment
mark=$CLUSTERM_FENCE
mode=$1

refuse() {
	if [ "$drain" = drain ]; then cat >/dev/null; fi
	printf 'clusterm-fence: %s\n' "$1" >&2
	exit 119
}

# lower E R N: the token is lower than that of $mark.
lower() {
	if [ "$1" -ne "$e" ]; then
		[ "$1" -lt "$e" ]
	elif [ "$2" -ne "$r" ]; then
		[ "$2" -lt "$r" ]
	else
		[ "$3" -lt "$n" ]
	fi
}

split() {
	IFS=/
	# shellcheck disable=SC2086 # it has no other separators
	set -- $1
	unset IFS
	p_manager=$1 p_scope=$2 p_e=$3 p_r=$4 p_n=$5 p_job=$6
}

split "$mark"
me=$p_manager scope=$p_scope e=$p_e r=$p_r n=$p_n job=$p_job

# victims prints the processes of earlier runs: the commands that still run, tasks with async, and what they started.
# A service that a task has started, and that has left the task, is none of them. $former is the manager whose host this
# was.
victims() {
	roots=
	# shellcheck disable=SC2013 # the paths have no spaces
	for file in $(grep -ls CLUSTERM_FENCE= /proc/[0-9]*/environ 2>/dev/null); do
		pid=${file#/proc/}
		pid=${pid%/environ}
		if grep -qs CLUSTERM_FENCED= "$file" && ! grep -qs async_wrapper "/proc/$pid/cmdline"; then continue; fi
		split "$(tr '\0' '\n' 2>/dev/null <"$file" | sed -n 's/^CLUSTERM_FENCE=//p')"
		case $p_e$p_r$p_n in '' | *[!0-9]*) continue ;; esac
		[ "$p_scope" = "$scope" ] || continue
		if [ "$p_manager" = "$me" ]; then
			lower "$p_e" "$p_r" "$p_n" || continue
		elif [ "$p_manager" != "$former" ]; then
			continue
		fi
		roots="$roots $pid"
	done
	[ -n "$roots" ] || return 0

	table=$(cat /proc/[0-9]*/stat 2>/dev/null |
		sed -n 's/^\([0-9]*\) (.*) [A-Y] \([0-9]*\) [0-9]* \([0-9]*\) .*/\1 \2 \3/p')
	# The shell of the account, if it waits for the command, leads the session.
	all="$roots $(printf '%s\n' "$table" | while read -r pid parent session; do
		case "$roots " in *" $pid "*) if [ "$parent" = "$session" ]; then printf '%s ' "$parent"; fi ;; esac
	done) "
	while more=$(printf '%s\n' "$table" | while read -r pid parent session; do
		case $all in
		*" $pid "*) ;;
		*" $parent "* | *" $session "*) printf '%s ' "$pid" ;;
		esac
	done) && [ -n "$more" ]; do all="$all$more"; done
	printf '%s\n' "$all"
}

# end ends what runs for earlier runs of the scope, and prints what it cannot end. It has to be over within the 17 seconds
# for which Ansible waits for sudo.
end() {
	read -r begun rest </proc/uptime
	term=TERM grace=${CLUSTERM_FENCE_GRACE:-5}
	while left=$(victims) && [ -n "$left" ]; do
		read -r now rest </proc/uptime
		passed=$((${now%.*} - ${begun%.*}))
		if [ "$passed" -ge $((grace + 4)) ]; then
			printf '%s\n' "$left"
			return 1
		fi
		if [ "$passed" -ge "$grace" ]; then term=KILL; fi
		# shellcheck disable=SC2086 # they are numbers
		if [ -n "$term" ]; then kill "-$term" $left 2>/dev/null; fi
		term=''
		sleep 0.1 2>/dev/null || sleep 1
	done
}

if [ "$mode" = end ]; then
	former=$2
	end
	exit
fi

claim=$2 sudo=$3 drain=$4 command=$5
if [ -n "$CLUSTERM_FENCE_DIR" ]; then
	dir=$CLUSTERM_FENCE_DIR
elif [ -w /var/lib ]; then # the account is root
	dir=/var/lib/.clusterm-fence
else
	dir=$HOME/.clusterm-fence
fi
file=$dir/$scope

# look reads the highest token, and refuses a lower one of the same manager. It succeeds if the command may run at once.
look() {
	was='' was_e=0 was_r=0 was_n=0 was_job='' state='' former=''
	[ -e "$file" ] || return 1
	read -r was was_e was_r was_n was_job state former <"$file"
	case $was_e$was_r$was_n in
	'' | *[!0-9]*) refuse "its record of runs is damaged; remove $file there when no job runs on it" ;;
	esac
	if [ "$was" != "$me" ]; then
		former=$was
		return 1
	fi
	if [ "$was_e" = "$e" ] && [ "$was_r" = "$r" ] && [ "$was_n" = "$n" ]; then
		[ "$state" = open ]
		return
	fi
	lower "$was_e" "$was_r" "$was_n" && return 1
	if [ "$was_job" = "$job" ]; then
		refuse "a later owner or a later run of job $job has taken it over (token $was_e.$was_r.$was_n, not $e.$r.$n)"
	fi
	refuse "job $was_job has taken it over from job $job (token $was_e.$was_r.$was_n, not $e.$r.$n)"
}

# put writes the token. On a full disk it overwrites the former one in its place.
put() {
	line="$me $e $r $n $job $1"
	text=$(printf '%-160s' "$line")
	(printf '%s\n' "$text" >"$file.new") 2>/dev/null
	if [ "$(cat "$file.new" 2>/dev/null)" = "$text" ]; then
		if [ "$1" != open ]; then sync "$file.new" 2>/dev/null; fi
		mv -f "$file.new" "$file" 2>/dev/null
		if [ "$1" != open ]; then sync "$dir" 2>/dev/null; fi
	else
		rm -f "$file.new"
		printf '%s\n' "$text" | dd of="$file" conv=notrunc,fsync 2>/dev/null
	fi
	if [ "$(cat "$file" 2>/dev/null)" != "$text" ]; then
		refuse "the token of the run cannot be written to $dir there: is the disk full or read-only?"
	fi
}

# note adds a line to the ledger, if somebody has made one for a test. It is bounded.
note() {
	[ -f "$dir/ledger" ] || return 0
	[ "$(wc -c <"$dir/ledger")" -lt 1048576 ] || return 0
	printf '%s %s %s.%s.%s job %s pid %s %s\n' "$(date +%s.%N)" "$scope" "$e" "$r" "$n" "$job" "$$" "$1" >>"$dir/ledger"
}

# owned refuses the host of another manager, unless this one replaces it. Nothing is changed then.
owned() {
	json=$(cat "$CLUSTERM_FENCE_ROOT/etc/clusterm/manager.json" 2>/dev/null)
	owner=$(word id)
	if [ "$claim" = claim ] || [ -z "$owner" ] || [ "$owner" = "$me" ] || [ "$was" = "$me" ]; then return; fi
	refuse "This host belongs to another manager: its agent belongs to the manager $(word name) at $(word addr) \
(id $owner). Nothing was changed. Remove it there first, with \`clusterctl nodes forget NAME --remove-agent\`, or take \
it over with \`clusterctl discover ADDRESS --take-over --reason TEXT\`."
}

# word NAME prints a text of an identity file.
word() { printf '%s\n' "$json" | sed -n 's/.*"'"$1"'": *"\([0-9A-Za-z._:-]*\)".*/\1/p'; }

# raise makes the token the highest one, and first ends what runs for lower ones.
raise() {
	owned
	mkdir -p "$dir" 2>/dev/null
	if ! (: >>"$dir/lock") 2>/dev/null; then
		refuse "the folder $dir cannot be written there: is the disk full or read-only?"
	fi
	command -v flock >/dev/null || refuse "it has no flock(1), which the package util-linux has"
	exec 9>>"$dir/lock"
	flock -w 13 9 || refuse "another command of clusterm has been preparing it for 13 seconds; repeat the job"
	if look; then
		exec 9>&-
		return
	fi
	find "$dir" -name 'job-*' -mtime +30 -exec rm -f {} + # of jobs that have long ended
	put "raising $former"
	if [ "$sudo" = sudo ]; then
		sudo -n env CLUSTERM_FENCE="$mark" CLUSTERM_FENCED=1 /bin/sh -c 'eval "$0"' "$0" end "$former" \
			9>&- >/dev/null 2>&1
	fi
	left=$(end 9>&-) || refuse "processes of an earlier run do not end there: $left; end them, then repeat the job"
	note raised
	put open
	exec 9>&-
}

look || raise
trap : HUP INT TERM
note start
case $command in
"/bin/sh -c "*) (CLUSTERM_FENCED=$dir && export CLUSTERM_FENCED && eval "$command") ;; # spares a shell
*) CLUSTERM_FENCED=$dir "${SHELL:-/bin/sh}" -c "$command" ;;
esac
status=$?
note end
drain=keep
if [ "$status" -ne 0 ]; then look; fi # a later run may have ended it
exit "$status"
