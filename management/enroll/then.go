// SPDX-License-Identifier: Apache-2.0

package enroll

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Jobs submits jobs. With the idempotency key of the caller, a call that was carried out already returns the same job.
type Jobs interface {
	Submit(ctx context.Context, c access.Caller, r job.Request) (job.Job, error)
}

// checkThen refuses verbs that do not lead from one status to the next, beginning with that of new nodes.
func checkThen(verbs []inventory.Verb) error {
	status := inventory.Enrolled

	if most := len(inventory.Lifecycle); len(verbs) > most {
		return inventory.Errorf(inventory.KindInvalid, "then has %d verbs, the limit is %d", len(verbs), most).
			Do("name fewer")
	}

	for _, v := range verbs {
		row, known := inventory.TransitionOf(v)
		if !known || !slices.Contains(row.From, status) || row.After(status) == "" {
			return inventory.Errorf(inventory.KindInvalid, "then: %s does not follow, the nodes are %s by then", v,
				status).Do("name verbs in the order of the lifecycle")
		}

		status = row.After(status)
	}

	return nil
}

// goesOn returns the nodes that the verbs after the import take: those that it registered and that are Enrolled.
func (i Import) goesOn(v *state.View, skipped map[string]string) []string {
	var names []string

	for _, r := range i.Registrations {
		n, known := v.Lookup(r.Node)
		if known && n.Status == inventory.Enrolled && skipped[r.Node] == "" {
			names = append(names, r.Node)
		}
	}

	return names
}

// next submits the next job of an import once the one before has ended. Each takes the nodes for which the one before
// succeeded. A refusal is the end.
func (s *Service) next(ctx context.Context, i Import) error {
	v, nodes := s.State.View(), i.Nodes

	if len(i.Jobs) > 0 {
		before, err := v.Job(i.Jobs[len(i.Jobs)-1])
		if err == nil && !before.Status.Ended() {
			return nil // its end is a change
		}

		left := before.Unfinished()
		nodes = slices.DeleteFunc(before.Names(), func(name string) bool { return slices.Contains(left, name) })
	}

	verb := i.Then[0]
	i.Then = i.Then[1:]

	switch {
	case len(nodes) == 0:
		i.Then = nil
	default:
		sum := sha256.Sum256([]byte("import\x00" + i.ID + "\x00" + strconv.Itoa(len(i.Jobs))))
		id := hex.EncodeToString(sum[:])
		caller := access.Caller{Principal: i.Actor, Key: &access.Key{ID: id, Request: id}}

		j, err := s.Jobs.Submit(ctx, caller, job.Request{Verb: verb, Nodes: nodes})

		switch inventory.KindOf(err) {
		case "":
			i.Jobs = append(slices.Clone(i.Jobs), j.ID)
		case inventory.KindUnavailable, inventory.KindConflict, inventory.KindBusy, inventory.KindInternal:
			return err
		default:
			i.Then, i.Problem = nil, string(verb)+" was refused: "+inventory.Shorten(err.Error(), maxProblem)
		}
	}

	_, _, err := record.Decide(ctx, s.Store, func(tx *record.Tx) (none struct{}, err error) {
		record.Put(tx, &Kind, &i)
		return none, nil
	})

	return err
}

// maxProblem bounds the reason of a refused job in the record, in bytes.
const maxProblem = 1000

// checks returns how the credentials of a machine can be checked.
func checks(m *machine.Machine, addr string) []string {
	var by []string

	if addr != "" {
		by = append(by, "ssh")
	}

	if m.BMC != nil && m.BMC.Driver != machine.Manual {
		by = append(by, "bmc")
	}

	return by
}
