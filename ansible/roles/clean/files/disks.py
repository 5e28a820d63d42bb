#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""disks.py look [DISK…] | metadata DISK… | full DISK…

look prints a line for each disk: "erase PATH …", "keep PATH: WHY", or "refused PATH: WHY" for a named one. Without names
it considers every disk of the machine. metadata and full erase the named disks, and print "erased PATH" or "failed PATH:
WHY". The exit status is 1 if one failed.

A disk is in use if it, a partition of it, or a device that is made of them (LVM, RAID, dm-crypt) is mounted, is swap, or
is open, and if it belongs to a volume group of such a device. The kernel has the last word: an exclusive open fails for a
disk that is in use, and while it is held nobody else can begin to use the disk.

Without names, disks in use are kept. A disk of an active device that nothing uses, such as the RAID of a former system, is
refused: it is not clear that it may go, and without a word it would be offered with its data.
"""

import concurrent.futures
import errno
import fcntl
import glob
import os
import re
import stat
import struct
import subprocess
import sys
import time

SYS = "/sys/dev/block"
EDGE = 8 << 20  # bytes at both ends of a disk and of a partition: all known labels and signatures are there
BLOCK = 4096  # bytes of the largest block that disks have
CHUNK = 1 << 30  # bytes of one request
BLKGETSIZE64, BLKRRPART, BLKDISCARD, BLKZEROOUT = 0x80081272, 0x125F, 0x1277, 0x127F


class Refused(Exception):
    """Why a disk is not erased."""


def read(path):
    try:
        with open(path, errors="replace") as f:
            return f.read(4096).strip()
    except OSError:
        return ""


def number(path):
    """Return MAJOR:MINOR of a block device, or ""."""
    try:
        s = os.stat(path)
    except OSError:
        return ""
    return "%d:%d" % (os.major(s.st_rdev), os.minor(s.st_rdev)) if stat.S_ISBLK(s.st_mode) else ""


def members(folder):
    """Return the folders in /sys of a device, of its partitions, and of all that is made of them."""
    found, todo = [], [os.path.realpath(folder)]
    while todo:
        d = todo.pop()
        if d in found:
            continue
        found.append(d)
        todo += [os.path.dirname(p) for p in glob.glob(glob.escape(d) + "/*/partition")]
        todo += [os.path.realpath(p) for p in glob.glob(glob.escape(d) + "/holders/*")]
    return found


def unescape(text):
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m.group(1), 8)), text)


def mounts():
    """Return the mount points by MAJOR:MINOR, in all mount namespaces."""
    used, seen = {}, set()
    for pid in ["self"] + sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        try:
            space = os.readlink("/proc/%s/ns/mnt" % pid)
        except OSError:
            continue
        if space in seen:
            continue
        seen.add(space)
        for line in read_all("/proc/%s/mountinfo" % pid):
            fields = line.split(" ")
            if len(fields) < 10 or "-" not in fields:
                continue
            point = unescape(fields[4])
            # A file system on several disks has a number of its own, and names one of them.
            source = unescape(fields[fields.index("-") + 2])
            for dev in (fields[2], number(source) if source.startswith("/") else ""):
                used.setdefault(dev, "mounted at %s" % point)
    for d in glob.glob("/sys/fs/btrfs/*/devices/*"):
        used.setdefault(read(d + "/dev"), "part of a mounted btrfs")
    used.pop("", None)
    return used


def read_all(path):
    try:
        with open(path, errors="replace") as f:
            return f.read().splitlines()
    except OSError:
        return []


def swaps():
    return {number(unescape(line.split()[0])): "swap" for line in read_all("/proc/swaps")[1:] if line.split()}


def opened():
    """Return the processes that have block devices open, by MAJOR:MINOR."""
    used = {}
    for fd in glob.glob("/proc/[0-9]*/fd/*"):
        pid = fd.split("/")[2]
        dev = number(fd) if int(pid) != os.getpid() else ""
        if dev:
            used.setdefault(dev, "open by %s (process %s)" % (read("/proc/%s/comm" % pid) or "a process", pid))
    return used


def usage():
    """Return why devices are in use, by MAJOR:MINOR."""
    used = opened()
    if used:  # udev opens devices for a moment
        time.sleep(1)
        again = opened()
        used = {dev: why for dev, why in used.items() if dev in again}
    used.update(swaps())
    used.update(mounts())
    return used


def groups():
    """Return the volume group of LVM by the MAJOR:MINOR of its physical volumes."""
    env = dict(os.environ, PATH=os.environ.get("PATH", "") + ":/usr/sbin:/sbin", LC_ALL="C")
    try:
        out = subprocess.run(["pvs", "--noheadings", "--separator", "|", "--options", "pv_name,vg_name"], env=env,
                             capture_output=True, text=True, timeout=60, check=True).stdout
    except FileNotFoundError:
        return {}
    pairs = [line.strip().split("|") for line in out.splitlines()]
    return {number(p[0]): p[1] for p in pairs if len(p) == 2 and p[1] and number(p[0])}


class Uses:
    """What is in use on this machine."""

    def __init__(self):
        self.used, self.groups, self.taken = usage(), groups(), {}
        for dev, group in self.groups.items():
            why = self.direct(os.path.realpath("%s/%s" % (SYS, dev)))
            if why:
                self.taken[group] = why

    def direct(self, folder):
        for d in members(folder):
            dev = read(d + "/dev")
            if dev in self.used:
                own = d == os.path.realpath(folder)
                return self.used[dev] if own else "%s is %s" % (os.path.basename(d), self.used[dev])
        return ""

    def of(self, folder):
        """Return why the disk is in use, or ""."""
        why = self.direct(folder)
        if why:
            return why
        for d in members(folder):
            group = self.groups.get(read(d + "/dev"))
            if group in self.taken:
                return "a part of the volume group %s: %s" % (plain(group), self.taken[group])
        return ""


def idle(folder):
    """Return which active device is made of the disk, or ""."""
    for d in members(folder)[1:]:
        if not os.path.exists(d + "/partition"):
            return "a part of %s, which is active although nothing uses it; stop that first" % os.path.basename(d)
    return ""


def claim(path):
    """Open a disk so that nobody else can use it. The kernel refuses one that is in use."""
    try:
        return os.open(path, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
    except OSError as e:
        raise Refused("the kernel says that it is in use" if e.errno == errno.EBUSY else e.strerror) from e


def disk(path):
    """Return the real path and the folder in /sys of a whole disk."""
    real = os.path.realpath(path)
    dev = number(real)
    if not dev:
        raise Refused("is no block device here")
    folder = os.path.realpath("%s/%s" % (SYS, dev))
    if os.path.exists(folder + "/partition"):
        raise Refused("is a partition; name the disk")
    if read(folder + "/ro") != "0":
        raise Refused("is read-only")
    if read(folder + "/size") in ("", "0"):
        raise Refused("has no medium")
    return real, folder


def foreign(folder):
    """Return why a disk that was not named is not taken, or ""."""
    name, transports = os.path.basename(folder), glob.glob(folder + "/device/transport")
    transports += glob.glob(folder + "/device/nvme*/transport")
    if read(folder + "/removable") == "1":
        return "removable"
    if "/usb" in folder:
        return "on USB"
    if re.search(r"/(session|rport-)[0-9]", folder) or any(read(t) not in ("pcie", "") for t in transports):
        return "on a network, perhaps shared"
    if name.startswith(("rbd", "nbd", "drbd")):
        return "on a network, perhaps shared"
    return ""


def plain(text):
    return re.sub(r"[^A-Za-z0-9._:-]+", " ", text).strip()[:64]


def describe(folder):
    """Return the size, the model and the serial number. The last two are text of the hardware."""
    size = int(read(folder + "/size")) * 512
    unit = next(u for u in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (1, "B")) if size >= u[0])
    words = ["%.4g %s" % (size / unit[0], unit[1]), plain(read(folder + "/device/model"))]
    serial = plain(read(folder + "/device/serial") or read(folder + "/serial") or read(folder + "/device/wwid"))
    return " ".join(filter(None, words + ["serial " + serial if serial else ""]))


def all_disks():
    """Return the disks of the machine. loop, ram, dm, md and the like are made of something else; sr and fd are drives."""
    for folder in sorted(glob.glob("/sys/block/*")):
        name = os.path.basename(folder)
        made = not os.path.exists(folder + "/device") or re.match(r"(sr|fd)[0-9]", name)
        if not made and read(folder + "/hidden") != "1":
            yield "/dev/" + name.replace("!", "/")


def look(names):
    uses = Uses()
    for path in names or all_disks():
        try:
            real, folder = disk(path)
            why = uses.of(folder) or ("" if names else foreign(folder))
            if not why and idle(folder):
                print("refused %s: %s" % (real, idle(folder)))
                continue
            if not why:
                os.close(claim(real))
        except Refused as e:
            real, why = path, e
        if why:
            print("%s %s: %s" % ("refused" if names else "keep", real, why))
        else:
            print("erase %s %s" % (real, describe(folder)))
    return 0


def zero(fd, start, length):
    """Have the kernel write zeros, by the fastest way that the disk has."""
    while length > 0:
        n = min(length, CHUNK)
        fcntl.ioctl(fd, BLKZEROOUT, struct.pack("QQ", start, n))
        start, length = start + n, length - n


def edges(folder, size):
    """Return the regions at both ends of the disk and of its partitions."""
    regions = [(0, size)]
    for p in glob.glob(glob.escape(folder) + "/*/partition"):
        d = os.path.dirname(p)
        regions.append((int(read(d + "/start")) * 512, int(read(d + "/size")) * 512))
    for start, length in regions:
        # A request covers whole blocks.
        end = min(-(-(start + length) // BLOCK) * BLOCK, size)
        start = start // BLOCK * BLOCK
        n = min(EDGE, end - start)
        yield start, n
        yield end - n, n


def check(fd, regions):
    """Read regions back, past the cache."""
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    for start, length in regions:
        while length > 0:
            data = os.pread(fd, min(length, 1 << 20), start)
            if not data or data.count(0) != len(data):
                raise Refused("reads other than zeros at byte %d after the erasure" % start)
            start, length = start + len(data), length - len(data)


def erase(path, full, uses):
    real, folder = disk(path)
    why = uses.of(folder) or idle(folder)
    if why:
        raise Refused(why)

    fd = claim(real)
    try:
        size = struct.unpack("Q", fcntl.ioctl(fd, BLKGETSIZE64, bytes(8)))[0]
        ends = list(edges(folder, size))
        if full:
            try:
                fcntl.ioctl(fd, BLKDISCARD, struct.pack("QQ", 0, size))
            except OSError:
                pass  # it cannot, or the zeros below say more
            zero(fd, 0, size)
            step = max(size // 64, 1 << 20)
            ends += [(at, min(1 << 20, size - at)) for at in range(0, size, step)]
        else:
            for start, length in ends:
                zero(fd, start, length)
        os.fsync(fd)
        check(fd, ends)
        try:
            fcntl.ioctl(fd, BLKRRPART)
        except OSError:
            pass  # it has no partitions
    finally:
        os.close(fd)


def erase_all(names, full):
    status, uses = 0, Uses()
    with concurrent.futures.ThreadPoolExecutor(max(len(names), 1)) as pool:
        for path, job in [(path, pool.submit(erase, path, full, uses)) for path in names]:
            try:
                job.result()
                print("erased %s" % path, flush=True)
            except (Refused, OSError) as e:
                print("failed %s: %s" % (path, e), flush=True)
                status = 1
    return status


if __name__ == "__main__":
    if sys.argv[1] == "look":
        sys.exit(look(sys.argv[2:]))
    sys.exit(erase_all(sys.argv[2:], {"metadata": False, "full": True}[sys.argv[1]]))
