// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"net/netip"
	"regexp"
	"strings"
)

// Limits of the grammar, in bytes.
const (
	MaxLabel  = 63
	MaxSerial = 63
	MaxAddr   = 253 // RFC 1035 section 2.3.4
)

var (
	word     = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$`)
	hostname = regexp.MustCompile(
		`^[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`,
	)
	numeric = regexp.MustCompile(`^[0-9.]+$`)
)

// NodeName is a node's name: its label, a hyphen, its serial.
func NodeName(label, serial string) string { return label + "-" + serial }

// CheckLabel refuses a label outside the grammar: letters, digits, dot,
// underscore and hyphen, starting and ending with a letter or a digit, 63 bytes.
func CheckLabel(s string) error { return checkWord("label", s, MaxLabel) }

// CheckSerial refuses a serial number outside the grammar of labels.
func CheckSerial(s string) error { return checkWord("serial number", s, MaxSerial) }

// CheckName refuses what cannot be a node's name.
func CheckName(s string) error { return checkWord("node name", s, MaxLabel+1+MaxSerial) }

// CheckGroup refuses what cannot be a group's name.
func CheckGroup(s string) error { return checkWord("group name", s, MaxLabel) }

func checkWord(what, s string, limit int) error {
	switch {
	case s == "":
		return Errorf(KindInvalid, "the %s is empty", what).Do("give one")
	case len(s) > limit:
		return Errorf(KindInvalid, "the %s has %d bytes, the limit is %d", what, len(s), limit)
	case !word.MatchString(s):
		return Errorf(KindInvalid, "%q is not a %s", s, what).
			Do("use letters, digits, '.', '_' and '-', with a letter or a digit at both ends")
	}

	return nil
}

// CheckAddr refuses what is neither an IPv4 or IPv6 address of one host nor a
// host name (RFC 1123 section 2.1). An address with a zone is refused: it
// means something on one host only.
func CheckAddr(s string) error {
	bad := func(why string) error {
		return Errorf(KindInvalid, "%q is not the address of a host: %s", s, why).
			Do("give an IPv4 address, an IPv6 address without brackets, or a host name")
	}
	if s == "" || len(s) > MaxAddr {
		return bad("it is empty or longer than 253 bytes")
	}

	if ip, err := netip.ParseAddr(s); err == nil {
		switch {
		case ip.Zone() != "":
			return bad("it has a zone")
		case ip.IsUnspecified(), ip.IsMulticast(), ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
			return bad("it does not name one host")
		case ip.Is4In6():
			return bad("it is an IPv4 address in IPv6 form")
		}

		return nil
	}

	if strings.Contains(s, ":") || numeric.MatchString(s) || !hostname.MatchString(s) {
		return bad("it does not parse")
	}

	return nil
}
