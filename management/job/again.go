// SPDX-License-Identifier: Apache-2.0

package job

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

// Again returns the request for exactly this job, with the choices of its acceptance.
// extra are the variables of its request.
func (j Job) Again(extra configuration.Vars) Request {
	r := Request{
		Verb: j.Verb, Nodes: j.Names(), Group: j.Group, Extra: extra, JobOptions: j.JobOptions, Timeout: j.Timeout,
	}
	if j.TakesAddrs() {
		r.Addrs, r.Ranges = j.splitRanged(r.Nodes)
		r.HostKeys, r.Nodes = j.hostKeys(r.Nodes), nil
	}

	return r
}

// The bounds of the parts of a request that an action repeats.
const (
	maxExtraAgain = 4096 // bytes
	maxKeysAgain  = 32   // of hosts
)

// Anew returns the action that submits a new job for the names, with all options of the
// former one. extra are the variables of its request, secrets hidden; usual is the
// configured time limit, which a request need not name. with says in words which
// values are left for the operator to enter, or is empty: a manager refuses the action without it.
func Anew(old Job, names []string, extra configuration.Vars, usual time.Duration) (a []inventory.Action, with string) {
	again := inventory.Submit(old.Verb, names...).Joining(old.Group)

	if old.TakesAddrs() {
		named, ranged := old.splitRanged(names)
		again = inventory.Discover(named...)
		again.Ranges, again.HostKeys = ranged, old.hostKeys(names)
	}

	// Without the keys, the first contact would trust any host.
	if len(again.HostKeys) > maxKeysAgain {
		return nil, ", with its host keys"
	}

	again = again.With(old.JobOptions)

	// The choice of the manager needs no option.
	usually := Job{Verb: old.Verb}
	if v := old.verb(); v.defaults != nil {
		v.defaults(&usually)
	}
	if again.OnFailure == usually.OnFailure {
		again.OnFailure = ""
	}

	if old.Timeout != usual {
		again.Timeout = old.Timeout
	}

	again.Extra, with = extraAgain(extra)

	return []inventory.Action{again}, with
}

// extraAgain returns the variables of a request, and in words those that it does not
// show.
func extraAgain(extra configuration.Vars) (shown configuration.Vars, with string) {
	if data, err := json.Marshal(extra); err != nil || len(data) > maxExtraAgain {
		extra = hideAll(slices.Sorted(maps.Keys(extra)))
	}

	var hidden []string
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		if configuration.HasHidden(extra[name]) {
			hidden = append(hidden, name)
		}
	}

	if len(hidden) > 0 {
		with = ", with the values of its variables " + ShortList(hidden) + ", which are not shown"
	}

	return extra, with
}

// unknownExtra stands for the variables of the request of a job, by their names.
func (j Job) unknownExtra() configuration.Vars { return hideAll(j.ExtraNames) }

func hideAll(names []string) configuration.Vars {
	vars := configuration.Vars{}
	for _, name := range names {
		vars[name] = configuration.Hidden
	}

	return vars
}

// AnewWithout is Anew for a job without kept inputs.
func AnewWithout(old Job, names []string, usual time.Duration) (a []inventory.Action, with string) {
	return Anew(old, names, old.unknownExtra(), usual)
}

// Ahead returns the ids of the jobs that the job would wait for if it were accepted
// now, because they share a node with it.
func (s Snapshot) Ahead(j Job) []string {
	j.ID = s.NextID()

	ahead, _ := s.ahead(j)
	ids, _ := overlap(j, ahead)
	return ids
}

// Projected returns the nodes, sorted by name, as they will be if every job that has
// not ended succeeds.
func (s Snapshot) Projected() []*inventory.Node { return s.project(0) }
