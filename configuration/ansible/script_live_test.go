// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
)

// TestScriptLive runs a script on a real sshd, with a secret as its input.
func TestScriptLive(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	s, p := startSSHD(t), &Prober{Dir: t.TempDir()}
	h := s.host("web-1", liveAddrs[0])
	h.HostKeys = []string{s.hostKey}

	file := filepath.Join(t.TempDir(), "it's here")

	script := "umask 077 && cat >" + quote(file) + " && echo done"
	errtest.None(t, p.Script(t.Context(), h, script, []byte("a secret\n")))

	if b, err := os.ReadFile(file); err != nil || string(b) != "a secret\n" {
		t.Errorf("%q, %v", b, err)
	}

	err := p.Script(t.Context(), h, `printf 'one\n\033[2Jtwo\n' >&2; exit 3`, nil)
	if err == nil || err.Error() != "exit status 3: ?[2Jtwo" {
		t.Errorf("a script that fails: %v", err)
	}

	h.HostKeys = []string{otherKey(t)}

	err = p.Script(t.Context(), h, "rm -f "+quote(file), nil)
	if err == nil || !strings.Contains(err.Error(), "not the one recorded") {
		t.Errorf("another host: %v", err)
	}

	if _, err := os.Stat(file); err != nil {
		t.Error("the script ran on a host with another key")
	}
}
