#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Nothing is enabled or started: whether this host is the first node or just one
# with an agent is for its administrator to say. What runs is restarted by an
# upgrade; jobs go on meanwhile.
set -e

# ours UNIT: it is the package's, not one that was put into /etc since.
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
