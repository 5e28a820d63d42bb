// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/doctest"
	"github.com/contiv/cluster/inventory/evidence"
)

// whole is a machine of which everything is known.
func whole() evidence.Set {
	return evidence.Set{
		Agent: "web-0a1b2c3d4e5f", HostKeys: []string{"ssh-ed25519 AAAA1"},
		UUID: "4c4c4544-0042-3510-8054-b4c04f4d5932", Serial: "B5THMY2", TPM: strings.Repeat("a", 64), BMC: "10.9.0.5",
		MACs: []string{"52:54:00:aa:00:01", "52:54:00:aa:00:02"}, Addr: "10.0.0.5",
	}
}

// other is another machine of which everything is known.
func other() evidence.Set {
	return evidence.Set{
		Agent: "db-ffff2c3d4e5f", HostKeys: []string{"ssh-ed25519 AAAA2"},
		UUID: "4c4c4544-0042-3510-8054-000000000001", Serial: "C6THMY2", TPM: strings.Repeat("b", 64), BMC: "10.9.0.6",
		MACs: []string{"52:54:00:bb:00:01"}, Addr: "10.0.0.6",
	}
}

// TestCompare: what happens to real machines makes no twins, and merges none.
func TestCompare(t *testing.T) {
	t.Parallel()

	const (
		same   = "same"
		unsure = "unsure"
		apart  = "apart"
	)

	for _, c := range []struct {
		name   string
		change func(b *evidence.Set) // of a machine that is whole
		want   string
	}{
		{"as before", func(*evidence.Set) {}, same},
		{"a new network card", func(b *evidence.Set) { b.MACs = []string{"52:54:00:aa:00:09"} }, same},
		{"one of two network cards", func(b *evidence.Set) { b.MACs = b.MACs[1:] }, same},
		{"a new mainboard", func(b *evidence.Set) {
			o := other()
			b.UUID, b.Serial, b.TPM, b.MACs = o.UUID, o.Serial, o.TPM, o.MACs
		}, same},
		{"a new mainboard, whose BMC has another address", func(b *evidence.Set) {
			o := other()
			b.UUID, b.Serial, b.TPM, b.MACs, b.BMC = o.UUID, o.Serial, o.TPM, o.MACs, o.BMC
		}, same},
		{"a new installation", func(b *evidence.Set) {
			o := other()
			b.Agent, b.HostKeys = o.Agent, o.HostKeys
		}, same},
		{"another address", func(b *evidence.Set) { b.Addr = "10.0.0.99" }, same},
		{"another machine", func(b *evidence.Set) { *b = other() }, apart},
		{"another machine at the address", func(b *evidence.Set) {
			*b = other()
			b.Addr = whole().Addr
		}, apart},
		{"another machine with the same serial number", func(b *evidence.Set) {
			*b = other()
			b.Serial = whole().Serial
		}, apart},
		{"another machine with a copy of the disk", func(b *evidence.Set) {
			disk := *b
			*b = other()
			b.Agent, b.HostKeys = disk.Agent, disk.HostKeys
		}, unsure},
		{"another TPM, in a slot", func(b *evidence.Set) { b.TPM = other().TPM }, same},
		{"only the TPM is known", func(b *evidence.Set) { *b = evidence.Set{TPM: b.TPM} }, same},
		{"another TPM, and an address that was given again", func(b *evidence.Set) {
			*b = evidence.Set{TPM: other().TPM, Addr: b.Addr}
		}, apart},
		{"another TPM, and a serial number that many have", func(b *evidence.Set) {
			*b = evidence.Set{TPM: other().TPM, Serial: b.Serial}
		}, apart},
		{"only the address is known", func(b *evidence.Set) {
			*b = evidence.Set{Addr: b.Addr}
		}, unsure},
		{"only the UUID is known", func(b *evidence.Set) {
			*b = evidence.Set{UUID: b.UUID}
		}, same},
		{"nothing is known", func(b *evidence.Set) { *b = evidence.Set{} }, unsure},
	} {
		b := whole()
		c.change(&b)

		v, back := evidence.Compare(whole(), b), evidence.Compare(b, whole())

		got := unsure
		if v.Score >= evidence.Certain {
			got = same
		} else if v.Score < 0 {
			got = apart
		}

		if got != c.want || back.Score != v.Score {
			t.Errorf("%s: %s, want %s: %s; and the other way %d", c.name, got, c.want, v, back.Score)
		}
	}
}

// TestMadeUp: values that vendors give to many machines count for nothing, in any spelling.
func TestMadeUp(t *testing.T) {
	t.Parallel()

	for value, want := range map[string]bool{
		"": true, "To Be Filled By O.E.M.": true, "To be filled by O.E.M": true, "Default string": true,
		"0123456789": true, "System Serial Number": true, "0": true, "00000000": true, "N/A": true,
		"............":                         true,
		"00000000-0000-0000-0000-000000000000": true, "ffffffff-ffff-ffff-ffff-ffffffffffff": true,
		"FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF": true, "03000200-0400-0500-0006-000700080009": true,
		"B5THMY2": false, "4c4c4544-0042-3510-8054-b4c04f4d5932": false, "CZJ1234567": false,
	} {
		if got := evidence.MadeUp(value); got != want {
			t.Errorf("%q is made up: %t", value, got)
		}
	}

	a := evidence.Set{Serial: "To Be Filled By O.E.M.", UUID: "00000000-0000-0000-0000-000000000000"}
	if v := evidence.Compare(a, a); v.Score != 0 || len(v.Same) > 0 {
		t.Errorf("two machines with made-up values: %s", v)
	}
}

// TestWords: a verdict names what is equal and what is not.
func TestWords(t *testing.T) {
	t.Parallel()

	b := other()
	b.MACs = append(b.MACs, whole().MACs[1])

	text := evidence.Compare(whole(), b).String()
	if !strings.HasPrefix(
		text,
		"the same MAC 52:54:00:aa:00:02, but another TPM, ssh host key, agent, UUID, serial number, BMC",
	) {
		t.Errorf("%q", text)
	}
}

// TestEvidenceDocument compares the table of docs/operating/registration.md with the weights.
func TestEvidenceDocument(t *testing.T) {
	t.Parallel()

	var b strings.Builder
	b.WriteString("| evidence | the same | different |\n|---|---|---|\n")

	for _, part := range evidence.Parts {
		fmt.Fprintf(&b, "| %s | %d | %d |\n", part.Part, part.Same, -part.Differs)
	}

	doctest.Check(t, "../../docs/operating/registration.md", map[string]string{"evidence": b.String()})
}

// TestBMC: a machine itself does not know the port of its BMC. Several machines may share an address.
func TestBMC(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"10.9.0.5:623", "10.9.0.5", true},
		{"10.9.0.5:443 /redfish/v1/Systems/1", "10.9.0.5", true},
		{"[fd00::5]:623", "fd00::5", true},
		{"10.9.0.5:623", "10.9.0.6", false},
		{"10.9.0.5:6230", "10.9.0.5:6231", false},
		{"10.9.0.5:443 /redfish/v1/Systems/1", "10.9.0.5:443 /redfish/v1/Systems/2", false},
		{"bmc1:623", "10.9.0.5", false},
	} {
		for _, v := range []evidence.Verdict{
			evidence.Compare(evidence.Set{BMC: c.a}, evidence.Set{BMC: c.b}),
			evidence.Compare(evidence.Set{BMC: c.b}, evidence.Set{BMC: c.a}),
		} {
			if (v.Score == 40) != c.same || (v.Score == -20) == c.same {
				t.Errorf("%s and %s: %s", c.a, c.b, v)
			}
		}
	}
}
