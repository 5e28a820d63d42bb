// SPDX-License-Identifier: Apache-2.0

package print

import (
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/optiontest"
	"github.com/contiv/cluster/management/api"
)

// TestOptionsArePrinted: the details of a job, a plan and a rollout show each option that is set, and no other.
func TestOptionsArePrinted(t *testing.T) {
	t.Parallel()

	for _, o := range inventory.Options {
		for _, set := range []bool{false, true} {
			var options inventory.JobOptions
			if set {
				optiontest.Set(&options, o)
			}

			for name, show := range map[string]func(p *Printer){
				"job":  func(p *Printer) { p.Job(api.Job{JobOptions: options}, true) },
				"plan": func(p *Printer) { p.Plan(api.Plan{Request: api.JobRequest{JobOptions: options}}) },
				"rollout": func(p *Printer) {
					p.Rollout(api.Rollout{Spec: api.RolloutSpec{SharedOptions: options.SharedOptions}})
				},
			} {
				p := &Printer{}
				show(p)

				label := o.Label
				if o.Field == inventory.FieldReason {
					label = "Reason"
				}

				want := set && (name != "rollout" || o.Shared)
				if text := string(p.Bytes()); strings.Contains("\n"+text, "\n"+label+" ") != want {
					t.Errorf("%s with %s set %t:\n%s", name, o.Field, set, text)
				}
			}
		}
	}
}
