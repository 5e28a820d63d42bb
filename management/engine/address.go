// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// acceptRequest returns the job of a legal request.
func acceptRequest(v *state.View, settings Settings, r job.Request) (job.Job, error) {
	j, err := job.Accept(v.Snapshot, settings.Groups, r)
	if err != nil {
		return j, v.InBatches(settings.Groups, j, err, func(j job.Job) ([]inventory.Action, string) {
			return job.Anew(j, j.Names(), settings.Secrets.HideVars(r.Extra), settings.Timeout)
		})
	}

	if err := settings.Windows.CheckJob(v, j, time.Now()); err != nil {
		return j, err
	}

	return j, checkAddrs(v, j)
}

// checkAddrs refuses to bring a node into service while another one has its
// address: the playbooks could configure the other host. A node in service keeps
// it.
func checkAddrs(v *state.View, j job.Job) error {
	if verb, err := job.VerbOf(j.Verb); err != nil || !verb.Joins {
		return err
	}

	var entering []string
	for _, t := range j.Targets {
		if t.From != inventory.Allocated {
			entering = append(entering, t.Name)
		}
	}

	rivals := v.AddrRivals(entering...)

	var refusals []*inventory.Error
	for _, t := range j.Targets {
		if others := rivals[t.Name]; len(others) > 0 {
			refusals = append(refusals, inventory.Errorf(inventory.KindRefused,
				"%s has the address %s, and so has %s", t.Name, t.Addr, job.ShortList(others)).
				Do("give each host an address of its own; if one of the nodes is gone, decommission and forget it").
				About(append(others, t.Name)...))
		}
	}

	if len(refusals) > 0 {
		return job.Combine(refusals)
	}

	return nil
}
