# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# The steps on the host, as root. What one writes to stderr is its error.
set -eu
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH LC_ALL=C DEBIAN_FRONTEND=noninteractive
data=/var/lib/clusterm

fail() { printf '%s\n' "$*" >&2; exit 1; }

# quietly COMMAND: its last lines, if it fails
quietly() {
	log=$(mktemp)
	if "$@" >"$log" 2>&1; then rm -f "$log"; return 0; fi
	echo "$* failed:" >&2
	tail -n 15 "$log" >&2
	rm -f "$log"
	return 1
}

instance() { [ -e $data/etcd/member.json ] || [ -d $data/etcd/data ]; }

# identity: prints the id of the instance that this host is, if it is one. An interrupted join has made none.
identity() {
	id=$(cat $data/instance.id 2>/dev/null) || id=
	joins=$(cat $data/instance/joining.id 2>/dev/null) || joins=
	if instance || [ "${id:-$joins}" != "$joins" ]; then echo "${id:-without an id}"; fi
}

# check SUFFIX of the package, and which instance it becomes: first or further
check() {
	if [ "$2" = first ] && ! instance && systemctl -q is-active clusterm-agent; then
		fail "this host is a node of a manager, whose agent runs here; for an instance of that manager: clusterctl instance add"
	fi
	[ -d /run/systemd/system ] || fail "systemd does not run on this host, and clusterm needs it"
	case $1 in
	.deb) command -v apt-get >/dev/null || fail "a .deb package needs a host with apt" ;;
	.rpm) command -v dnf >/dev/null || fail "an .rpm package needs a host with dnf" ;;
	esac
	free=$(df -Pm /var | awk 'NR == 2 {print $4}')
	[ "$free" -ge 1000 ] || fail "/var has $free MiB of free space, and clusterm needs 1000"
}

# put FILE: from stdin
put() {
	umask 077
	cat >"$1.new"
	mv "$1.new" "$1"
}

# apt_install FILE: keeps a configuration that was changed
apt_install() {
	quietly apt-get install -y --no-remove -o DPkg::Lock::Timeout=120 \
		-o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "$1"
}

# install_package FILE
install_package() {
	case $1 in
	*.deb)
		apt_install "$1" 2>/dev/null || {
			quietly apt-get update
			apt_install "$1"
		}
		;;
	*.rpm) quietly dnf install -y "$1" ;;
	esac
	rm -f "$1"
}

# configure: with the file on stdin; that of an instance stays
configure() {
	if instance; then cat >/dev/null; else put /etc/clusterm/clusterm.yaml; fi
}

# listen ADDRESS: of the API, unless the file says another one
listen() {
	instance || sed -i "s/^listen: \"\"\$/listen: $1/" /etc/clusterm/clusterm.yaml
}

start() {
	quietly systemctl enable --now clusterm || fail "$(journalctl -u clusterm -n 15 --no-pager -o cat)"
	n=0
	until clusterctl status >/dev/null 2>&1; do
		n=$((n + 1))
		[ $n -lt 60 ] || fail "clusterm runs, but is not healthy: $(clusterctl status 2>&1)"
		sleep 1
	done
}

# first: prints the public key for the hosts
first() {
	key=/root/.ssh/id_ed25519
	if [ ! -e $key ]; then
		[ -d /root/.ssh ] || mkdir -m 700 /root/.ssh
		ssh-keygen -q -t ed25519 -N '' -C clusterm -f $key </dev/null
	fi
	start
	cat $key.pub 2>/dev/null || ssh-keygen -y -f $key
}

fingerprint() { clusterm ca fingerprint; }

# token NAME
token() { clusterctl token create --role admin --name "$1" -o jsonpath='{.token}'; }

# join URL FINGERPRINT: with the token on stdin; prints the id of the instance
join() {
	if instance; then
		cat >/dev/null
	else
		systemctl stop clusterm >/dev/null 2>&1 || :
		quietly clusterm join "$1" --fingerprint "$2" --token-file -
		systemctl disable --now clusterm-agent >/dev/null 2>&1 || :
	fi
	start
	cat $data/instance.id
}
