// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/configuration"
)

// TestHostKeysLive reads the host keys of a real sshd, without an account on it.
func TestHostKeysLive(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	s, p := startSSHD(t), &Prober{Dir: t.TempDir()}

	h := s.host("Web-1", liveAddrs[0])
	h.Connection.User, h.Connection.KeyFile = "nobody-here", ""
	h.HostKeys = []string{otherKey(t)}

	keys, err := p.HostKeys(t.Context(), h)
	if err != nil || !slices.Equal(keys, []string{s.hostKey}) {
		t.Errorf("got %v, %v; want %s", keys, err, s.hostKey)
	}

	h.Connection.Port = 1
	if keys, err := p.HostKeys(t.Context(), h); err == nil || !strings.Contains(err.Error(), "refuses") {
		t.Errorf("without an sshd: %v, %v", keys, err)
	}

	over, cancel := context.WithCancel(t.Context())
	cancel()

	h.Connection.Port = s.port
	if keys, err := p.HostKeys(over, h); err == nil {
		t.Errorf("after the end: %v", keys)
	}
}

// TestHostCALive: a host is trusted by a certificate of the site's CA for its address,
// and neither by its key, nor for another address, nor by another CA.
func TestHostCALive(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	s := startSSHD(t, liveAddrs[0], "other.example")

	with := func(addr, ca string) configuration.Host {
		h := s.host("web-1", addr)
		h.HostCAs = []string{ca}
		return h
	}
	hosts := []configuration.Host{
		with(
			liveAddrs[0],
			s.ca,
		),
		with(liveAddrs[1], s.ca),
		with(liveAddrs[0], otherKey(t)),
		with(liveAddrs[0], s.hostKey),
	}

	for i, r := range (&Prober{Dir: t.TempDir()}).Probe(t.Context(), hosts) {
		if r.OK() != (i == 0) || !r.OK() && !configuration.AboutHostKey(r.Login) {
			t.Errorf("host %d: %+v", i, r)
		}
	}

	// The recorded key counts, if there is one.
	h := with(liveAddrs[0], s.ca)
	h.HostKeys = []string{otherKey(t)}

	if r := (&Prober{Dir: t.TempDir()}).Probe(t.Context(), []configuration.Host{h})[0]; r.OK() {
		t.Error("the recorded key is not checked")
	}

	// A scan shows the plain key.
	keys, err := (&Prober{Dir: t.TempDir()}).HostKeys(t.Context(), h)
	if err != nil || !slices.Equal(keys, []string{s.hostKey}) {
		t.Errorf("got %v, %v; want %s", keys, err, s.hostKey)
	}
}
