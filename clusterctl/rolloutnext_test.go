// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestNextOfAStoppedRollout: a stopped rollout prints the retry with the corrected playbooks too, and first if the
// manager says so.
func TestNextOfAStoppedRollout(t *testing.T) {
	again := inventory.RetryRollout("r1", "")
	now := inventory.RetryRollout("r1", inventory.PlaybooksCurrent)

	for name, c := range map[string]struct {
		status  api.RolloutStatus
		actions []inventory.Action
		want    []string
	}{
		"the playbooks of its start": {stopped, []inventory.Action{again, now}, []string{
			"once the cause is corrected: clusterctl -u URL rollout retry r1",
			"with the corrected playbooks: clusterctl -u URL rollout retry r1 --playbooks-now",
			"without the nodes that failed: clusterctl -u URL rollout resume r1",
			"to give it up: clusterctl -u URL rollout abort r1",
		}},
		"a repository": {stopped, []inventory.Action{again, inventory.SyncRepository(), now}, []string{
			"once the cause is corrected: clusterctl -u URL rollout retry r1",
			"if it was in the playbooks, once that is committed: clusterctl -u URL repo sync",
			"with the corrected playbooks: clusterctl -u URL rollout retry r1 --playbooks-now",
			"without the nodes that failed: clusterctl -u URL rollout resume r1",
			"to give it up: clusterctl -u URL rollout abort r1",
		}},
		"other playbooks": {"Failed", []inventory.Action{now, again}, []string{
			"with the corrected playbooks: clusterctl -u URL rollout retry r1 --playbooks-now",
			"with the playbooks of its start: clusterctl -u URL rollout retry r1",
			"to take the changed nodes back: clusterctl -u URL rollout undo r1",
		}},
		"aborted": {"Aborted", nil, []string{"to take the changed nodes back: clusterctl -u URL rollout undo r1"}},
		"paused":  {"Paused", nil, []string{"to let it go on: clusterctl -u URL rollout resume r1"}},
	} {
		manager := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(api.Rollout{
				ID: "r1", Status: c.status, Spec: api.RolloutSpec{Action: inventory.VerbApply},
				Count: api.RolloutCount{Done: 1}, Actions: api.ActionsOf(c.actions),
			})
		}))

		var out, says bytes.Buffer

		code := Run(t.Context(), []string{"clusterctl", "-u", manager.URL, "rollout", "show", "r1"},
			Options{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &says})
		manager.Close()

		got := strings.ReplaceAll(strings.TrimSpace(says.String()), manager.URL, "URL")
		if want := strings.Join(c.want, "\n"); code != 0 || !strings.HasSuffix(got, want) {
			t.Errorf("%s: %d, %s\nwant %s", name, code, got, want)
		}
	}
}
