// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"net/http"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
)

// TestHowNodesAreReachedIsForAdmins: who chooses the jump host, the port or the host key of a node
// chooses on which machine playbooks run as root.
func TestHowNodesAreReachedIsForAdmins(t *testing.T) {
	t.Parallel()

	trust := `{"fingerprint":"` + configuration.Fingerprint(shownKey) + `"}`

	for what, scope := range map[string]access.Scope{
		"all nodes": {}, "group": {Groups: []string{inventory.GroupWorker}}, "selector": {Selector: "rack=r1"},
	} {
		s, send := scopedServer(t, scope)
		before := s.manager.View()

		for _, c := range []struct{ method, path, body string }{
			{http.MethodPatch, "/v1/nodes/" + inside, `{"connection":{"jump":"gate.example"}}`},
			{http.MethodPatch, "/v1/nodes/" + inside, `{"connection":{"port":2222}}`},
			{http.MethodPatch, "/v1/nodes/" + inside, `{"connection":{}}`},
			{http.MethodPatch, "/v1/nodes/" + inside, `{"forget_host_key":true}`},
			{http.MethodPatch, "/v1/nodes/" + inside, `{"labels":{"a":"b"},"forget_host_key":true}`},
			{http.MethodPut, "/v1/nodes/" + inside + "/host-keys", trust},
		} {
			if w := send(c.method, c.path, c.body); w.Code != http.StatusForbidden {
				t.Errorf("operator of %s: %s %s %s: %d %s", what, c.method, c.path, c.body, w.Code, w.Body)
			}
		}

		if s.manager.View() != before {
			t.Errorf("operator of %s: something was changed: %s", what, s.manager.last())
		}

		w := send(http.MethodPatch, "/v1/nodes/"+inside, `{"labels":{"a":"b"}}`)
		if w.Code != http.StatusOK {
			t.Errorf("operator of %s: labels: %d %s", what, w.Code, w.Body)
		}
	}
}
