#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Enable and start nothing: the administrator decides whether this host is the first
# node or one with an agent. An upgrade restarts the running units; jobs go on.
set -e

# ours UNIT: succeeds if the unit is the package's, and not overridden in /etc.
ours() {
	case $(systemctl show --property=FragmentPath --value "$1") in
	/usr/lib/systemd/* | /lib/systemd/*) return 0 ;;
	esac
	return 1
}

if [ "$1" = configure ]; then
	systemd-sysusers clusterm.conf
	if [ -d /run/systemd/system ]; then
		systemctl daemon-reload
		for unit in clusterm.service clusterm-agent.service clusterm-monitor.service; do
			if ours $unit && systemctl --quiet is-active $unit; then
				deb-systemd-invoke restart $unit
			fi
		done
	fi
fi
