// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"strings"
	"testing"

	"github.com/contiv/cluster/configuration"
)

// TestProbeLive probes a real sshd by the real ssh: with its recorded key, with
// another one, without one, and with a key of the client that it does not accept.
func TestProbeLive(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	s := startSSHD(t)
	other := t.TempDir() + "/other"
	generateKey(t, other)

	h := func(key, keyFile string) configuration.Host {
		host := configuration.Host{
			Name: "a-1", Label: "a", Serial: "1", Addr: liveAddrs[0], Role: configuration.RoleTarget,
			Connection: configuration.Connection{User: s.user, KeyFile: keyFile, Port: s.port},
		}
		if key != "" {
			host.HostKeys = []string{key}
		}
		return host
	}

	wrong := "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDIhz2GK/XCUj4i6Q5yQJNL1MDC4Qo5Gf9dTcQZ3d9vV"
	hosts := []configuration.Host{
		h(s.hostKey, s.keyFile), h("", s.keyFile), h(wrong, s.keyFile), h(s.hostKey, other),
	}

	for i, r := range (&Prober{Dir: t.TempDir()}).Probe(t.Context(), hosts) {
		good := i < 2
		if r.OK() != good || r.Took <= 0 {
			t.Errorf("host %d: %+v", i, r)
		}

		if i == 2 && !configuration.AboutRecordedKey(r.Login) || i == 3 && !configuration.AboutAccess(r.Login) {
			t.Errorf("host %d: %+v", i, r)
		}

		if strings.Contains(r.Reason(), "\n") {
			t.Errorf("host %d: %q has several lines", i, r.Reason())
		}
	}
}
