// SPDX-License-Identifier: Apache-2.0

package enroll

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/evidence"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/enroll/listing"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// inherited is the number of entries of its history that a merged node brings with it.
const inherited = 20

// Merge makes two nodes of one machine one: the registration of the one joins the other, whose agent speaks.
// mayReach is why the caller may not change how nodes are reached, or nil.
func (s *Service) Merge(ctx context.Context, c access.Caller, mayReach error, r api.Merge) (revision int64, err error) {
	if err := inventory.CheckReason(r.Reason); err != nil {
		return 0, err
	}

	audit := access.Record{Action: "nodes.merge", Targets: []string{r.Machine, r.Node}, Reason: r.Reason}
	err = access.Audited(ctx, s.Audit, c, audit, func(ctx context.Context, _ *access.Record) (err error) {
		history, err := s.Store.History(ctx, r.Machine, inherited)
		if err != nil {
			return err
		}

		_, revision, err = access.Decide(ctx, s.Store, c, nil, func(tx *record.Tx) (none struct{}, err error) {
			return none, merge(tx, c, mayReach, r, history)
		})

		return err
	})

	return revision, err
}

func merge(
	tx *record.Tx, c access.Caller, mayReach error, r api.Merge, history []inventory.HistoryEntry,
) error {
	v := state.ViewOf(tx)

	from, err := v.Node(r.Machine)
	if err != nil {
		return err
	}

	to, err := v.Node(r.Node)
	if err != nil {
		return err
	}

	// What is read by the transaction guards its commit.
	registered := record.Get(tx, &state.Machines, from.Name)
	configured := record.Get(tx, &state.Machines, to.Name)
	verdict := evidence.Compare(state.EvidenceOf(v, &from), state.EvidenceOf(v, &to))

	switch {
	case from.Job != "" || to.Job != "":
		return inventory.Errorf(inventory.KindRefused, "a job holds %s or %s", from.Name, to.Name).
			Do("wait for the job").About(from.Name, to.Name)
	case registered == nil || registered.Registered.IsZero():
		return inventory.Errorf(inventory.KindRefused, "%s has no registration that could join %s", from.Name, to.Name).
			Do("name the registered machine first, and the node of its agent second").About(from.Name)
	case from.Label != "":
		return inventory.Errorf(inventory.KindRefused, "an agent speaks as %s already", from.Name).
			Do("split the registration from it first, if it is of another machine").About(from.Name)
	case to.InService() && changes(tx, from, to):
		return inventory.Errorf(inventory.KindRefused,
			"%s is in service, and the labels, variables and settings of %s would change it", to.Name, from.Name).
			Do("decommission it first, or take them from %s", from.Name).
			About(from.Name, to.Name)
	case from.Status == inventory.Quarantined:
		return inventory.Errorf(inventory.KindRefused, "%s is Quarantined: its machine may not be clean", from.Name).
			Do("clear it first").With(inventory.Submit(inventory.VerbClear, from.Name)).About(from.Name)
	case from.Uncleaned:
		return inventory.Errorf(inventory.KindRefused, "a cleaning failed on %s, and none succeeded since", from.Name).
			Do("make it Manageable and provide it first").About(from.Name)
	case configured != nil && !configured.Registered.IsZero():
		return inventory.Errorf(inventory.KindRefused, "%s has a registration of its own", to.Name).
			Do("split it from the node first, if it is of another machine").About(to.Name)
	case verdict.Score < 0 && !r.Force:
		return inventory.Errorf(inventory.KindRefused, "%s and %s seem to be two machines: they have %s",
			from.Name, to.Name, verdict).
			Do("look at the evidence; if they are one machine all the same, use force").About(from.Name, to.Name)
	}

	trigger := inventory.Trigger{Actor: c.Principal, Time: time.Now(), Reason: because(fmt.Sprintf(
		"merged with %s, which was registered by %s", from.Name, registered.Actor), r.Reason)}

	// The settings of the node itself are newer.
	if conn := record.Get(tx, &state.Connections, from.Name); conn != nil &&
		record.Get(tx, &state.Connections, to.Name) == nil {
		if mayReach != nil {
			return mayReach
		}

		record.PutAt(tx, &state.Connections, to.Name, conn)
	}

	vars := state.VarsOf(tx, state.ScopeNode(from.Name))
	if scope := state.ScopeNode(to.Name); len(vars) > 0 && len(state.VarsOf(tx, scope)) == 0 {
		record.PutAt(tx, &state.Variables, string(scope), &state.ScopeVars{Scope: scope, Vars: vars})
	}

	if found := record.Get(tx, &state.Facts, from.Name); found != nil && record.Get(tx, &state.Facts, to.Name) == nil {
		moved := *found
		moved.Node = to.Name
		record.PutAt(tx, &state.Facts, to.Name, &moved)
	}

	joined := *registered
	joined.Machine = registered.Clone()
	joined.Node = to.Name
	overlay(&joined.Machine, configured)
	record.PutAt(tx, &state.Machines, to.Name, &joined)

	m, entries := to.Clone().Inherit(from.Name, history)
	m, entry := m.Note(inventory.VerbRegister, trigger)
	entries = append(entries, entry)

	// They are about the machine, and go on. Those of the node itself are newer.
	for _, a := range from.Alerts {
		if slices.ContainsFunc(m.Alerts, func(own inventory.Alert) bool { return own.ID == a.ID }) {
			continue
		}

		if m, entry, _, err = m.Alert(a, trigger); err != nil {
			return err
		}
		entries = append(entries, entry)
	}

	if m.Hardware == nil {
		m.Hardware = from.Hardware
	}

	for _, group := range from.Residue {
		if !slices.Contains(m.Residue, group) {
			m.Residue = append(m.Residue, group)
		}
	}

	// The labels of the node itself are newer.
	if labels := maps.Clone(from.Labels); labels != nil {
		maps.Copy(labels, m.Labels)
		m.Labels = labels
	}

	if reason := (outcome{labels: m.Labels}).tooLarge(); reason != "" {
		return inventory.Errorf(inventory.KindRefused, "%s cannot join %s: %s", from.Name, to.Name, reason).
			Do("remove labels of one of them").About(from.Name, to.Name)
	}

	tx.Attach(state.NodeWrite{Node: m, Entries: entries})
	tx.Attach(node.Tombstone(from, c.Principal, because("merged into "+to.Name, r.Reason), time.Now()))

	return nil
}

