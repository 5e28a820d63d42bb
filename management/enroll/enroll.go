// SPDX-License-Identifier: Apache-2.0

package enroll

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/enroll/listing"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Import is an accepted import. It is carried out by the leader, and kept for a while then, for those who wait for it.
type Import struct {
	ID      string    `json:"id"`
	Actor   string    `json:"actor"`
	Started time.Time `json:"started"`

	Registrations []Registration `json:"registrations,omitempty"`
	// Again are the nodes of the list that are registered so already, and whose credentials are not proven yet.
	Again  []string `json:"again,omitempty"`
	Remove []string `json:"remove,omitempty"`
	// Secrets has the passwords and the variables by node, each set as one secret.
	Secrets configuration.Vars `json:"secrets,omitempty"`

	Ended time.Time `json:"ended,omitzero"` // when all machines were registered; zero: that goes on
	// Skipped are the nodes that were left as they are, with the reason: they changed meanwhile.
	Skipped map[string]string `json:"skipped,omitempty"`

	// Actions are what the request does with the nodes that it concerns.
	Actions map[string]api.ImportAction `json:"actions,omitempty"`

	// Verbs are all that follow: a job each, on the nodes for which the one before succeeded. Then are those without a
	// job yet.
	Verbs []inventory.Verb `json:"verbs,omitempty"`
	Then  []inventory.Verb `json:"then,omitempty"`
	Nodes []string         `json:"nodes,omitempty"` // of the first of these jobs
	// Joins are nodes that were Manageable already: they join the others at the first verb that takes these.
	Joins []string `json:"joins,omitempty"`
	// Jobs are those that were accepted, in order. The transaction that accepts a job writes its number here.
	Jobs []string `json:"jobs,omitempty"`
	// Refused are the nodes that a job was refused for, with the reason.
	Refused map[string]string `json:"refused,omitempty"`
	// Waits is why the next job is not accepted yet: a refusal that may pass by itself. Empty: there was none.
	Waits string `json:"waits,omitempty"`
}

// The names of Import.Secrets.
const (
	secretPasswords = "passwords"
	secretVars      = "vars"
)

// Kind are the imports. No caller reads them.
var Kind = record.Kind[Import]{
	Name:  "imports",
	Key:   func(i *Import) string { return i.ID },
	Codec: record.Compressed[Import]{},
	Secret: func(i *Import, convert record.Convert) (*Import, error) {
		if len(i.Secrets) == 0 {
			return i, nil
		}

		converted, err := convert([]string{"imports", i.ID}, i.Secrets)
		out := *i
		out.Secrets = converted

		return &out, err
	},
}

const (
	// keptFor and keptCount bound the results that are kept.
	keptFor   = 24 * time.Hour
	keptCount = 50
	// patience is how long a request waits for the end of its import, which goes on by itself.
	patience = 2 * time.Minute
	// maxSecrets and maxRecord bound the parts of the record, in bytes: the store takes 1.5 MB in a transaction.
	maxSecrets = 400 << 10
	maxRecord  = 600 << 10
	// chunkOps bounds the operations of one transaction, of which the store takes 128.
	chunkOps = 100
)

// Store is the store as imports need it.
type Store interface {
	record.Store
	// Forget removes nodes, given as writes with a tombstone.
	Forget(
		ctx context.Context, decided int64, uses []string, writes []state.NodeWrite, key *access.Key,
	) (int64, error)
	// History returns the newest entries of a node, oldest first.
	History(ctx context.Context, node string, limit int) ([]inventory.HistoryEntry, error)
}

// Options are the dependencies of a Service.
type Options struct {
	State  state.Reader
	Store  Store
	Jobs   Jobs
	Leads  func() bool // nil: this instance carries out imports
	Audit  access.Auditor
	Logger logrus.FieldLogger
}

// Service imports machines. All methods may be called at once.
type Service struct {
	Options
	*control.Loop

	refused map[string]time.Time // the imports whose next verb waits for the end of a refusal; the loop's own
}

// New returns a Service. Its loop carries imports out while its instance leads.
func New(o Options) *Service {
	s := &Service{Options: o, refused: map[string]time.Time{}}
	s.Loop = control.New(control.Options{
		Name:    "imports",
		Duty:    o.Leads,
		Round:   s.round,
		Changed: o.State.Changed,
		Backoff: time.Second,
		Every:   time.Minute,
		Trouble: "an import could not be carried out; retrying",
		Logger:  o.Logger,
	})

	return s
}

