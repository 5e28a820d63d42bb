#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh FOLDER makes a compressed disk image of Debian, FOLDER/image.zst, in an empty folder, and
# lists its packages in FOLDER/packages. Package build runs it as root in namespaces of mounts and
# processes of its own: with the last process, all mounts go, and with them the loop device.
#
# SUITE     bookworm, or another suite of Debian
# ARCH      amd64, or arm64 on such a machine
# SIZE      bytes of the disk
# PACKAGES  names of packages, separated by commas
# MIRRORS   sources of apt, one a line; empty: those of this machine's apt
# AGENT     the program for /usr/local/bin/clusterm; empty: none
#
# Its stdout has the progress, a sentence a line; stderr is the log.

set -euo pipefail
exec 3>&1 1>&2 </dev/null
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive

say() { printf '%s\n' "$*" >&3; }
die() {
	printf 'build: %s\n' "$*" >&2
	exit 1
}

BASE=(
	systemd systemd-sysv systemd-resolved dbus udev kmod initramfs-tools
	openssh-server sudo python3 python3-apt ca-certificates
	cloud-init cloud-guest-utils fdisk e2fsprogs dosfstools
	iproute2 iputils-ping procps less
)
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# --- archives -----------------------------------------------------------------

# keyring_of FILE:STANZA prints the keyring in an apt source's Signed-By, or that of Debian.
keyring_of() {
	local file=${1%:*} n=${1##*:} found=''
	case $file in
	*.sources)
		found=$(awk -v n="$n" -v RS= -v FS='\n' 'NR == n {
			for (i = 1; i <= NF; i++)
				if (tolower($i) ~ /^signed-by:[ \t]*\//) {
					sub(/^[^:]*:[ \t]*/, "", $i); split($i, w, /[ \t,]/); print w[1]; exit
				}
		}' "$file")
		;;
	*) found=$(sed -n "${n}s/.*\[[^]]*signed-by=\(\/[^] ,]*\).*/\1/p" "$file") ;;
	esac
	if [[ -r $found ]]; then echo "$found"; else echo "$KEYRING"; fi
}

# sources fills SOURCES with those of Debian in this machine's apt. A mirror carries all current
# suites, so that a source of another suite tells where the wanted one is. Own sources come first.
sources() {
	local uri codename component label entry suffix rank line
	local -A seen=()
	SOURCES=()

	while IFS='|' read -r rank uri codename component label entry; do
		suffix=''
		[[ $codename == *-* ]] && suffix=-${codename#*-}
		[[ $label == Debian-Security ]] && suffix=-security
		case $suffix in '' | -updates | -security) ;; *) continue ;; esac

		[[ ${seen[any$suffix]:=$rank:$uri} == "$rank:$uri" ]] || continue
		line="deb [signed-by=$(keyring_of "$entry")] $uri $SUITE$suffix $component"
		[[ " ${SOURCES[*]/#/|} " == *"|$line "* ]] || SOURCES+=("$line")
	done < <(
		# shellcheck disable=SC2016 # apt expands the format
		apt-get indextargets 'Created-By: Packages' \
			--format '$(REPO_URI)|$(CODENAME)|$(COMPONENT)|$(LABEL)|$(SOURCESENTRY)' |
			awk -F'|' -v suite="$SUITE" '$4 ~ /^Debian(-Security)?$/ {
				print ($2 ~ "^" suite "(-|$)" ? 0 : 1) "|" $0 }' | sort -s -t'|' -k1,1
	)

	[[ -v seen[any] ]] || die "apt of this machine knows no archive of Debian"
}

# proxies exports apt's proxy: the image's apt does not read the configuration of this machine.
proxies() {
	local http='' https='' detect=''
	eval "$(apt-config shell http Acquire::http::Proxy https Acquire::https::Proxy \
		detect Acquire::http::Proxy-Auto-Detect)"
	if [[ -z $http && -n $detect && -x $detect ]]; then
		http=$("$detect" "$1" || true)
	fi
	[[ -z $http || $http == DIRECT ]] || export http_proxy=$http
	[[ -z $https || $https == DIRECT ]] || export https_proxy=$https
}

