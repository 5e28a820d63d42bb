// SPDX-License-Identifier: Apache-2.0

// Package evidence judges whether two descriptions are of the same machine. No single part decides: a mainboard is
// replaced, a disk is copied, and vendors give many machines the same serial number. So each part of the evidence has a
// weight, for equality and against it. The package is pure.
package evidence

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Set is what is known of the identity of a machine. An empty part is not known.
type Set struct {
	Name     string   // that the site gave it
	Agent    string   // the name that its agent announces: host name and machine-id, which are on its disk
	HostKeys []string // of ssh, which are on its disk
	UUID     string   // of the system (SMBIOS), lower case
	Serial   string   // of the system (SMBIOS)
	TPM      string   // the SHA-256 of the public endorsement key, hexadecimal
	BMC      string   // the address of its BMC: with the port and the system, or the IP address alone
	MACs     []string // lower case, with colons
	Addr     string   // the address for ssh
}

// Part is a kind of evidence.
type Part string

// The parts.
const (
	Agent    Part = "agent"
	HostKeys Part = "ssh host key"
	UUID     Part = "UUID"
	Serial   Part = "serial number"
	TPM      Part = "TPM"
	BMC      Part = "BMC"
	MACs     Part = "MAC"
	Addr     Part = "address"
	Name     Part = "name"
)

// Parts lists the parts with their weights: what equality counts for one machine, and what a difference counts against
// it. What a repair or a new installation changes counts less against it.
//
// A TPM counts most: nobody can copy its key, or give two the same one. But it is soldered to the mainboard, and so are
// UUID and serial number: one repair changes all three. See Mainboard.
var Parts = []struct {
	Part          Part
	Same, Differs int
	values        func(Set) []string
	equal         func(a, b string) bool // nil: as they are
	onMainboard   bool
}{
	{TPM, 70, 50, func(e Set) []string { return one(e.TPM) }, nil, true},
	{HostKeys, 60, 40, func(e Set) []string { return e.HostKeys }, nil, false},
	{Agent, 60, 30, func(e Set) []string { return one(e.Agent) }, nil, false},
	{UUID, 50, 30, func(e Set) []string { return genuine(e.UUID) }, nil, true},
	{Serial, 40, 20, func(e Set) []string { return genuine(e.Serial) }, nil, true},
	{BMC, 40, 20, func(e Set) []string { return one(e.BMC) }, sameBMC, false},
	{MACs, 40, 10, func(e Set) []string { return e.MACs }, nil, false},
	{Name, 30, 0, func(e Set) []string { return one(e.Name) }, nil, false},
	{Addr, 20, 0, func(e Set) []string { return one(e.Addr) }, nil, false},
}

// Mainboard is the most that the parts on the mainboard together count against one machine, so that a new mainboard
// makes no twin.
const Mainboard = 50

// Certain is the score from which two descriptions are of one machine. Below zero they are of two.
const Certain = 50

// Possible is the score from which they may be: one strong part is equal, and none counts against it.
const Possible = 40

func one(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}

// genuine returns a UUID or a serial number, unless a vendor made it up.
func genuine(value string) []string {
	if MadeUp(value) {
		return nil
	}
	return one(value)
}

// sameBMC compares two BMCs. A machine itself knows only the IP address of its BMC, and not the port.
func sameBMC(a, b string) bool {
	if _, err := netip.ParseAddr(a); err != nil {
		a, b = b, a
	}
	if _, err := netip.ParseAddr(a); err != nil {
		return false
	}

	place, _, _ := strings.Cut(b, " ")
	host, _, err := net.SplitHostPort(place)

	return err == nil && host == a
}

// Fact is a part of the evidence on a machine, with what it counts.
type Fact struct {
	Part          Part
	Value         string
	Same, Differs int
}

// Facts lists what is known, by the weight.
func (e Set) Facts() []Fact {
	var all []Fact

	for _, part := range Parts {
		if values := part.values(e); len(values) > 0 {
			text := strings.Join(values[:min(len(values), maxValues)], ", ")
			if more := len(values) - maxValues; more > 0 {
				text += fmt.Sprintf(" and %d more", more)
			}
			if part.Part == HostKeys {
				text = ""
			}

			all = append(all, Fact{part.Part, text, part.Same, part.Differs})
		}
	}

	return all
}

// maxValues is how many values of a part are shown.
const maxValues = 4

// String describes the fact, such as "UUID 4c4c… (50)".
func (f Fact) String() string {
	return fmt.Sprintf("%s (%d)", strings.TrimSpace(string(f.Part)+" "+f.Value), f.Same)
}

// Verdict is the result of a comparison.
type Verdict struct {
	Score   int
	Same    []string // the equal parts, with a common value
	Differs []string // the parts that count against it: known of both, and without a common value
}

// Compare compares two descriptions.
func Compare(a, b Set) Verdict {
	var (
		v         Verdict
		mainboard = Mainboard // what may still count against it
	)

	for _, part := range Parts {
		left, right := part.values(a), part.values(b)
		if len(left) == 0 || len(right) == 0 {
			continue
		}

		i := slices.IndexFunc(left, func(value string) bool {
			return slices.ContainsFunc(right, func(other string) bool {
				return value == other || part.equal != nil && part.equal(value, other)
			})
		})
		if i < 0 {
			against := part.Differs
			if part.onMainboard {
				against = min(against, mainboard)
				mainboard -= against
			}

			if v.Score -= against; part.Differs > 0 {
				v.Differs = append(v.Differs, string(part.Part))
			}

			continue
		}

		v.Score += part.Same
		v.Same = append(v.Same, shown(part.Part, left[i]))
	}

	return v
}

// shown describes a value. A key is too long.
func shown(p Part, value string) string {
	if p == HostKeys || p == TPM {
		return string(p)
	}
	return string(p) + " " + value
}

// String describes the verdict.
func (v Verdict) String() string {
	text := "nothing in common"
	if len(v.Same) > 0 {
		text = "the same " + strings.Join(v.Same, ", ")
	}
	if len(v.Differs) > 0 {
		text += ", but another " + strings.Join(v.Differs, ", ")
	}
	return fmt.Sprintf("%s (%d)", text, v.Score)
}

// madeUp are UUIDs and serial numbers that many machines have, in lower case and without separators.
var madeUp = []string{
	"tobefilledbyoem", "defaultstring", "systemserialnumber", "chassisserialnumber", "notspecified", "notapplicable",
	"none", "na", "unknown", "invalid", "oem", "serial", "serialnumber", "0123456789", "1234567890", "123456789",
	"12345678", "1234567", "123456", "0123456789abcdef", "empty", "default", "asset1234567890", "xxxxxxxxxx",
	"03000200040005000006000700080009", "12345678123456789012123456789012", "00020003000400050006000700080009",
	"03020100050407060809aabbccddeeff", "fefefefefefefefefefefefefefefefe", "ffffffff000000000000000000000000",
}

// MadeUp reports whether a UUID or a serial number says nothing, because many machines have it.
func MadeUp(value string) bool {
	plain := strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		}

		return -1
	}, value)

	// Nothing, or one character again and again: 0000…, FFFF….
	if strings.Trim(plain, plain[:min(len(plain), 1)]) == "" {
		return true
	}

	return slices.Contains(madeUp, plain)
}
