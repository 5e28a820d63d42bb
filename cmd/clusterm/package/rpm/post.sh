# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
systemd-sysusers clusterm.conf || :
if [ -d /run/systemd/system ]; then systemctl daemon-reload || :; fi
# 1: this is the first installation. What the presets of the distribution or the
# site name is enabled, which by itself is nothing.
if [ "$1" -eq 1 ]; then
	for unit in clusterm clusterm-agent clusterm-monitor; do
		# One that an own unit in /etc runs is not the package's.
		if [ ! -e /etc/systemd/system/$unit.service ]; then systemctl --no-reload preset $unit.service || :; fi
	done
fi
