// SPDX-License-Identifier: Apache-2.0

package enroll

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Jobs submits jobs.
type Jobs interface {
	// SubmitWith accepts a job unless with fails, which writes what belongs to it in the same transaction.
	SubmitWith(
		ctx context.Context, c access.Caller, r job.Request, with func(tx *record.Tx, j *job.Job) error,
	) (job.Job, error)
}

// checkThen refuses verbs that do not lead from one status to the next, beginning with that of the nodes.
func checkThen(status inventory.Status, verbs []inventory.Verb) error {
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

// goesOn returns the nodes that the verbs after the import take: those of the list that are Enrolled.
func (i Import) goesOn(v *state.View, skipped map[string]string) []string {
	names := slices.Clone(i.Again)
	for _, r := range i.Registrations {
		names = append(names, r.Node)
	}

	return slices.DeleteFunc(names, func(name string) bool {
		n, known := v.Lookup(name)
		return !known || n.Status != inventory.Enrolled || skipped[name] != ""
	})
}

// errStale is the refusal of a transaction on an import that another leader has gone on with.
var errStale = errors.New("the import was gone on with")

// next submits the next job of an import once the one before has ended. Each takes the nodes for which the one before
// succeeded. The transaction that accepts the job writes its number into the import, so that no job is submitted twice.
func (s *Service) next(ctx context.Context, i Import) error {
	v, nodes := s.State.View(), slices.Clone(i.Nodes)
	revision := record.Revision(v, &Kind, i.ID)

	if len(i.Jobs) > 0 {
		before, err := v.Job(i.Jobs[len(i.Jobs)-1])
		if err == nil && !before.Status.Ended() {
			return nil // its end is a change
		}

		left := before.Unfinished()
		nodes = slices.DeleteFunc(before.Names(), func(name string) bool { return slices.Contains(left, name) })
	}

	nodes = slices.DeleteFunc(nodes, func(name string) bool { return i.Refused[name] != "" })

	// write writes what becomes of the import, unless somebody else did.
	write := func(tx *record.Tx, next Import) error {
		if record.Get(tx, &Kind, i.ID) == nil || record.Revision(tx, &Kind, i.ID) != revision {
			return errStale
		}

		record.Put(tx, &Kind, &next)

		return nil
	}

	var err error

	if len(nodes) == 0 {
		i.Then = nil
	} else {
		verb, accepted := i.Then[0], i
		accepted.Then = i.Then[1:]

		_, err = s.Jobs.SubmitWith(ctx, access.Caller{Principal: i.Actor}, job.Request{Verb: verb, Nodes: nodes},
			func(tx *record.Tx, j *job.Job) error {
				accepted.Jobs = append(slices.Clone(i.Jobs), j.ID)
				return write(tx, accepted)
			})

		switch inventory.KindOf(err) {
		case "":
			return nil
		case inventory.KindUnavailable, inventory.KindConflict, inventory.KindBusy, inventory.KindInternal:
			return stale(err)
		}

		// Who is refused stops here, and the others go on.
		i.Refused = maps.Clone(i.Refused)
		if i.Refused == nil {
			i.Refused = map[string]string{}
		}

		for _, name := range refusedOf(err, nodes) {
			i.Refused[name] = string(
				verb,
			) + " was refused: " + inventory.Shorten(
				err.Error(),
				maxProblem/len(nodes)+100,
			)
		}
	}

	_, _, err = record.Decide(ctx, s.Store, func(tx *record.Tx) (none struct{}, err error) {
		return none, write(tx, i)
	})

	return stale(err)
}

// stale drops the error of a leader that came too late.
func stale(err error) error {
	if errors.Is(err, errStale) {
		return nil
	}
	return err
}

// refusedOf returns those of the nodes that a refusal names, or all of them if it names none.
func refusedOf(err error, nodes []string) []string {
	e, _ := errors.AsType[*inventory.Error](err)
	if e == nil {
		return nodes
	}

	named := slices.DeleteFunc(slices.Clone(nodes), func(name string) bool { return !slices.Contains(e.Nodes, name) })
	if len(named) == 0 {
		return nodes
	}

	return named
}

// refusals returns the different reasons of refused jobs.
func (i *Import) refusals() []string {
	return inventory.ShortenAll(slices.Compact(slices.Sorted(maps.Values(i.Refused))), maxNamed, maxReason)
}

// goOn begins the verbs for nodes that are registered already.
func (s *Service) goOn(ctx context.Context, c access.Caller, r api.Import) (api.Imported, error) {
	if r.Prune || r.DryRun || len(r.Then) == 0 {
		return api.Imported{}, inventory.Errorf(inventory.KindInvalid,
			"names of nodes without a list need then, and take neither prune nor dry_run").Do("give then")
	}

	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	nodes := slices.Compact(slices.Sorted(slices.Values(r.Nodes)))

	var accepted *Import

	err := access.Audited(ctx, s.Audit, c, access.Record{Action: "nodes.then", Targets: nodes},
		func(ctx context.Context, _ *access.Record) (err error) {
			accepted, _, err = access.Decide(ctx, s.Store, c, nil, func(tx *record.Tx) (*Import, error) {
				v := state.ViewOf(tx)

				for _, name := range nodes {
					n, err := v.Node(name)
					if err != nil {
						return nil, err
					}

					if err := checkThen(n.Status, r.Then); err != nil {
						e, _ := errors.AsType[*inventory.Error](err)
						e.Message = name + ": " + e.Message

						return nil, e.About(name)
					}
				}

				now := time.Now()
				i := &Import{
					ID: rand.Text(), Actor: c.Principal, Started: now, Ended: now, Verbs: r.Then, Then: r.Then,
					Nodes: nodes,
				}

				record.Put(tx, &Kind, i)

				return i, nil
			})

			return err
		})
	if err != nil {
		return api.Imported{}, err
	}

	done, err := s.await(ctx, accepted.ID)

	return api.Imported{
		ID: accepted.ID, Machines: []api.ImportedMachine{}, Jobs: done.Jobs, Warnings: done.refusals(),
		Revision: s.State.View().Revision,
	}, err
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
