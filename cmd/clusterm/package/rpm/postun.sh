# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# An upgrade restarts the running units; jobs go on. Data stays.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || :
	if [ "$1" -ge 1 ]; then
		for unit in clusterm clusterm-agent clusterm-monitor; do
			# A unit in /etc is not the package's.
			if [ ! -e /etc/systemd/system/$unit.service ]; then systemctl try-restart $unit.service || :; fi
		done
	elif [ ! -e /etc/systemd/system/clusterm.service ]; then
		rm -rf /run/clusterm
	fi
fi