// Import registers the machines of a list: all of them, or none if the list has a mistake. It returns once all are
// registered.
func (s *Service) Import(ctx context.Context, c access.Caller, mayReach error, r api.Import) (api.Imported, error) {
	if r.File == "" && len(r.Nodes) > 0 {
		return s.goOn(ctx, c, r)
	}

	if len(r.Nodes) > 0 {
		return api.Imported{}, inventory.Errorf(inventory.KindInvalid, "the request has a list and names of nodes").
			Do("give one of them")
	}

	if err := checkThen(inventory.Enrolled, r.Then); err != nil {
		return api.Imported{}, err
	}

	entries, warnings, problems := listing.Parse([]byte(r.File))

	if len(problems) > 0 {
		return api.Imported{}, s.allWrong(ctx, c, entries, problems)
	}

	out := api.Imported{DryRun: r.DryRun, Warnings: listing.Lines(warnings)}

	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Node

		if e.Connection != (configuration.Connection{}) && mayReach != nil {
			return api.Imported{}, mayReach
		}
	}

	decide := func(v *state.View) (planned, error) {
		p, problems := plan(v, entries, r.Prune)
		p.then = r.Then

		return p, listing.Err(problems)
	}

	if r.DryRun {
		return s.preview(ctx, c, out, decide)
	}

	return s.apply(ctx, c, access.Record{Action: "nodes.import", Targets: names}, out, decide)
}

// decision decides what a request does. It has no effects.
type decision func(v *state.View) (planned, error)

// apply accepts what a request does, and returns once all machines are registered.
func (s *Service) apply(
	ctx context.Context, c access.Caller, r access.Record, out api.Imported, decide decision,
) (api.Imported, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	var accepted *Import

	err := access.Audited(ctx, s.Audit, c, r,
		func(ctx context.Context, _ *access.Record) error {
			p, i, err := s.accept(ctx, c, decide)
			out.Machines, out.Warnings, accepted = p.machines, append(out.Warnings, p.warnings...), i

			return err
		})
	if err != nil {
		return api.Imported{}, err
	}

	if accepted != nil {
		done, err := s.await(ctx, accepted.ID)
		if err != nil {
			return api.Imported{}, err
		}

		out.ID, out.Jobs = accepted.ID, done.Jobs
		out.Warnings = append(out.Warnings, done.refusals()...)

		for i, m := range out.Machines {
			if reason := done.Skipped[m.Node]; reason != "" {
				out.Machines[i] = api.ImportedMachine{Node: m.Node, Action: api.ImportSkipped, Reason: reason}
			}
		}
	}

	out.Revision = s.State.View().Revision

	return out, nil
}

// allWrong returns the error for the mistakes of a list. The entries without a mistake are compared with the nodes, so
// that what is wrong with them is said at once, too.
func (s *Service) allWrong(
	ctx context.Context, c access.Caller, entries []listing.Entry, problems []listing.Problem,
) error {
	v, err := c.Check(ctx, s.State, s.State.View(), nil)
	if err != nil {
		return listing.Err(problems)
	}

	for _, p := range problems {
		if p.Entry > 0 && p.Entry <= len(entries) {
			entries[p.Entry-1] = listing.Entry{}
		}
	}

	_, more := plan(v, entries, false)

	return listing.Err(append(problems, more...))
}

// preview returns what a request would do.
func (s *Service) preview(
	ctx context.Context, c access.Caller, out api.Imported, decide decision,
) (api.Imported, error) {
	if err := s.State.Sync(ctx); err != nil {
		return api.Imported{}, err
	}

	v, err := c.Check(ctx, s.State, s.State.View(), nil)
	if err != nil {
		return api.Imported{}, err
	}

	p, err := decide(v)
	out.Machines, out.Warnings, out.Revision = p.machines, append(out.Warnings, p.warnings...), v.Revision

	return out, err
}

// accept stores the import once no other one is being carried out. It is nil if there is nothing to change.
func (s *Service) accept(ctx context.Context, c access.Caller, decide decision) (planned, *Import, error) {
	for {
		// Take the channel first: a change during the decision must wake the wait.
		changed := s.State.Changed()
		busy := false

		type result struct {
			planned
			accepted *Import
		}

		out, _, err := access.Decide(ctx, s.Store, c, nil, func(tx *record.Tx) (result, error) {
			// Reading all imports guards the commit: two requests cannot be decided on the same nodes.
			busy = slices.ContainsFunc(record.List(tx, &Kind), func(i *Import) bool { return i.Ended.IsZero() })
			if busy {
				return result{}, nil
			}

			p, err := decide(state.ViewOf(tx))
			if err != nil {
				return result{}, err
			}

			accepted, err := p.record(c.Principal, time.Now())
			if err != nil || accepted == nil {
				return result{planned: p}, err
			}

			record.Put(tx, &Kind, accepted)

			return result{p, accepted}, nil
		})
		if err != nil || !busy {
			return out.planned, out.accepted, err
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return planned{}, nil, inventory.Errorf(inventory.KindUnavailable, "another import has not ended").
				Do("nothing was changed; try again later")
		}
	}
}

