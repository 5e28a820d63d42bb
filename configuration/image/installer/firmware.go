// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxFirmware is how many missing files the console names: a driver tries several versions.
const maxFirmware = 20

// firmwareForms are how the kernel says that a file is missing: everywhere, and at Debian.
var firmwareForms = []*regexp.Regexp{
	regexp.MustCompile(`Direct firmware load for ([0-9A-Za-z/._+-]{1,100}) failed with error -2\b`),
	regexp.MustCompile(`firmware: failed to load ([0-9A-Za-z/._+-]{1,100}) \(-2\)`),
}

// firmwarePackages are the packages of Debian with the firmware of network cards, by the beginning of a path.
var firmwarePackages = []struct{ prefix, name string }{
	{"bnx2/", "firmware-bnx2"},
	{"bnx2x/", "firmware-bnx2x"},
	{"bnx2x-", "firmware-bnx2x"},
	{"liquidio/", "firmware-cavium"},
	{"myri10ge", "firmware-myricom"},
	{"netronome/", "firmware-netronome"},
	{"phanfw.bin", "firmware-netxen"},
	{"ql2", "firmware-qlogic"},
	{"qed/", "firmware-qlogic"},
	{"rtl_nic/", "firmware-realtek"},
	{"tigon/", "firmware-misc-nonfree"},
}

// missingFirmware returns a sentence for each file of firmware that a driver asked for in vain, by the kernel's log.
func missingFirmware(log string) []string {
	var all []string

	for _, form := range firmwareForms {
		for _, found := range form.FindAllStringSubmatch(log, -1) {
			file, has := found[1], ""
			for _, p := range firmwarePackages {
				if strings.HasPrefix(file, p.prefix) {
					has = " (Debian's package " + p.name + " has it)"
				}
			}

			all = append(all, fmt.Sprintf("A driver lacks the firmware %s: add it to the initrd as lib/firmware/%s%s.",
				file, file, has))
		}
	}

	slices.Sort(all)
	all = slices.Compact(all)

	return all[:min(len(all), maxFirmware)]
}

// kernelLog returns the log of the kernel so far; see syslog(2).
func kernelLog() string {
	const readAll, bufferSize = 3, 10

	size, err := unix.Klogctl(bufferSize, nil)
	if err != nil {
		return ""
	}

	log := make([]byte, cmp.Or(size, 1))
	n, err := unix.Klogctl(readAll, log)
	if err != nil {
		return ""
	}

	return string(log[:n])
}
