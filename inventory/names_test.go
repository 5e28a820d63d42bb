// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"net/netip"
	"strings"
	"testing"
	"unicode"
)

func TestWords(t *testing.T) {
	t.Parallel()

	checks := map[string]func(string) error{
		"label":  CheckLabel,
		"serial": CheckSerial,
		"name":   CheckName,
		"group":  CheckGroup,
	}
	longest := strings.Repeat("a", 63)

	for _, s := range []string{"a", "7", "node", "node-1", "rack.3_u-7", "A-b.C", longest} {
		for noun, check := range checks {
			if err := check(s); err != nil {
				t.Errorf("the %s %q is rejected: %v", noun, s, err)
			}
		}
	}

	for _, s := range []string{
		"", "-", "a-", "-a", ".a", "a.", "_a", "a b", "a\n", "\na", "a\tb", "a/b", "../a", "a:b", "a=b", "a#b", "{{a}}",
		"ä", "a\x00", "a\u2028b", "$a", "*", "a;b", "a'b", `a"b`, "@a", strings.Repeat("a", 128),
	} {
		for noun, check := range checks {
			if err := check(s); KindOf(err) != KindInvalid {
				t.Errorf("the %s %q: got %v, want an invalid error", noun, s, err)
			}
		}
	}

	err := CheckLabel(longest + "a")
	if KindOf(err) != KindInvalid || !strings.Contains(err.Error(), "64 bytes, the limit is 63") {
		t.Errorf("a label over the limit: got %v", err)
	}

	if err := CheckName(NodeName(longest, longest)); err != nil {
		t.Errorf("the longest name is rejected: %v", err)
	}
}

func TestAddrs(t *testing.T) {
	t.Parallel()

	for _, s := range []string{
		"10.0.0.1", "127.0.0.1", "fd00::1", "2001:db8::7", "::1", "fe80::1",
		"host", "host-1.example.org", "1host", "xn--bcher-kva.example",
	} {
		if err := CheckAddr(s); err != nil {
			t.Errorf("the address %q is rejected: %v", s, err)
		}
	}

	for _, s := range []string{
		"", "-", "10.0.0", "10.0.0.256", "10.0.0.1.5", "1", "0.0.0.0", "::", "255.255.255.255", "224.0.0.1", "ff02::1",
		"fe80::1%eth0", "::ffff:10.0.0.1", "[fd00::1]", "10.0.0.1:22", "host:22", "host ", " host",
		"host\nansible_host=evil", "host ansible_connection=local", "a..b", "-a.b", "a-.b", "user@host", "host/24",
		"{{ host }}", "höst", strings.Repeat("a", 64), strings.Repeat("a.", 127), "10.0.0.1 ansible_user=root",
	} {
		if err := CheckAddr(s); KindOf(err) != KindInvalid || !strings.Contains(err.Error(), "; give") {
			t.Errorf("the address %q: got %v, want an invalid error with a remedy", s, err)
		}
	}
}

// TestFirstGenerationInjection is a regression test: in the first generation an address
// or a label could inject lines into the Ansible inventory, and a member without
// tags became a node named "-".
func TestFirstGenerationInjection(t *testing.T) {
	t.Parallel()

	for _, s := range []string{
		"x\n[all:vars]\nansible_connection=local",
		"x ansible_ssh_common_args='-oProxyCommand=id'",
		"x\r\ny",
		"x # y",
	} {
		if CheckLabel(s) == nil || CheckSerial(s) == nil || CheckAddr(s) == nil {
			t.Errorf("%q is accepted as a label, a serial number or an address", s)
		}
	}

	if CheckName(NodeName("", "")) == nil || CheckLabel("") == nil || CheckSerial("") == nil {
		t.Error("an empty identity is accepted")
	}
}

func FuzzWord(f *testing.F) {
	for _, s := range []string{"", "a", "node-1", "a\n", "-", "ä", strings.Repeat("x", 200)} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, s string) {
		if CheckLabel(s) != nil {
			return
		}

		if len(s) == 0 || len(s) > MaxLabel || CheckName(s) != nil || CheckGroup(s) != nil {
			t.Errorf("the label %q is empty, too long, or no valid name or group", s)
		}

		for _, r := range s {
			if r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-", r) {
				t.Errorf("the label %q contains %q", s, r)
			}
		}

		if err := CheckName(NodeName(s, s)); err != nil {
			t.Errorf("label and serial number are valid, their name is not: %v", err)
		}
	})
}

func FuzzAddr(f *testing.F) {
	for _, s := range []string{
		"", "10.0.0.1", "fd00::1", "fe80::1%lo", "host", "h\nx", "[::1]", "1.2.3", "0x7f.1", "a.b.c-d",
	} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, s string) {
		if CheckAddr(s) != nil {
			return
		}

		if len(s) > MaxAddr || strings.ContainsAny(s, " \t\r\n'\"`$;&|<>(){}[]%@/\\#=,*?!") {
			t.Errorf("the address %q is too long or contains a special character", s)
		}

		if ip, err := netip.ParseAddr(s); err == nil {
			if ip.IsUnspecified() || ip.IsMulticast() || ip.Zone() != "" {
				t.Errorf("the address %q does not identify one host", s)
			}
		} else if strings.Contains(s, ":") || strings.HasPrefix(s, "-") {
			t.Errorf("the host name %q contains a colon or starts with a hyphen", s)
		}
	})
}
