// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
)

const (
	realKey  = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDIhz2GK/XCUj4i6Q5yQJNL1MDC4Qo5Gf9dTcQZ3d9vV"
	otherKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHIhz2GK/XCUj4i6Q5yQJNL1MDC4Qo5Gf9dTcQZ3d9vV"
)

func TestParseHostKey(t *testing.T) {
	for _, text := range []string{realKey, "  " + realKey + " root@web-1\n", realKey + "\tx; rm -rf /"} {
		if key, err := ParseHostKey(text); key != realKey || err != nil {
			t.Errorf("%q: %q, %v", text, key, err)
		}
	}

	blob := strings.Fields(realKey)[1]
	for _, text := range []string{
		"", "ssh-ed25519", blob, "ssh-rsa " + blob, "-oProxyCommand=x " + blob, "ssh-ed25519 not-base64",
		"ssh-ed25519 AAAAAAAAAAAAAAAAAAAAAAAA", "ssh-ed25519 /////AAAAAAAAAAAAAAA", "* " + realKey,
		"ssh-ed25519-cert-v01@openssh.com " + blob, "ssh-ed25519 " + strings.Repeat("A", maxHostKey),
		"{{ x }} " + blob, "@cert-authority * " + realKey,
	} {
		key, err := ParseHostKey(text)
		if key != "" || inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%q: %q, %v", text, key, err)
		}

		if err != nil && len(err.Error()) > 300 {
			t.Errorf("the error has %d bytes", len(err.Error()))
		}
	}
}

func TestFingerprint(t *testing.T) {
	// By ssh-keygen -lf.
	const want = "SHA256:p9s6V+Gr1eaCde02tN2mqA2e1wDrrWssF2TugK8gsV0"
	if got := Fingerprint(realKey); got != want || CheckFingerprint(got) != nil {
		t.Errorf("%s, want %s", got, want)
	}

	if got := Fingerprints([]string{realKey}); !slices.Equal(got, []string{"ssh-ed25519 " + want}) {
		t.Errorf("got %v", got)
	}

	for _, bad := range []string{"", "SHA256:", want + "=", "MD5:aa:bb", want[7:], " " + want, want + "\n"} {
		if inventory.KindOf(CheckFingerprint(bad)) != inventory.KindInvalid {
			t.Errorf("%q is accepted", bad)
		}
	}

	if Fingerprint("nonsense") != "" || Fingerprint("ssh-ed25519 !") != "" {
		t.Error("a malformed key has a fingerprint")
	}
}

// TestHostCA: without a recorded key, only a certificate for the address counts; a
// recorded key is checked whatever the CAs.
func TestHostCA(t *testing.T) {
	h := Host{Name: "web-1", Addr: "10.0.0.1", Role: RoleTarget, HostCAs: []string{realKey}}

	args := strings.Join(SSHArgs(h), " ")
	if !strings.Contains(args, "HostKeyAlias=10.0.0.1 ") || !strings.Contains(args, "StrictHostKeyChecking=yes") {
		t.Errorf("arguments: %s", args)
	}

	if got := string(KnownHosts([]Host{h})); got != "@cert-authority 10.0.0.1 "+realKey+"\n" {
		t.Errorf("known_hosts: %s", got)
	}

	h.HostKeys = []string{otherKey}

	args = strings.Join(SSHArgs(h), " ")
	if !strings.Contains(args, "HostKeyAlias=web-1 ") || !strings.Contains(args, "StrictHostKeyChecking=yes") {
		t.Errorf("arguments with a key: %s", args)
	}

	if got := string(KnownHosts([]Host{h})); got != "web-1 "+otherKey+"\n" {
		t.Errorf("known_hosts with a key: %s", got)
	}

	h.HostKeys, h.HostCAs, h.Addr = nil, []string{"* ssh-rsa\nAAAA"}, "10.0.0.1\n*"
	if got := KnownHosts([]Host{h}); len(got) > 0 {
		t.Errorf("malformed: %s", got)
	}

	if inventory.KindOf(CheckHosts([]Host{h})) != inventory.KindInvalid {
		t.Error("a malformed CA is accepted")
	}
}
