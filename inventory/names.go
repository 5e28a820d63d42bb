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

// NodeName returns the name of a node: label, hyphen, serial number.
func NodeName(label, serial string) string { return label + "-" + serial }

// CheckLabel validates the label of an agent: a word of at most 63 letters,
// digits, dots, underscores and hyphens, with a letter or digit at both ends.
func CheckLabel(s string) error { return checkWord("label", s, MaxLabel) }

// CheckSerial validates a serial number, which has the grammar of a label.
func CheckSerial(s string) error { return checkWord("serial number", s, MaxSerial) }

// CheckName validates the name of a node.
func CheckName(s string) error { return checkWord("node name", s, MaxLabel+1+MaxSerial) }

// CheckGroup validates the name of a group, which has the grammar of a label.
func CheckGroup(s string) error { return checkWord("group name", s, MaxLabel) }

// CheckEntryName validates the name of an entry of a setting, such as a maintenance
// window. It has the grammar of a label.
func CheckEntryName(s string) error { return checkWord("name", s, MaxLabel) }

// Choices returns the choices for people: "a, b or c".
func Choices[T ~string](choices []T) string {
	var b strings.Builder

	for i, choice := range choices {
		switch {
		case i > 0 && i == len(choices)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}

		b.WriteString(string(choice))
	}

	return b.String()
}

// checkWord validates s as a word of at most limit bytes; noun names it in errors.
func checkWord(noun, s string, limit int) error {
	switch {
	case s == "":
		return Errorf(KindInvalid, "the %s is empty", noun).Do("give one")
	case len(s) > limit:
		return Errorf(KindInvalid, "the %s has %d bytes, the limit is %d", noun, len(s), limit)
	case !word.MatchString(s):
		return Errorf(KindInvalid, "%q is not a %s", s, noun).
			Do("use letters, digits, '.', '_' and '-', with a letter or a digit at both ends")
	}

	return nil
}

// CheckAddr validates the address of a host: an IPv4 or IPv6 unicast address, or a
// host name (RFC 1123 section 2.1). It rejects addresses with a zone, which
// have a meaning on a single host only.
func CheckAddr(s string) error {
	invalid := func(reason string) error {
		return Errorf(KindInvalid, "%q is not the address of a host: %s", s, reason).
			Do("give an IPv4 address, an IPv6 address without brackets, or a host name")
	}

	if s == "" || len(s) > MaxAddr {
		return invalid("it is empty or longer than 253 bytes")
	}

	if ip, err := netip.ParseAddr(s); err == nil {
		broadcast := netip.AddrFrom4([4]byte{255, 255, 255, 255})

		switch {
		case ip.Zone() != "":
			return invalid("it has a zone")
		case ip.IsUnspecified(), ip.IsMulticast(), ip == broadcast:
			return invalid("it does not name one host")
		case ip.Is4In6():
			// The same host would have two addresses.
			return invalid("it is an IPv4 address in IPv6 form")
		}

		return nil
	}

	// A colon or a name of digits and dots is a mistyped IP address.
	if strings.Contains(s, ":") || numeric.MatchString(s) || !hostname.MatchString(s) {
		return invalid("it does not parse")
	}

	return nil
}
