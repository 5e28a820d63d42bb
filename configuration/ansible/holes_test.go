// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

// fakePlaybook writes an ansible-playbook that runs a script.
func fakePlaybook(t *testing.T, script string) string {
	t.Helper()

	path := filepath.Join(t.TempDir(), "ansible-playbook")

	const head = "#!/bin/sh\nfor playbook; do :; done\ndir=$(dirname \"$playbook\")\n"
	errtest.None(t, writeProgram(path, head+script))

	return path
}

// TestProbeTemplates probes programs that evaluate templates of a host, of a variable,
// or none, and some that cannot be probed.
func TestProbeTemplates(t *testing.T) {
	t.Parallel()

	const done = "echo " + probeMark

	evaluate := func(file string) string {
		return `sed -n "s/.*'touch \([^']*\)'.*/\1/p" "$dir/` + file + `" | head -n 1 | xargs touch` + "\n"
	}

	for name, c := range map[string]struct {
		script string
		kind   inventory.Kind
		text   string
	}{
		"facts":             {evaluate("library/evil_module.py") + done, inventory.KindRefused, "as a template"},
		"variables":         {evaluate("extra.yml") + done, inventory.KindRefused, "accept_vulnerable_ansible"},
		"vulnerable, fails": {evaluate("extra.yml") + "exit 4", inventory.KindRefused, "as a template"},
		"fails":             {"echo no module >&2; exit 4", inventory.KindInternal, "cannot probe"},
		"ends early":        {"exit 0", inventory.KindInternal, "did not reach its end"},
		"safe":              {done, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			temp := t.TempDir()

			err := ProbeTemplates(t.Context(), fakePlaybook(t, c.script), temp)
			if (err == nil) != (c.text == "") ||
				err != nil && (inventory.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.text)) {
				t.Errorf("got %v, want %q %q", err, c.kind, c.text)
			}

			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("the probe left %v, %v", left, err)
			}
		})
	}
}

// TestLiveProbe probes the real Ansible, which is not vulnerable. It reaches every
// task: a probe that stops at the first one would find nothing.
func TestLiveProbe(t *testing.T) {
	if os.Getenv("CLUSTERM_LAB") == "" {
		t.Skip("set CLUSTERM_LAB=1 to run the real Ansible")
	}

	errtest.None(t, ProbeTemplates(t.Context(), "", t.TempDir()))

	// The same playbook, with the facts marked as trusted templates, evaluates them.
	path := filepath.Join(t.TempDir(), "ansible-playbook")

	const trusting = `#!/bin/sh
for playbook; do :; done
sed -i 's/!unsafe//g' "$(dirname "$playbook")/extra.yml"
exec ansible-playbook "$@"
`
	errtest.None(t, writeProgram(path, trusting))

	if err := ProbeTemplates(t.Context(), path, t.TempDir()); inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("an Ansible that evaluates variables: %v", err)
	}
}
