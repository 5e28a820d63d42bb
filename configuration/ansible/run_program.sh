# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh

# Runs the program for the machine of $1 that comes on stdin, compressed by gzip, and removes it. The answer begins with
# a line: "clusterm-program output", or "clusterm-program arch ARCH" if the host is another machine than $1.
set -eu
umask 077
arch=$(uname -m)
if [ "$arch" != "$1" ]; then
	echo "clusterm-program arch $arch"
	exit 0
fi
dir=
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM PIPE
# Programs may be forbidden below /tmp.
for base in "${TMPDIR:-/tmp}" /var/tmp /run "${HOME:-/}" /dev/shm; do
	dir=$(mktemp -d "$base/clusterm-program.XXXXXXXX" 2>/dev/null) || continue
	printf '#!/bin/sh\n' >"$dir/try"
	chmod 700 "$dir/try"
	if "$dir/try" 2>/dev/null; then break; fi
	rm -rf "$dir"
	dir=
done
if [ -z "$dir" ]; then
	echo "no folder of the host takes a program: TMPDIR, /tmp, /var/tmp, /run and the home are full, read-only or noexec" >&2
	exit 1
fi
gzip -dc >"$dir/program"
chmod 700 "$dir/program"
echo "clusterm-program output"
"$dir/program"
