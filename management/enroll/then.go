// SPDX-License-Identifier: Apache-2.0

package enroll

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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

// goesOn returns the nodes of the list that the verbs after the import take: those that are Enrolled, and those that
// join them, because an earlier import has brought them as far as Manageable.
func (i Import) goesOn(v *state.View, skipped map[string]string) (nodes, joins []string) {
	names := slices.Clone(i.Again)
	for _, r := range i.Registrations {
		names = append(names, r.Node)
	}

	for _, name := range names {
		n, known := v.Lookup(name)

		switch {
		case !known, skipped[name] != "":
		case n.Status == inventory.Enrolled:
			nodes = append(nodes, name)
		case n.Status == inventory.Manageable && n.Job == "" && joinsAt(i.Then) < len(i.Then):
			joins = append(joins, name)
		}
	}

	return nodes, joins
}

// joinsAt returns the index of the first verb that takes nodes that are Manageable, or the number of the verbs.
func joinsAt(verbs []inventory.Verb) int {
	at := slices.IndexFunc(verbs, func(v inventory.Verb) bool {
		row, _ := inventory.TransitionOf(v)
		return slices.Contains(row.From, inventory.Manageable)
	})
	if at < 0 {
		return len(verbs)
	}

	return at
}

// errStale is the refusal of a transaction on an import that another leader has gone on with.
var errStale = errors.New("the import was gone on with")

// refusedFor is how long the next verb of an import is asked for again after a refusal that may pass by itself.
const refusedFor = 15 * time.Minute

// next submits the next job of an import once the one before has ended. Each takes the nodes for which the one before
// succeeded. The transaction that accepts the job writes its number into the import, so that no job is submitted twice.
func (s *Service) next(ctx context.Context, id string) error {
	v := s.State.View()

	kept := record.Get(v, &Kind, id)
	if kept == nil || len(kept.Then) == 0 {
		return nil
	}

	i, revision := *kept, record.Revision(v, &Kind, id)
	nodes := slices.Clone(i.Nodes)

	if len(i.Jobs) > 0 {
		before, err := v.Job(i.Jobs[len(i.Jobs)-1])
		if err == nil && !before.Status.Ended() {
			return nil // its end is a change
		}

		left := setOf(before.Unfinished())
		nodes = slices.DeleteFunc(before.Names(), func(name string) bool { return left[name] })

		// Who cancels a job wants an end of it all.
		if before.Status == job.Cancelled {
			i.refuse(
				append(nodes, i.Joins...),
				fmt.Sprintf("it was not begun, because job %s was cancelled", before.ID),
			)
		}
	}

	nodes = slices.DeleteFunc(nodes, func(name string) bool { return i.Refused[name] != "" })
	joining := slices.DeleteFunc(slices.Clone(i.Joins), func(name string) bool { return i.Refused[name] != "" })

	switch at := joinsAt(i.Verbs); {
	case len(i.Jobs) == at:
		nodes = append(nodes, joining...)
	case len(i.Jobs) < at && len(nodes) == 0 && len(joining) > 0:
		// Nobody is left that the verbs before would take.
		nodes, i.Verbs, i.Then = joining, i.Verbs[at:], i.Verbs[at:]
	}

	// write writes what becomes of the import, unless somebody else did.
	write := func(tx *record.Tx, next Import) error {
		if record.Get(tx, &Kind, i.ID) == nil || record.Revision(tx, &Kind, i.ID) != revision {
			return errStale
		}

		record.Put(tx, &Kind, &next)

		return nil
	}

	var err, waits error

	if len(nodes) == 0 {
		i.Then = nil
	} else {
		verb, accepted := i.Then[0], i
		accepted.Then, accepted.Waits = i.Then[1:], ""

		_, err = s.Jobs.SubmitWith(ctx, access.Caller{Principal: i.Actor}, job.Request{Verb: verb, Nodes: nodes},
			func(tx *record.Tx, j *job.Job) error {
				accepted.Jobs = append(slices.Clone(i.Jobs), j.ID)
				return write(tx, accepted)
			})

		refused := refusedOf(err, nodes)

		switch {
		case err == nil:
			delete(s.refused, id)
			return nil
		case errors.Is(err, errStale), ctx.Err() != nil:
			return stale(err)
		case len(refused) > 0 || s.over(id):
			// Who is refused stops here, and the others go on.
			if len(refused) == 0 {
				refused = nodes
			}

			i.refuse(refused, string(verb)+" was refused: "+inventory.Shorten(err.Error(), maxProblem/len(nodes)+100))
			i.Waits = ""

			delete(s.refused, id)
		case i.Waits != "":
			return err
		default:
			i.Waits, waits = inventory.Shorten(string(verb)+" was refused: "+err.Error(), maxProblem), err
		}
	}

	_, _, err = record.Decide(ctx, s.Store, func(tx *record.Tx) (none struct{}, err error) {
		return none, write(tx, i)
	})

	return errors.Join(waits, stale(err))
}

// over reports whether the next verb of an import has been refused for long enough, or notes that it was refused.
func (s *Service) over(id string) bool {
	since, noted := s.refused[id]
	if !noted {
		s.refused[id] = time.Now()
	}

	return noted && time.Since(since) >= refusedFor
}

// refuse notes why the verbs do not go on with nodes.
func (i *Import) refuse(nodes []string, reason string) {
	i.Refused = maps.Clone(i.Refused)
	if i.Refused == nil {
		i.Refused = map[string]string{}
	}

	for _, name := range nodes {
		i.Refused[name] = reason
	}
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}

	return set
}

// stale drops the error of a leader that came too late.
func stale(err error) error {
	if errors.Is(err, errStale) {
		return nil
	}
	return err
}

// refusedOf returns the nodes for which a refusal is final: those that it names, or all of them if the request is
// wrong. Any other one, such as that of a full queue, may pass by itself.
func refusedOf(err error, nodes []string) []string {
	e, _ := errors.AsType[*inventory.Error](err)
	if e == nil {
		return nil
	}

	switch e.Kind {
	case inventory.KindUnavailable, inventory.KindConflict, inventory.KindBusy, inventory.KindInternal:
		return nil
	}

	about := setOf(e.Nodes)
	named := slices.DeleteFunc(slices.Clone(nodes), func(name string) bool { return !about[name] })

	if len(named) == 0 && e.Kind != inventory.KindRefused {
		return nodes
	}

	return named
}

// refusals returns the different reasons of refused jobs, those that may pass by themselves among them.
func (i *Import) refusals() []string {
	all := slices.Compact(slices.Sorted(maps.Values(i.Refused)))
	if i.Waits != "" {
		all = append(all, i.Waits+"; it is asked for again")
	}

	return inventory.ShortenAll(all, maxNamed, maxReason)
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
	if err := job.CheckNames("node", nodes, inventory.CheckName); err != nil {
		return api.Imported{}, err
	}

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
