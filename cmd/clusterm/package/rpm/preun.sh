# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# 0: the last one is removed, this is no upgrade.
if [ "$1" -eq 0 ] && [ -d /run/systemd/system ]; then
	for unit in clusterm clusterm-agent clusterm-monitor; do
		# One that an own unit in /etc runs is not the package's.
		if [ ! -e /etc/systemd/system/$unit.service ]; then systemctl --no-reload disable --now $unit.service || :; fi
	done
fi
