#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
set -e

# forget FILE...: removes and lists the files. A file system mounted below stays.
forget() {
	for f; do
		if [ -e "$f" ] || [ -L "$f" ]; then
			echo "clusterm: removing $f" >&2
			rm -rf --one-file-system "$f"
		fi
	done
}

# refuse: ends a purge that would lose nodes in service, unless it is confirmed. A store without a list is of
# a manager that did not run when the package was removed.
refuse() {
	list=/var/lib/clusterm/in-service
	if [ "$CLUSTERM_PURGE" = yes ] || [ ! -d /var/lib/clusterm/etcd/data ]; then return; fi
	if [ -e $list ] && [ ! -s $list ]; then return; fi

	{
		echo "clusterm: not purged, because nodes are or may be in service:"
		if [ -e $list ]; then
			sed 's/^/clusterm:   /' $list
		else
			echo "clusterm:   the manager did not run when the package was removed, so it could not be asked"
		fi
		echo "clusterm: A purge removes their records, history, jobs, variables, secrets and keys in /var/lib/clusterm."
		echo "clusterm: Their services run on, and no manager knows them. clusterm keeps no backup; to make one:"
		echo "clusterm:   (umask 077; tar -C /var/lib -czf clusterm-backup.tar.gz clusterm)"
		echo "clusterm: To go back: install the package again, and then:"
		if [ -e /var/lib/clusterm/clusterm.yaml.removed ]; then
			echo "clusterm:   cp -p /var/lib/clusterm/clusterm.yaml.removed /etc/clusterm/clusterm.yaml"
		fi
		echo "clusterm:   systemctl enable --now clusterm"
		echo "clusterm: To purge all the same: CLUSTERM_PURGE=yes apt-get purge clusterm"
	} >&2
	exit 1
}

case "$1" in
remove)
	# A daemon in /usr/local uses the same directory.
	if [ ! -e /etc/systemd/system/clusterm.service ]; then rm -rf /run/clusterm; fi
	;;
purge)
	if [ ! -e /etc/systemd/system/clusterm.service ]; then refuse; fi
	for unit in clusterm clusterm-agent clusterm-monitor; do
		link=/etc/systemd/system/multi-user.target.wants/$unit.service
		if [ -L $link ] && [ ! -e $link ]; then rm -f $link; fi
	done
	# A purge removes the stored data as well, except that of a program in /usr/local
	# or of an agent that the role agent installed.
	if [ ! -e /etc/systemd/system/clusterm.service ]; then
		for f in /var/lib/clusterm/*; do
			if [ "$f" != /var/lib/clusterm/before ]; then forget "$f"; fi
		done
	fi
	if [ ! -e /etc/systemd/system/clusterm-agent.service ]; then
		forget /var/lib/clusterm-agent /etc/clusterm/agent.yaml /etc/clusterm/gossip.key
	fi
	if [ ! -e /etc/systemd/system/clusterm-monitor.service ]; then
		forget /var/lib/clusterm-monitor /etc/clusterm/monitor.yaml
	fi
	for dir in /var/lib/clusterm /etc/clusterm; do
		if [ -d $dir ]; then rmdir --ignore-fail-on-non-empty $dir; fi
	done
	;;
esac

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
