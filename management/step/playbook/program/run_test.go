// SPDX-License-Identifier: Apache-2.0

package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
)

// TestLastError checks that the last error line comes from ansible-playbook itself,
// not from the output of a host.
func TestLastError(t *testing.T) {
	t.Parallel()

	name := filepath.Join(t.TempDir(), "output")
	if got := lastError(name); got != "" {
		t.Errorf("%q of nothing", got)
	}

	for text, want := range map[string]string{
		"":                          "",
		"PLAY [a] ***\nok: [a-1]\n": "",
		"PLAY [a] ***\nERROR! Attempting to decrypt but no vault secrets found\n": "ERROR! Attempting to decrypt " +
			"but no vault secrets found",
		strings.Repeat("x\n", 10000) +
			"ERROR! first\nERROR! Syntax Error\n\nThe error appears to be in 'a'\n": "ERROR! Syntax Error",
		"[ERROR]: Attempting to decrypt\nOrigin: a\n  ERROR! not this\n": "[ERROR]: Attempting to decrypt",

		"ERROR! long ago\n" + strings.Repeat("ok: [a-1] => \"ERROR! not this\"\n", 1000): "",
	} {
		errtest.None(t, os.WriteFile(name, []byte(text), 0o600))

		if got := lastError(name); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