// record returns the record of the import, or nil if it changes nothing.
func (p planned) record(actor string, now time.Time) (*Import, error) {
	var again []string
	if len(p.then) > 0 {
		again = p.again
	}

	if joinsAt(p.then) < len(p.then) {
		again = slices.Concat(again, p.reached)
	}

	if len(p.registrations)+len(p.remove)+len(again) == 0 {
		return nil, nil
	}

	out := &Import{
		ID: rand.Text(), Actor: actor, Started: now, Registrations: p.registrations, Again: again, Remove: p.remove,
		Secrets: configuration.Vars{}, Actions: map[string]api.ImportAction{}, Verbs: p.then, Then: p.then,
	}

	for _, name := range again {
		out.Actions[name] = api.ImportSame
	}

	for _, m := range p.machines {
		switch m.Action {
		case api.ImportCreated, api.ImportChanged, api.ImportRemoved:
			out.Actions[m.Node] = m.Action
		}
	}

	passwords, vars := map[string]any{}, map[string]any{}

	for _, r := range p.registrations {
		if r.password != "" {
			passwords[r.Node] = r.password
		}

		if len(r.vars) > 0 {
			vars[r.Node] = map[string]any(r.vars)
		}
	}

	for name, set := range map[string]map[string]any{secretPasswords: passwords, secretVars: vars} {
		if len(set) > 0 {
			out.Secrets[name] = configuration.NewSecret(set)
		}
	}

	secrets, err := json.Marshal([]any{passwords, vars})
	if err != nil {
		return nil, err
	}

	bare := *out
	bare.Secrets = nil

	rest, err := Kind.Encode(&bare)
	if err != nil {
		return nil, err
	}

	if len(secrets) > maxSecrets || len(rest) > maxRecord {
		return nil, inventory.Errorf(inventory.KindTooLarge,
			"the changes are too large for one import: %d KiB, and %d KiB of passwords and variables",
			len(rest)>>10, len(secrets)>>10).
			Do("split the list, or set the variables by group; the limits are %d KiB and %d KiB", maxRecord>>10,
				maxSecrets>>10)
	}

	return out, nil
}

// await waits until an import has registered all machines, and the first job that follows is accepted.
func (s *Service) await(ctx context.Context, id string) (Import, error) {
	for {
		changed := s.State.Changed()

		i := record.Get(s.State.View(), &Kind, id)
		if i == nil {
			return Import{}, nil // it ended long ago
		}

		if !i.Ended.IsZero() && (len(i.Then) == 0 || len(i.Jobs) > 0 || i.Waits != "") {
			return *i, nil
		}

		select {
		case <-changed:
		case <-ctx.Done():
			// Only what follows is not begun yet.
			if !i.Ended.IsZero() {
				return *i, nil
			}

			return Import{}, inventory.Errorf(inventory.KindUnavailable,
				"the import %s is stored, and has not ended yet", id).
				Do("it goes on by itself; look at it instead of repeating the request")
		}
	}
}

// round carries out the imports that were accepted, and removes the results that nobody waits for any more.
func (s *Service) round(ctx context.Context) (control.Next, error) {
	var next control.Next

	all := slices.Clone(record.List(s.State.View(), &Kind))
	excess := len(all) - keptCount
	slices.SortFunc(all, func(a, b *Import) int { return a.Started.Compare(b.Started) })

	// One that fails does not hold up the others.
	var failed []error

	for at, i := range all {
		end := i.Ended.Add(keptFor)

		switch {
		case i.Ended.IsZero():
			failed = append(failed, s.carryOut(ctx, *i))
		case len(i.Then) > 0:
			failed = append(failed, s.next(ctx, i.ID))
		case at >= excess && time.Now().Before(end):
			next.At = control.Earliest(next.At, end)
		default:
			_, _, err := record.Decide(ctx, s.Store, func(tx *record.Tx) (none struct{}, err error) {
				record.Remove(tx, &Kind, i.ID)
				return none, nil
			})
			failed = append(failed, err)
		}
	}

	return next, errors.Join(failed...)
}

