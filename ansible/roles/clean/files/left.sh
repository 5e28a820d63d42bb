# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# left.sh PATH… -- UNIT…: prints which of the paths exist, which of the units run, and whether /etc/hosts has the block
# of the cluster manager, one in a line. ROOT is a prefix of all paths, for tests.

while [ $# -gt 0 ]; do
	path=$1
	shift
	if [ "$path" = -- ]; then break; fi
	if [ -e "$ROOT$path" ] || [ -L "$ROOT$path" ]; then printf '%s\n' "$path"; fi
done
for unit; do
	if systemctl is-active --quiet "$unit" 2>/dev/null; then printf '%s (it runs)\n' "$unit"; fi
done
if grep -q '^# BEGIN clusterm$' "$ROOT/etc/hosts" 2>/dev/null; then echo '/etc/hosts (a block of clusterm)'; fi
