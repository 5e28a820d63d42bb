# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Prints which manager a host belongs to, one KEY=VALUE per line. It changes
# nothing. ROOT is a prefix of all paths, for tests.

# show KEY FILE: prints the beginning of the file in one line, if the file exists.
show() {
	if [ -e "$2" ]; then printf '%s=%s\n' "$1" "$(head -c 2000 "$2" | tr '\r\n\0' '   ')"; fi
}

etc=$ROOT/etc/clusterm
data=$(sed -n 's/^data_dir: *//p' "$etc/clusterm.yaml" 2>/dev/null | head -n 1 | tr -d "\"' ")
data=$ROOT${data:-/var/lib/clusterm}

show agent "$etc/manager.json"
show manager "$data/manager.json"
if [ -e "$data/instance.id" ] || [ -e "$data/etcd" ]; then printf 'data=%s\n' "${data#"$ROOT"}"; fi
printf 'active=%s\n' "$(systemctl is-active clusterm.service 2>/dev/null)"
printf 'enabled=%s\n' "$(systemctl is-enabled clusterm.service 2>/dev/null)"
if [ -e "$etc/agent.yaml" ]; then
	printf 'joins=%s\n' "$(sed -n 's/^ *join: *//p' "$etc/agent.yaml" | head -n 1 | head -c 200)"
fi
# The digest of the gossip key in use, not the key. During a rotation the file has two.
if [ -e "$etc/gossip.key" ]; then
	printf 'key=%s\n' "$(head -n 1 "$etc/gossip.key" | tr -d '[:space:]' | sha256sum | cut -d ' ' -f 1)"
fi