// carryOut registers the machines of an import, or what an earlier attempt left of it.
func (s *Service) carryOut(ctx context.Context, i Import) error {
	skipped := map[string]string{}

	if err := i.unseal(); err != nil {
		return err
	}

	for chunk := range i.chunks() {
		left, _, err := record.Decide(ctx, s.Store, func(tx *record.Tx) (map[string]string, error) {
			// A former leader may be slow.
			if now := record.Get(tx, &Kind, i.ID); now == nil || !now.Ended.IsZero() {
				return nil, errStale
			}

			// An agent that speaks first makes a node by itself.
			tx.DependOn(&state.Agents)

			left, agents := map[string]string{}, appeared(state.ViewOf(tx))
			for _, r := range chunk {
				if reason := register(tx, r, i, agents); reason != "" {
					left[r.Node] = reason
				}
			}

			return left, nil
		})
		if err != nil {
			return stale(err)
		}

		maps.Copy(skipped, left)
	}

	if err := s.remove(ctx, i, skipped); err != nil {
		return err
	}

	_, _, err := record.Decide(ctx, s.Store, func(tx *record.Tx) (none struct{}, err error) {
		// A former leader may be slow.
		if now := record.Get(tx, &Kind, i.ID); now == nil || !now.Ended.IsZero() {
			return none, nil
		}

		ended := &Import{
			ID: i.ID, Actor: i.Actor, Started: i.Started, Ended: time.Now(), Skipped: skipped, Actions: i.Actions,
			Verbs: i.Verbs,
		}

		ended.Nodes, ended.Joins = i.goesOn(state.ViewOf(tx), skipped)
		if len(ended.Nodes)+len(ended.Joins) > 0 {
			ended.Then = i.Then
		}

		record.Put(tx, &Kind, ended)

		return none, nil
	})

	return err
}

// unseal returns the secrets to the registrations.
func (i *Import) unseal() error {
	i.Registrations = slices.Clone(i.Registrations)

	sets := map[string]map[string]any{}

	for name, value := range i.Secrets {
		secret, _ := value.(configuration.Secret)

		set, err := secret.Reveal()
		if err != nil {
			return fmt.Errorf("the secrets of the import: %w", err)
		}

		sets[name], _ = set.(map[string]any)
	}

	for at := range i.Registrations {
		r := &i.Registrations[at]
		r.password, _ = sets[secretPasswords][r.Node].(string)

		if vars, ok := sets[secretVars][r.Node].(map[string]any); ok {
			r.vars = vars
		}
	}

	return nil
}

// chunks returns the registrations in parts that fit a transaction.
func (i *Import) chunks() func(yield func([]Registration) bool) {
	return func(yield func([]Registration) bool) {
		first, ops := 0, 0

		for at, r := range i.Registrations {
			cost := 3 // node, history, machine
			if r.Connection != (configuration.Connection{}) {
				cost++
			}

			if len(r.vars) > 0 {
				cost++
			}

			if ops+cost > chunkOps {
				if !yield(i.Registrations[first:at]) {
					return
				}

				first, ops = at, 0
			}

			ops += cost
		}

		if first < len(i.Registrations) {
			yield(i.Registrations[first:])
		}
	}
}

// register writes one machine, as far as it is not registered so already. It returns why the node is left as it is, or
// "". agents are the nodes that appeared by their agents.
func register(tx *record.Tx, r Registration, i Import, agents index) string {
	v := state.ViewOf(tx)
	c := currentOf(v, r.Node)

	after := c.after(r)

	changes := c.changes(after)
	switch reason := cmp.Or(c.refuses(r), after.tooLarge()); {
	case c.node != nil && (c.imported() || r.Configures) && len(changes) == 0:
		return "" // by an earlier attempt
	case reason != "":
		return reason
	case c.node != nil && c.imported() && !r.Configures && !share(c, r):
		return "another machine was registered under its name meanwhile"
	}

	if _, why := agents.find(listing.Keys(&r.Machine, r.Addr)); c.node == nil && len(why) > 0 {
		return fmt.Sprintf("its agent has spoken meanwhile: %s; import the list again", strings.Join(why, ", "))
	}

	trigger := inventory.Trigger{Actor: i.Actor, Time: time.Now()}

	if !c.imported() && !r.Configures {
		after.machine.Registered, after.machine.Actor = i.Started, i.Actor
	}

	var (
		n     inventory.Node
		entry inventory.HistoryEntry
	)

	if c.node == nil {
		trigger.Reason = "imported"
		n, entry = inventory.Enroll(r.Node, after.addr, record.Get(tx, &state.Tombstones, r.Node), trigger)
	} else {
		trigger.Reason = cmp.Or(inWords(changes), "registered")
		before := *c.node
		if c.unproven(r, after) {
			n, entry = before.Unproven(trigger)
		} else {
			n, entry = before.Note(inventory.VerbRegister, trigger)
		}

		n.Addr = after.addr
	}

	n.Labels = after.labels

	tx.Attach(state.NodeWrite{Node: n, Entries: []inventory.HistoryEntry{entry}})
	record.PutAt(tx, &state.Machines, r.Node, &after.machine)

	if after.connection != c.connection {
		record.PutAt(tx, &state.Connections, r.Node, &after.connection)
	}

	if len(r.vars) > 0 {
		scope := state.ScopeNode(r.Node)
		record.PutAt(tx, &state.Variables, string(scope), &state.ScopeVars{Scope: scope, Vars: after.vars})
	}

	return ""
}

