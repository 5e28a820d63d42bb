// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
)

const bootLine = "0b1d9b5e-33f1-4c52-9d8a-3f0d6f2a7c11"

func TestParseVitals(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name, text string
		want       configuration.Vitals
	}{
		{"all", bootLine + "\n100.50 321.00\n40500000\n",
			configuration.Vitals{Boot: bootLine, Uptime: 100500 * time.Millisecond, Agent: time.Minute}},
		{"no agent", bootLine + "\n100.50 321.00\n0\n",
			configuration.Vitals{Boot: bootLine, Uptime: 100500 * time.Millisecond}},
		{"no systemd", bootLine + "\n7.00 1.00\n", configuration.Vitals{Boot: bootLine, Uptime: 7 * time.Second}},
		{"nothing", "", configuration.Vitals{}},
		{"a boot id in another form", "it's me\n100.50 1\n1000000\n",
			configuration.Vitals{Uptime: 100500 * time.Millisecond, Agent: 99500 * time.Millisecond}},
		{"a negative uptime", bootLine + "\n-5 1\n1\n", configuration.Vitals{Boot: bootLine}},
		{"not a number", bootLine + "\nNaN 1\n1\n", configuration.Vitals{Boot: bootLine}},
		{"an endless uptime", bootLine + "\n1e300 1\n1\n", configuration.Vitals{Boot: bootLine}},
		{"an agent older than the host", bootLine + "\n5 1\n6000000\n",
			configuration.Vitals{Boot: bootLine, Uptime: 5 * time.Second}},
	} {
		if got := parseVitals(c.text); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestVitals reads the vitals of a host through a program in place of ssh.
func TestVitals(t *testing.T) {
	t.Parallel()

	port := serve(t, "SSH-2.0-test\r\n")
	p := &Prober{Dir: t.TempDir(), SSH: fakeSSH(t, `printf '`+bootLine+`\n100.0 1\n0\n'; yes | head -c 100000`)}

	v, r := p.Vitals(t.Context(), host(port))
	if !r.OK() || v.Boot != bootLine || v.Uptime != 100*time.Second {
		t.Errorf("%+v, %+v", v, r)
	}

	p.SSH = fakeSSH(t, `echo 'no way in' >&2; exit 255`)

	v, r = p.Vitals(t.Context(), host(port))
	if r.OK() || v != (configuration.Vitals{}) || !strings.Contains(r.Reason(), "no way in") {
		t.Errorf("%+v, %+v", v, r)
	}
}
