// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/management/api"
)

// TestAddAsksForThePassword: a password for a BMC that is typed is sent, and the terminal does not show it.
func TestAddAsksForThePassword(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())

	sent := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request api.Import

		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &request); err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}

		sent <- request.File

		w.Header().Set("Content-Type", api.TypeJSON)
		_, _ = io.WriteString(w, `{"machines":[{"node":"r9","action":"created"}]}`)
	}))
	t.Cleanup(s.Close)

	m := &remoteManager{T: t}
	d := m.begin(
		t.Context(),
		"-u "+s.URL+" nodes add r9 --bmc ipmi --bmc-addr 127.0.0.9 --no-manage --bmc-password-file -",
	)
	d.shows("password for the BMC: ")
	d.types("x secret-x\n")
	d.ends(exit.Done, "created")

	if shown, _ := d.output(); strings.Contains(shown, "secret-x") {
		t.Errorf("the terminal shows the password:\n%s", shown)
	}

	if file := <-sent; !strings.Contains(file, `"pm_password":"x secret-x"`) {
		t.Errorf("sent: %s", file)
	}
}