// share reports whether the registered machine and the registration of its name have evidence of the same machine. If
// one of them has no evidence at all, as a machine without a BMC whose MACs nobody knows, the name is all there is.
func share(c current, r Registration) bool {
	keys := listing.Keys(&c.machine.Machine, c.node.Addr)
	given := listing.Keys(&r.Machine, r.Addr)

	return len(keys) == 0 || len(given) == 0 || slices.ContainsFunc(given, func(key string) bool {
		return slices.Contains(keys, key)
	})
}

// remove forgets the nodes that prune takes away, unless they came into use meanwhile.
func (s *Service) remove(ctx context.Context, i Import, skipped map[string]string) error {
	if len(i.Remove) == 0 {
		return nil
	}

	return state.RetryConflict(ctx, s.State, func(v *state.View) error {
		var writes []state.NodeWrite

		for _, name := range i.Remove {
			n, known := v.Lookup(name)
			if !known {
				continue // by an earlier attempt
			}

			if reason := keptBecause(v, name); reason != "" {
				skipped[name] = reason
				continue
			}

			writes = append(writes, node.Tombstone(n, i.Actor, "missing from the imported list", time.Now()))
		}

		if len(writes) == 0 {
			return nil
		}

		_, err := s.Store.Forget(ctx, v.Revision, nil, writes, nil)

		return err
	})
}

// Export returns the registered machines as a list that Import takes, without secrets. What the newest inspection found
// is a comment.
func Export(v *state.View) map[string]any {
	nodes := []map[string]any{}

	for _, m := range record.List(v, &state.Machines) {
		if !m.Registered.IsZero() {
			nodes = append(nodes, exported(v, m))
		}
	}

	return map[string]any{"nodes": nodes}
}

func exported(v *state.View, m *state.Machine) map[string]any {
	e := map[string]any{"name": m.Node}

	set := func(field string, value any, given bool) {
		if given {
			e[field] = value
		}
	}

	if b := m.BMC; b != nil {
		set("pm_type", b.Driver, true)
		set("pm_port", b.Port, b.Port != 0)
		set("pm_user", b.User, b.User != "")
		set("pm_system_id", b.System, b.System != "")
		set("redfish_verify_ca", true, b.Verify)

		addr := b.Address
		if b.Plain {
			addr = "http://" + addr
		}

		set("pm_addr", addr, b.Address != "")
	}

	ports := make([]map[string]any, len(m.Ports))
	for i, p := range m.Ports {
		ports[i] = maps.Clone(p.Extra)
		if ports[i] == nil {
			ports[i] = map[string]any{}
		}

		ports[i]["address"] = p.MAC
	}

	set("ports", ports, len(ports) > 0)
	set("uuid", m.UUID, m.UUID != "")
	set("cpu", m.CPUs, m.CPUs != 0)
	set("memory", m.MemoryMB, m.MemoryMB != 0)
	set("disk", m.DiskGB, m.DiskGB != 0)
	set("arch", m.Arch, m.Arch != "")
	set("capabilities", m.Capabilities, len(m.Capabilities) > 0)
	set("root_device", m.RootDevice, len(m.RootDevice) > 0)
	set("image", m.Image, m.Image != "")
	set("kernel_args", m.KernelArgs, m.KernelArgs != "")
	maps.Copy(e, m.Extra)

	n, _ := v.Lookup(m.Node)
	set("addr", n.Addr, n.Addr != "")
	set("_comment", n.Hardware.String(), n.Hardware != nil)
	set("labels", n.Labels, len(n.Labels) > 0)

	if c := v.Connection(m.Node); c != nil && *c != (configuration.Connection{}) {
		shown := *c
		shown.FormerKeyFile = ""
		set("connection", shown, true)
	}

	return e
}
