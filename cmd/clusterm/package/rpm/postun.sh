# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# What runs is restarted by an upgrade; jobs go on meanwhile. Data stays.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || :
	if [ "$1" -ge 1 ]; then
		systemctl try-restart clusterm.service clusterm-agent.service clusterm-monitor.service || :
	elif [ ! -e /etc/systemd/system/clusterm.service ]; then
		rm -rf /run/clusterm
	fi
fi
