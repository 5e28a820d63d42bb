// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/rollout"
)

// TestOptionsOfFormerVersions: a job and a rollout are read, and written, in the form in which the versions before
// JobOptions have them.
func TestOptionsOfFormerVersions(t *testing.T) {
	t.Parallel()

	const options = `"ansible":{"check":true,"diff":true,"tags":["web"],"skip_tags":["web"],"verbosity":1},` +
		`"on_failure":"failed","serial":"1","max_failures":1,"playbooks":"current","strict":true,"force":true,` +
		`"take_over":true,"override_window":true,"reason":"1"`

	r, err := decode[job.Job]([]byte("{" + options + "}"))
	if got := r.JobOptions; err != nil || !reflect.DeepEqual(got, formerOptions()) {
		t.Errorf("%v, %+v", err, got)
	}

	compareObjects(t, job.Job{JobOptions: formerOptions()}, "{"+options+"}")

	const shared = `{"ansible":{"tags":["web"],"skip_tags":["web"]},"override_window":true,"reason":"1"}`

	spec, err := decode[rollout.Spec]([]byte(shared))
	if got := spec.SharedOptions; err != nil || !reflect.DeepEqual(got, formerOptions().SharedOptions) {
		t.Errorf("%v, %+v", err, got)
	}

	compareObjects(t, rollout.Spec{SharedOptions: formerOptions().SharedOptions}, shared)
}

func formerOptions() inventory.JobOptions {
	return inventory.JobOptions{
		OnFailure: "failed", Serial: "1", MaxFailures: 1, Playbooks: "current", Strict: true, Check: true, Diff: true,
		Verbosity: 1, Force: true, TakeOver: true,
		SharedOptions: inventory.SharedOptions{
			Tags: []string{"web"}, SkipTags: []string{"web"}, OverrideWindow: true, Reason: "1",
		},
	}
}

// compareObjects expects the members of the wanted object in the record, with their values.
func compareObjects(t *testing.T, record any, want string) {
	t.Helper()

	text, err := json.Marshal(record)
	must(t, err)

	var got, wanted map[string]any

	must(t, json.Unmarshal(text, &got))
	must(t, json.Unmarshal([]byte(want), &wanted))

	for name, value := range wanted {
		if !reflect.DeepEqual(got[name], value) {
			t.Errorf("%s is stored as %v, former versions have %v", name, got[name], value)
		}
	}
}
