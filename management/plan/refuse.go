// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// Again has the values that a refusal needs to name the command that makes the plan once more.
type Again struct {
	Extra   configuration.Vars // of the request, secrets hidden
	Timeout time.Duration      // the configured one, which a request need not name
}

// CheckOpen refuses a plan that was applied, or has expired.
func (p Plan) CheckOpen(now time.Time, a Again) error {
	if p.Applied != "" {
		return AlreadyApplied(p.ID, p.Applied)
	}

	if now.Before(p.Expires) {
		return nil
	}

	return p.anew(a, inventory.Errorf(inventory.KindRefused,
		"plan %s has expired at %s", p.ID, p.Expires.UTC().Format(time.RFC3339)))
}

// AlreadyApplied returns the error for a plan that a job carries out.
func AlreadyApplied(id, by string) error {
	return inventory.Errorf(inventory.KindRefused, "plan %s was applied already, as job %s", id, by).
		Do("a plan is applied once; see the job").With(inventory.ShowJob(by))
}

// Unknown returns the error for the id of a plan that is not kept. jobs are those that
// are kept: one of them may have carried it out.
func Unknown(id string, jobs []*job.Job) error {
	for _, j := range slices.Backward(jobs) {
		if j.Plan == id {
			return AlreadyApplied(id, j.ID)
		}
	}

	return inventory.Errorf(inventory.KindNotFound, "there is no plan %s; it may have expired or was deleted", id).
		Do("list the plans, or make a new one").With(inventory.ListPlans())
}

// explained is the number of differences that a refusal names.
const explained = 12

// Refuse returns the error for a plan that the world does not fit any more, or nil if
// there is no difference.
func (p Plan) Refuse(differences []Difference, a Again) error {
	if len(differences) == 0 {
		return nil
	}

	var texts, nodes []string
	for i, d := range differences {
		if i < explained {
			texts = append(texts, d.Text)
		}

		if d.Node != "" && !slices.Contains(nodes, d.Node) {
			nodes = append(nodes, d.Node)
		}
	}

	if more := len(differences) - explained; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more differences", more))
	}

	return p.anew(a, inventory.Errorf(inventory.KindRefused,
		"plan %s does not fit any more: %s", p.ID, strings.Join(texts, "; ")).About(nodes...))
}

// Illegal returns the error for a plan with a job that is not legal any more, for the
// reason err, which is about nodes or a group. Other errors stay as they are.
func (p Plan) Illegal(err error, a Again) error {
	e, ok := errors.AsType[*inventory.Error](err)
	if !ok || e.Kind != inventory.KindNotFound && (e.Kind != inventory.KindRefused || len(e.Nodes) == 0) {
		return err
	}
	return p.anew(a, inventory.Errorf(inventory.KindRefused, "plan %s does not fit any more: %s", p.ID, e.Message).
		About(e.Nodes...))
}

// anew adds the remedy to make the plan once more.
func (p Plan) anew(a Again, e *inventory.Error) error {
	actions, with := job.Anew(p.Job, p.Job.Names(), a.Extra, a.Timeout)
	for i := range actions {
		actions[i] = actions[i].Planned()
		actions[i].Check = p.Check != ""
	}

	if len(actions) == 0 {
		actions = append(actions, inventory.ShowPlan(p.ID))
	}

	return e.Do("nothing was done; make a new plan with the same options%s", with).With(actions...)
}
