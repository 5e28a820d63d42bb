// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/state"
)

// TestSecrets sets a secret at every level of variables, and looks for it in every
// answer with variables, of both API families. A hidden value can be written back, and
// playbooks get the values.
func TestSecrets(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	s := begin(t, "vars: {file_password: "+secret+", motd: shown}")
	s.report("a")
	vars := func(name string) api.Vars {
		return api.Vars{name + "_password": secret + name, name + "_note": "shown"}
	}
	s.must(errors.Join(
		second(s.Client.SetVars(s.ctx(), client.ScopeGlobal, vars("global"))),
		second(s.Client.SetVars(s.ctx(), client.ScopeGroup(inventory.GroupMaster), vars("group"))),
		second(s.Client.PatchVars(s.ctx(), client.ScopeNode("a-1"), vars("node"))),
	))
	extra, err := json.Marshal(vars("request"))
	s.must(err)

	j := s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}, ExtraVars: extra})
	if j.Status != api.Complete {
		t.Fatalf("%+v", j)
	}

	for path, shown := range map[string]int{
		"/v1/vars/global": 1, "/v1/vars/groups/service-master": 1, "/v1/vars/nodes/a-1": 1,
		"/v1/vars/nodes/a-1?merged=true": 4, "/v1/jobs/last": 5,
		"/v1/config": 1, "/info/globals": 1, "/info/nodes": 4, "/info/node/a-1": 4, "/info/job/last": 0, "/config": 2,
	} {
		code, text := s.get(path)
		if code != 200 || strings.Contains(text, secret) || strings.Count(text, configuration.Hidden) != shown ||
			shown > 0 && !strings.Contains(text, "shown") {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}

	// Inputs of playbooks have the values. A hidden value that is written back keeps its
	// value.
	in, err := s.store.Inputs(s.ctx(), j.ID)
	s.must(err)

	if in.Extra["request_password"] != secret+"request" || in.Vars["a-1"]["global_password"].Value != secret+"global" ||
		in.Vars["a-1"]["file_password"].Value != secret {
		t.Errorf("%+v", in)
	}

	shown, err := s.Client.Vars(s.ctx(), client.ScopeGlobal)
	s.must(err)
	shown["more"] = true
	s.must(second(s.Client.SetVars(s.ctx(), client.ScopeGlobal, shown)))
	s.must(second(s.Client.PatchVars(s.ctx(), client.ScopeGlobal, api.Vars{"global_password": configuration.Hidden})))

	if got := state.VarsOf(s.store.View(), state.ScopeGlobal); got["global_password"] != secret+"global" ||
		got["more"] != true {
		t.Errorf("written back: %v", got)
	}

	config, err := s.Client.Config(s.ctx())
	s.must(err)
	s.must(second(s.Client.PatchConfig(s.ctx(), map[string]any{"vars": config["vars"].Value})))

	if got := s.settings.Current().Vars["file_password"]; got != secret {
		t.Errorf("the configuration written back: %v", got)
	}

	// The mark for nothing is refused, and changes nothing.
	before := s.store.View().Revision
	mark := map[string]any{"new_token": configuration.Hidden}
	_, err = s.Client.PatchVars(s.ctx(), client.ScopeGlobal, mark)
	checkError(t, err, inventory.KindInvalid, "new_token")
	_, err = s.Client.PatchConfig(s.ctx(), map[string]any{"vars": mark})
	checkError(t, err, inventory.KindInvalid, "new_token")
	_, err = s.Client.Submit(
		s.ctx(),
		api.JobRequest{
			Verb:      inventory.VerbMaintenance,
			Nodes:     []string{"a-1"},
			ExtraVars: json.RawMessage(`{"new_token": "(hidden)"}`),
		},
	)
	checkError(t, err, inventory.KindInvalid, "new_token")

	if after := s.store.View().Revision; after != before {
		t.Errorf("the revision was %d and is %d", before, after)
	}
}
