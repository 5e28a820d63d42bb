# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
systemd-sysusers clusterm.conf || :
if [ -d /run/systemd/system ]; then systemctl daemon-reload || :; fi
# 1: the first installation. Follow the presets of the distribution and the site; by
# default they enable nothing.
if [ "$1" -eq 1 ]; then
	for unit in clusterm clusterm-agent clusterm-monitor; do
		# A unit in /etc is not the package's.
		if [ ! -e /etc/systemd/system/$unit.service ]; then systemctl --no-reload preset $unit.service || :; fi
	done
fi
