// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/management/api"
)

// TestPlainHTTPReadsOnly expects plain HTTP to change nothing by default, and a
// warning if the configuration makes every local program an admin.
func TestPlainHTTPReadsOnly(t *testing.T) {
	t.Parallel()
	s := begin(t, "plain_http_role: viewer")

	if code, text := s.get(api.LegacyConfig); code != http.StatusOK {
		t.Errorf("a read: %d %s", code, text)
	}

	code, text := s.post(api.LegacyConfig, `{"config":{"playbooks":"/tmp/mine"}}`)
	if code != http.StatusForbidden || !strings.Contains(text, "plain_http_role") {
		t.Errorf("a change: %d %s", code, text)
	}

	warned := func() bool {
		return slices.ContainsFunc(s.health(t.Context()).Warnings, func(w string) bool {
			return strings.Contains(w, "plain_http_role is admin")
		})
	}
	if warned() {
		t.Error("a viewer is warned about")
	}

	s.down()
	s.write("plain_http_role: admin")
	s.up()

	if !warned() {
		t.Error("an admin without authentication is not warned about")
	}
}
