# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# 0: a removal, not an upgrade.
if [ "$1" -eq 0 ] && [ -d /run/systemd/system ]; then
	for unit in clusterm clusterm-agent clusterm-monitor; do
		# A unit in /etc is not the package's.
		if [ ! -e /etc/systemd/system/$unit.service ]; then systemctl --no-reload disable --now $unit.service || :; fi
	done
fi
