// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/state"
)

// firstRevision returns the revision of the oldest recorded change of a scope.
func (s *site) firstRevision(scope client.Scope) int64 {
	s.t.Helper()
	history, err := s.Client.VarsHistory(s.ctx(), scope, 50)
	s.must(err)
	return history.Items[0].Revision
}

// TestMarkHidesThePast marks a variable as secret that has been in the clear for a
// while: from then on no history, no scope and no job shows a value of it, and an undo
// keeps it secret.
func TestMarkHidesThePast(t *testing.T) {
	t.Parallel()

	s := begin(t)
	s.report("a")

	for _, value := range []string{"first-8f3k2q", "second-8f3k2q"} {
		s.must(second(s.Client.PatchVars(s.ctx(), client.ScopeGlobal, api.Vars{"pin": value, "note": value[:5]})))
		s.must(second(s.Client.PatchVars(s.ctx(), client.ScopeNode("a-1"), api.Vars{"pin": "node-" + value})))
	}

	s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})
	s.setSecret("pin", configuration.Hidden)

	shows := func(when string, paths ...string) {
		t.Helper()

		for _, path := range paths {
			if code, text := s.get(path); code != 200 || strings.Contains(text, "8f3k2q") {
				t.Errorf("%s: %s: %d %s", when, path, code, text)
			}
		}
	}

	shows("at once", "/v1/vars/global", "/v1/vars/nodes/a-1", "/v1/vars/global/history", "/v1/vars/nodes/a-1/history")
	s.encrypted()
	shows("encrypted", "/v1/jobs/1?vars=true", "/v1/vars/nodes/a-1?merged=true", "/info/nodes")

	if _, text := s.get("/v1/vars/global/history"); !strings.Contains(text, `"first"`) {
		t.Errorf("the history has lost its other values: %s", text)
	}

	for stored, c := range map[state.Scope]struct {
		scope client.Scope
		want  string
	}{
		state.ScopeGlobal: {client.ScopeGlobal, "first-8f3k2q"},
		"node/a-1":        {client.ScopeNode("a-1"), "node-first-8f3k2q"},
	} {
		s.must(second(s.Client.UndoVars(s.ctx(), c.scope, s.firstRevision(c.scope))))

		hidden, marked := state.VarsOf(s.View(), stored)["pin"].(configuration.Secret)
		if value, err := hidden.Reveal(); !marked || value != c.want || err != nil {
			t.Errorf("%s: after an undo it is %v (secret: %v), %v", stored, value, marked, err)
		}
	}

	shows("after the undo", "/v1/vars/global", "/v1/vars/global/history", "/v1/vars/nodes/a-1/history")
}

// TestUnsetLockedSecret unsets a secret whose key is missing. With the key again, an
// undo brings it back.
func TestUnsetLockedSecret(t *testing.T) {
	t.Parallel()

	s := begin(t)
	s.setSecret("pin", "1234-secret")
	s.setSecret("other", "kept")

	key, err := os.ReadFile(s.keyFile())
	s.must(err)

	s.down()
	s.must(os.Remove(s.keyFile()))
	s.up()
	s.must(second(s.Client.PatchVars(s.ctx(), client.ScopeGlobal, api.Vars{"pin": nil})))

	history, err := s.Client.VarsHistory(s.ctx(), client.ScopeGlobal, 1)
	s.must(err)

	before := history.Items[0].Revision - 1
	s.down()
	s.must(os.WriteFile(s.keyFile(), key, 0o600))
	s.up()

	// A rotation encrypts the value that was unset as well.
	status, err := s.Client.RotateSecrets(s.ctx(), false)
	s.must(err)

	if len(status.Locked) > 0 || len(status.Keys) != 1 {
		t.Errorf("after a rotation: %+v", status)
	}

	s.must(second(s.Client.UndoVars(s.ctx(), client.ScopeGlobal, before)))

	if got := fmt.Sprint(s.value("pin"), ", ", s.value("other")); got != "1234-secret, kept" {
		t.Errorf("after an undo they are %s", got)
	}
}
