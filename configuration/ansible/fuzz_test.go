// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory/errtest"
)

// FuzzPlays expects the list of plays never to have more plays or hosts than lines,
// and a host to be a line of Ansible's and not a part of a name.
func FuzzPlays(f *testing.F) {
	for _, s := range []string{
		"\n  play #1 (all): Every node\tTAGS: []\n    pattern: ['all']\n    hosts (1):\n      web-1\n",
		"  play #1 (a,b): x (y): z\tTAGS: []\n    pattern: ['a', 'b']\n    hosts (0):\n",
		"    pattern: ['x']\n      web-1\n", "  play #", "",
		"  play #1 (x): evil\n  play #2 (all): y\tTAGS: []\n",
		"  play #1 (\"it's\"): y\tTAGS: []\n    pattern: [\"it's\"]\n",
	} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, out string) {
		lines := 1 + strings.Count(out, "\n")

		plays := playsIn(out)
		if len(plays) > lines {
			t.Fatalf("%q has %d plays", out, len(plays))
		}

		hosts := 0
		for _, p := range plays {
			hosts += len(p.Hosts)

			for _, h := range p.Hosts {
				if strings.Contains(h, "\n") || !strings.Contains(out, "      "+h) {
					t.Fatalf("%q has the host %q", out, h)
				}
			}

			if strings.Contains(p.Name, "\n") {
				t.Fatalf("%q has the play %q", out, p.Name)
			}
		}

		if hosts > lines {
			t.Fatalf("%q has %d hosts", out, hosts)
		}
	})
}

// FuzzNewHostKeys reads the folder of a run: only hosts without a recorded key get
// one, and only a key of the file of ssh.
func FuzzNewHostKeys(f *testing.F) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJhc2U2NGJhc2U2NA=="

	f.Add([]byte(`{"unknown":["web-1"]}`), []byte("web-1 "+key+"\nother "+key+"\n"))
	f.Add([]byte(`{"unknown":["WEB-1","../x",""]}`), []byte("web-1 "+key+"\n"))
	f.Add([]byte(`{`), []byte{})
	f.Add([]byte(`{"unknown":[7]}`), []byte("\xff"))

	dir := f.TempDir()

	f.Fuzz(func(t *testing.T, spec, hosts []byte) {
		for name, content := range map[string][]byte{fileSpec: spec, fileKnownHosts: hosts} {
			errtest.None(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
		}

		found, err := NewHostKeys(dir)
		if err != nil {
			return
		}

		l, err := readLaunch(dir)
		if err != nil || len(found) > len(l.Unknown) {
			t.Fatalf("%q: %v, %v", spec, found, err)
		}

		known := configuration.ParseKnownHosts(hosts)
		for name, keys := range found {
			if len(keys) == 0 || len(known[strings.ToLower(name)]) != len(keys) {
				t.Fatalf("%q and %q gave %q the keys %q", spec, hosts, name, keys)
			}
		}
	})
}