// overlay puts what was configured of a node, which is newer, over what was registered of its machine.
func overlay(m *machine.Machine, configured *state.Machine) {
	if configured == nil {
		return
	}

	c := configured.Clone()
	m.Image, m.KernelArgs = cmp.Or(c.Image, m.Image), cmp.Or(c.KernelArgs, m.KernelArgs)

	if len(c.RootDevice) > 0 {
		m.RootDevice = c.RootDevice
	}

	if m.Capabilities == nil {
		m.Capabilities = c.Capabilities
	}

	maps.Copy(m.Capabilities, c.Capabilities)
}

// changes reports whether a registration would change a node that it joins.
func changes(tx *record.Tx, from, to inventory.Node) bool {
	vars := state.VarsOf(tx, state.ScopeNode(from.Name))
	return len(from.Labels) > 0 || len(vars) > 0 && len(state.VarsOf(tx, state.ScopeNode(to.Name))) == 0 ||
		record.Get(tx, &state.Connections, from.Name) != nil && record.Get(tx, &state.Connections, to.Name) == nil
}

func because(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + ": " + reason
}

// Split takes the registration of a machine from a node whose agent speaks, and makes it a node of its own.
func (s *Service) Split(ctx context.Context, c access.Caller, r api.Split) (revision int64, err error) {
	if err := inventory.CheckName(r.As); err != nil {
		return 0, err
	}

	if err := inventory.CheckReason(r.Reason); err != nil {
		return 0, err
	}

	audit := access.Record{Action: "nodes.split", Targets: []string{r.Node, r.As}, Reason: r.Reason}
	err = access.Audited(ctx, s.Audit, c, audit, func(ctx context.Context, _ *access.Record) (err error) {
		_, revision, err = access.Decide(ctx, s.Store, c, nil, func(tx *record.Tx) (none struct{}, err error) {
			return none, split(tx, c, r)
		})

		return err
	})

	return revision, err
}

func split(tx *record.Tx, c access.Caller, r api.Split) error {
	v := state.ViewOf(tx)

	n, err := v.Node(r.Node)
	if err != nil {
		return err
	}

	registered := record.Get(tx, &state.Machines, n.Name)
	_, taken := v.Lookup(r.As)

	switch {
	case n.Job != "":
		return inventory.Errorf(inventory.KindRefused, "job %s holds %s", n.Job, n.Name).
			Do("wait for the job").With(inventory.WaitForJob(n.Job)).About(n.Name)
	case registered == nil || registered.Registered.IsZero():
		return inventory.Errorf(inventory.KindRefused, "%s has no registration", n.Name).
			Do("there is nothing to split").About(n.Name)
	case n.Label == "":
		return inventory.Errorf(inventory.KindRefused, "no agent has spoken as %s: it is only a registration", n.Name).
			Do("correct it by another import, or forget it").About(n.Name)
	case taken:
		return inventory.Errorf(inventory.KindRefused, "there is a node %s already", r.As).
			Do("choose another name").About(r.As)
	case len(v.Nodes()) >= listing.MaxEntries:
		return inventory.Errorf(inventory.KindRefused, "%d nodes are known already", len(v.Nodes())).
			Do("forget some").With(inventory.ForgetNodes())
	}

	trigger := inventory.Trigger{Actor: c.Principal, Time: time.Now()}

	trigger.Reason = because("its machine is registered as "+r.As+" again", r.Reason)
	left, entry := n.Note(inventory.VerbRegister, trigger)
	tx.Attach(state.NodeWrite{Node: left, Entries: []inventory.HistoryEntry{entry}})

	trigger.Reason = because("split from "+n.Name, r.Reason)
	enrolled, entry := inventory.Enroll(r.As, "", nil, trigger)
	enrolled.Uncleaned = n.Uncleaned // it may have been either of them
	tx.Attach(state.NodeWrite{Node: enrolled, Entries: []inventory.HistoryEntry{entry}})

	own := *registered
	own.Machine = registered.Clone()
	own.Node = r.As

	record.Remove(tx, &state.Machines, n.Name)
	record.PutAt(tx, &state.Machines, r.As, &own)

	return nil
}
