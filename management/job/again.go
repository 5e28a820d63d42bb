// SPDX-License-Identifier: Apache-2.0

package job

import (
	"strconv"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

// Again returns the request for exactly this job, with the choices of its acceptance.
// extra are the variables of its request.
func (j Job) Again(extra configuration.Vars) Request {
	r := Request{
		Verb: j.Verb, Nodes: j.Names(), Group: j.Group, Extra: extra, OnFailure: j.OnFailure, Serial: j.Serial,
		MaxFailures: j.MaxFailures, Playbooks: j.Playbooks, Strict: j.Strict, Ansible: j.Ansible, Timeout: j.Timeout,
		Force: j.Force, TakeOver: j.TakeOver, Reason: j.Reason,
	}
	if j.TakesAddrs() {
		r.Addrs, r.Ranges = j.splitRanged(r.Nodes)
		r.HostKeys, r.Nodes = j.hostKeys(r.Nodes), nil
	}

	return r
}

// Ahead returns the ids of the jobs that the job would wait for if it were accepted
// now, because they share a node with it.
func (s Snapshot) Ahead(j Job) []string {
	j.ID = strconv.FormatUint(s.Seq+1, 10)

	ahead, _ := s.ahead(j)
	ids, _ := overlap(j, ahead)

	return ids
}

// Projected returns the nodes, sorted by name, as they will be if every job that has
// not ended succeeds.
func (s Snapshot) Projected() []*inventory.Node { return s.project(0) }
