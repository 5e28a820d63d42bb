// SPDX-License-Identifier: Apache-2.0

package access

import (
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// Subject finds what a change concerns among what its caller sees, or returns the error for what does
// not exist: it is the same whether that is there and outside of the caller's scope. The nil Subject is
// the manager as a whole, which is in no scope.
type Subject func(*state.Scoped) error

// Node returns the subject that is a node.
func Node(name string) Subject {
	return func(s *state.Scoped) error {
		_, err := s.Node(name)
		return err
	}
}

// Nodes returns the subject that is several nodes.
func Nodes(names ...string) Subject {
	return func(s *state.Scoped) error { return s.CheckNodes(names) }
}

// Variables returns the subject that is the variables of a scope.
func Variables(scope state.Scope) Subject {
	return func(s *state.Scoped) error { return s.CheckVars(scope) }
}

// Job returns the subject that is the job of a reference.
func Job(ref string) Subject { return func(s *state.Scoped) error { return s.CheckJob(ref) } }

// Request returns the subject of a request for a job, or for a plan of one: its nodes, and the group that
// they enter.
func Request(r job.Request, groups inventory.Groups) Subject {
	return func(s *state.Scoped) error {
		if s.All() {
			return nil
		}

		if len(r.Addrs)+len(r.Ranges) > 0 {
			return state.ErrWhole("a host that is no node yet is in no scope")
		}

		verb, err := job.VerbOf(r.Verb)
		if err != nil || !verb.ChoosesGroup() || r.Group != "" {
			return s.CheckMove(r.Nodes, r.Group)
		}

		// The default is a group of the whole configuration.
		if s.CheckGroup("") != nil {
			return inventory.Errorf(inventory.KindInvalid, "the request names no group").
				Do("name one of the groups of the scope")
		}

		return s.CheckMove(r.Nodes, s.Whole().DefaultGroup(groups))
	}
}

// Retry returns the subject of a retry: the job, and the nodes that it is repeated on.
func Retry(ref string, r job.RetryRequest) Subject {
	return func(s *state.Scoped) error {
		if err := s.CheckJob(ref); err != nil {
			return err
		}

		old, err := s.Job(ref)
		if err != nil {
			return err
		}

		// Its nodes may have left the scope since.
		names := r.Nodes
		if len(names) == 0 {
			names = old.Names()
		}
		return s.CheckMove(names, old.Group)
	}
}
