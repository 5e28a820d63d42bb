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

# What a purge asks with: nobody can read the store once the program is gone, and dpkg removes the
# configuration before it asks.
if [ "$1" = remove ] && [ -d /var/lib/clusterm/etcd ]; then
	list=/var/lib/clusterm/in-service
	if ! timeout 15 clusterctl -u unix:///run/clusterm/clusterm.sock nodes get --status Allocated -o name \
		>$list 2>/dev/null; then rm -f $list; fi
	config=/etc/clusterm/clusterm.yaml
	if [ -e $config ]; then cp -p $config /var/lib/clusterm/clusterm.yaml.removed; fi
fi

if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
	for unit in clusterm.service clusterm-agent.service clusterm-monitor.service; do
		if ours $unit; then
			deb-systemd-invoke stop $unit
		fi
	done
fi
