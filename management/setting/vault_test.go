// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

func TestVaultFiles(t *testing.T) {
	dir := t.TempDir()

	for mode, want := range map[os.FileMode]string{
		0o600: "", 0o400: "", 0o700: "", 0o755: "", 0o644: "read by others", 0o660: "changed by others",
		0o777: "changed by others",
	} {
		path := filepath.Join(dir, mode.String())
		errtest.None(t, os.WriteFile(path, []byte("x"), 0o600))
		errtest.None(t, os.Chmod(path, mode))

		c := Default()
		c.VaultIDs = []string{"prod@" + path}

		err := c.CheckHost(t.Context(), Default(), nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", mode, err)
		}
	}

	c := Default()
	c.VaultIDs = []string{"/none"}

	err := c.CheckHost(t.Context(), Default(), nil)
	if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), "vault_ids: ") {
		t.Errorf("a missing file: %v", err)
	}

	c.VaultIDs = []string{"relative"}
	if err := c.Check(); err == nil {
		t.Error("a relative path was accepted")
	}
}