# --- disk ---------------------------------------------------------------------

# disk makes a partition table, the file systems and ROOT: the BIOS boots from the first partition,
# UEFI from the second one, and the last one can grow.
disk() {
	local name major minor

	truncate -s "$SIZE" disk.raw
	sfdisk --quiet disk.raw <<-'END'
		label: gpt
		size=1MiB, type=21686148-6449-6E6F-744E-656564454649, name=bios
		size=64MiB, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name=esp
		type=0FC63DAF-8483-4772-8E79-3D69D8477DE4, name=root
	END

	LOOP=$(losetup --find --show --partscan disk.raw)
	# From here on it goes with its last user.
	exec 9<"$LOOP"
	losetup --detach "$LOOP"
	partx --update "$LOOP" # a kernel may not read the table by itself
	LOOP=${LOOP##*/}

	# A container may lack the devices of partitions, and nothing of /dev is changed.
	mkdir dev root
	mount -t tmpfs -o mode=755,nosuid dev dev
	cp -a /dev/{null,zero,full,random,urandom,tty,fd,stdin} dev/
	for name in "$LOOP" "${LOOP}p2" "${LOOP}p3"; do
		IFS=: read -r major minor <"/sys/class/block/$name/dev"
		mknod -m 600 "dev/$name" b "$major" "$minor"
	done

	ROOT_ID=$(</proc/sys/kernel/random/uuid)
	mkdir -p dev/disk/by-uuid dev/pts
	ln -s "../../${LOOP}p3" "dev/disk/by-uuid/$ROOT_ID" # for update-grub

	mkfs.vfat -n ESP "dev/${LOOP}p2"
	# What GRUB of Debian 12 cannot read is off.
	mkfs.ext4 -q -L root -U "$ROOT_ID" -O ^metadata_csum_seed,^orphan_file "dev/${LOOP}p3"
	mount "dev/${LOOP}p3" root
}

# --- configuration ------------------------------------------------------------

in_root() {
	env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LC_ALL=C.UTF-8 chroot root "$@"
}

# put FILE writes stdin into a file of the image.
put() { install -D -m 644 /dev/stdin "root$1"; }

configure() {
	put /etc/fstab <<-END
		UUID=$ROOT_ID / ext4 errors=remount-ro 0 1
		UUID=$(blkid -s UUID -o value "dev/${LOOP}p2") /boot/efi vfat umask=0077,nofail 0 1
	END

	# Only the seed that is on the machine: no wait for the services of a cloud.
	put /etc/cloud/cloud.cfg.d/90_clusterm.cfg <<-'END'
		datasource_list: [ NoCloud, None ]
		system_info:
		  network:
		    renderers: [ networkd ]
	END

	# A port without a cable does not hold up the boot.
	put /etc/systemd/system/systemd-networkd-wait-online.service.d/clusterm.conf <<-'END'
		[Service]
		ExecStart=
		ExecStart=/lib/systemd/systemd-networkd-wait-online --any --timeout=60
	END

	put /etc/ssh/sshd_config.d/clusterm.conf <<-'END'
		PermitRootLogin prohibit-password
		PasswordAuthentication no
		KbdInteractiveAuthentication no
	END

	put /etc/default/grub.d/50_clusterm.cfg <<-'END'
		GRUB_TIMEOUT=1
		GRUB_CMDLINE_LINUX_DEFAULT=
		GRUB_CMDLINE_LINUX="console=tty0 console=ttyS0,115200"
		GRUB_TERMINAL=console
	END

	put /etc/default/locale <<<LANG=C.UTF-8
	put /etc/hosts <<-'END'
		127.0.0.1 localhost
		::1 localhost ip6-localhost ip6-loopback
	END

	# The image's apt trusts the archives by the same keys, and is told no password.
	{ grep -o 'signed-by=/[^] ,]*' <<<"${SOURCES[*]}" || true; } | cut -d= -f2 | sort -u | while read -r file; do
		[[ -e root$file ]] || install -D -m 644 "$file" "root$file"
	done
	sed -i 's#://[^/@ ]*@#://#' root/etc/apt/sources.list

	in_root passwd --lock root
	in_root systemctl enable systemd-networkd systemd-resolved ssh
	in_root systemctl set-default multi-user
	[[ -z $AGENT ]] || install -D -m 755 "$AGENT" root/usr/local/bin/clusterm
}

boot_loader() {
	# GRUB looks for the device by the name that it was mounted with.
	umount root
	mount --bind dev /dev
	mount "/dev/${LOOP}p3" root

	mkdir -p root/boot/efi
	mount --bind dev root/dev
	mount -t proc proc root/proc
	mount -t sysfs -o ro sysfs root/sys

	[[ $ARCH != amd64 ]] || in_root grub-install --target=i386-pc "/dev/$LOOP"
	in_root update-grub
	umount root/sys root/proc root/dev

	# What grub-install --removable does with a mounted partition. A kernel may lack its file system.
	local esp=dev/${LOOP}p2
	put /boot/grub/esp.cfg <<-END
		search.fs_uuid $ROOT_ID root
		set prefix=(\$root)'/boot/grub'
		configfile \$prefix/grub.cfg
	END
	mmd -i "$esp" ::/EFI ::/EFI/BOOT ::/EFI/debian
	mcopy -i "$esp" "root/usr/lib/shim/shim$EFI.efi.signed" "::/EFI/BOOT/BOOT${EFI^^}.EFI"
	mcopy -i "$esp" root/usr/lib/grub/*-efi-signed/"grub$EFI.efi.signed" "::/EFI/BOOT/grub$EFI.efi"
	mcopy -i "$esp" root/boot/grub/esp.cfg ::/EFI/debian/grub.cfg
	rm root/boot/grub/esp.cfg
}

# anonymize removes what is for one machine alone, and the traces of the build.
anonymize() {
	rm -f root/etc/ssh/ssh_host_* root/etc/hostname root/var/lib/systemd/random-seed \
		root/var/lib/dbus/machine-id root/etc/apt/auth.conf root/etc/*- \
		root/etc/{apt/apt.conf.d,dpkg/dpkg.cfg.d}/99mmdebstrap
	rm -rf root/etc/apt/auth.conf.d/* root/var/lib/apt/lists/* root/var/cache/apt/* root/tmp/* root/var/tmp/*
	find root/var/log -type f -delete
	: >root/etc/machine-id
	ln -sf ../run/systemd/resolve/stub-resolv.conf root/etc/resolv.conf
}

# --- all of it ----------------------------------------------------------------

cd "$1"
mount -t proc proc /proc # of the own processes

case $ARCH in
amd64) BASE+=(linux-image-amd64 grub-cloud-amd64) EFI=x64 ;;
arm64) BASE+=(linux-image-arm64 grub-efi-arm64 grub-efi-arm64-signed shim-signed) EFI=aa64 ;;
*) die "the architecture $ARCH is not supported" ;;
esac

if [[ -n $MIRRORS ]]; then
	mapfile -t SOURCES <<<"$MIRRORS"
else
	sources
fi
printf '%s\n' "${SOURCES[@]}" >&2
proxies "$(grep -o 'https\?://[^ ]*' <<<"${SOURCES[0]}" || true)"

say "making the disk"
disk

say "installing Debian $SUITE"
# Credentials for the archives are in the image only as long as it is built.
# shellcheck disable=SC2016 # mmdebstrap expands the root
mmdebstrap --mode=root --format=directory --variant=minbase --architectures="$ARCH" \
	--include="$(IFS=,; echo "${BASE[*]}")${PACKAGES:+,$PACKAGES}" --dpkgopt=force-unsafe-io \
	--setup-hook='for f in /etc/apt/auth.conf /etc/apt/auth.conf.d; do
		if [ -e "$f" ]; then mkdir -p "$1/etc/apt" && cp -a "$f" "$1/etc/apt/"; fi; done' \
	"$SUITE" root "${SOURCES[@]}"

say "configuring"
configure
boot_loader
# shellcheck disable=SC2016 # dpkg-query expands the format
in_root dpkg-query -W -f '${Package} ${Version}\n' >packages
anonymize
df -h root >&2
fstrim root
umount root

say "compressing"
zstd -q -3 -T0 disk.raw -o image.zst
