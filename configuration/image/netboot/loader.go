// SPDX-License-Identifier: Apache-2.0

package netboot

import (
	"net/netip"
	"net/url"
)

// Loader is what asks for a program to boot.
type Loader string

// The loaders.
const (
	IPXE Loader = "iPXE"
	// The firmware of a machine, by what it can run.
	BIOS    Loader = "PXE of BIOS"
	UEFI    Loader = "PXE of UEFI, x86-64"
	UEFIArm Loader = "PXE of UEFI, arm64"
	HTTP    Loader = "HTTP boot of UEFI, x86-64"
	HTTPArm Loader = "HTTP boot of UEFI, arm64"
	Unknown Loader = "a firmware of another kind"
)

// files are the programs of iPXE for firmware, by names of files. Those for UEFI use its driver of the network port,
// which works where the firmware has come so far.
var files = map[Loader]string{
	BIOS: "undionly.kpxe",
	UEFI: "snponly.efi", HTTP: "snponly.efi",
	UEFIArm: "snponly-arm64.efi", HTTPArm: "snponly-arm64.efi",
}

// Program is the name of the program that a firmware loads; empty: it loads none.
func Program(l Loader) string { return files[l] }

// Files are the names of the programs that firmware loads.
func Files() []string { return []string{files[BIOS], files[UEFI], files[UEFIArm]} }

// The paths of the HTTP service. What is below PathBoot is NODE/TOKEN/WHAT.
const (
	PathScript = "/boot/script"
	PathFiles  = "/boot/files/"
	PathBoot   = "/boot/machine/"
)

// bootFile returns what a machine boots, and the end of a sentence about it.
func bootFile(q Query, s Site, m *Machine) (file, why string) {
	switch {
	case q.Loader == "":
		return "", ""
	case !m.Boots:
		return "", "; it was not asked to boot from the network"
	case q.Loader == IPXE:
		return s.url(PathScript) + "?" + url.Values{"mac": {q.MAC}}.Encode(), "; it boots from the network"
	case files[q.Loader] == "":
		return "", "; there is no program for " + string(q.Loader)
	case q.Loader == HTTP || q.Loader == HTTPArm:
		return s.url(PathFiles) + files[q.Loader], "; it loads iPXE"
	default:
		return files[q.Loader], "; it loads iPXE"
	}
}

// url returns the address of a path of the HTTP service.
func (s Site) url(path string) string {
	return (&url.URL{Scheme: "http", Host: netip.AddrPortFrom(s.Server.Addr(), s.Web).String(), Path: path}).String()
}
