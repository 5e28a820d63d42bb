#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
set -e

# ours UNIT: succeeds if the unit is the package's, and not overridden in /etc.
ours() {
	case $(systemctl show --property=FragmentPath --value "$1") in
	/usr/lib/systemd/* | /lib/systemd/*) return 0 ;;
	esac
	return 1
}

if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
	for unit in clusterm.service clusterm-agent.service clusterm-monitor.service; do
		if ours $unit; then
			deb-systemd-invoke stop $unit
		fi
	done
fi
