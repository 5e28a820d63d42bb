// SPDX-License-Identifier: Apache-2.0

package enroll

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/evidence"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/enroll/listing"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Registration is what an import says of one machine. What it leaves out stays as it is.
type Registration struct {
	machine.Machine

	Addr       string                   `json:"addr,omitempty"`
	Connection configuration.Connection `json:"connection,omitzero"`
	Labels     map[string]string        `json:"labels,omitempty"`

	// Configures: the node is known by its name, and changed only while it is Manageable.
	Configures bool `json:"configures,omitempty"`

	password string
	vars     configuration.Vars
}

// current is a machine and its node as they are.
type current struct {
	node       *inventory.Node // nil: there is none
	machine    state.Machine
	registered bool // there is a record of the machine
	connection configuration.Connection
	vars       configuration.Vars
}

// imported reports whether the machine is from a list. One that was only configured is not.
func (c current) imported() bool { return c.registered && !c.machine.Machine.Registered.IsZero() }

func currentOf(v *state.View, name string) current {
	var c current

	if n, known := v.Lookup(name); known {
		c.node = &n
	}

	if m := record.Get(v, &state.Machines, name); m != nil {
		c.machine, c.registered = *m, true
	}

	if conn := v.Connection(name); conn != nil {
		c.connection = *conn
	}

	c.vars = state.VarsOf(v, state.ScopeNode(name))

	return c
}

// busy returns why the node must not be touched, or "".
func (c current) busy() string {
	switch n := c.node; {
	case n == nil:
		return ""
	case n.Job != "" || n.Status.InProgress():
		return fmt.Sprintf("it is %s: job %s holds it", n.Status, n.Job)
	case n.Status == inventory.Allocated:
		return "it is Allocated: in service"
	}

	return ""
}

// refuses returns why the registration must not touch the node, or "".
func (c current) refuses(r Registration) string {
	if busy := c.busy(); busy != "" || !r.Configures {
		return busy
	}

	switch {
	case c.node == nil:
		return "it is no longer known"
	case c.node.Status != inventory.Manageable:
		return fmt.Sprintf("it is %s; only nodes that are %s are configured", c.node.Status, inventory.Manageable)
	}

	return ""
}

// merged returns the machine after the registration, with its secrets.
func (c current) merged(r Registration) state.Machine {
	out := c.machine
	out.Machine = c.machine.Clone()
	out.Node = r.Node

	if r.BMC != nil {
		b := *r.BMC
		// Another BMC has other users.
		if was := out.BMC; was != nil && was.Driver == b.Driver && was.Address == b.Address {
			b.User, b.System = cmp.Or(b.User, was.User), cmp.Or(b.System, was.System)

			// The list is older than the login that has replaced its password, which belongs to a user.
			if r.password != "" && c.machine.Replaced(r.password) {
				b.User = was.User
			}
		}

		out.BMC = &b
	}

	if len(r.Ports) > 0 {
		out.Ports = r.Ports
	}

	out.UUID, out.Arch = cmp.Or(r.UUID, out.UUID), cmp.Or(r.Arch, out.Arch)
	out.CPUs, out.MemoryMB, out.DiskGB = cmp.Or(r.CPUs, out.CPUs), cmp.Or(r.MemoryMB, out.MemoryMB),
		cmp.Or(r.DiskGB, out.DiskGB)

	if len(r.Capabilities) > 0 {
		out.Capabilities = r.Capabilities
	}

	if len(r.RootDevice) > 0 {
		out.RootDevice = r.RootDevice
	}

	out.Image, out.KernelArgs = cmp.Or(r.Image, out.Image), cmp.Or(r.KernelArgs, out.KernelArgs)

	if len(r.Extra) > 0 {
		out.Extra = r.Extra
	}

	// One that cannot be read is replaced.
	stored, err := c.machine.Password()
	if r.password != "" && (err != nil || r.password != stored && !c.machine.Replaced(r.password)) {
		out.Secrets = configuration.Vars{state.SecretBMC: configuration.NewSecret(r.password)}
	}

	return out
}

// outcome is a machine and its node after a registration.
type outcome struct {
	machine    state.Machine
	addr       string
	connection configuration.Connection
	labels     map[string]string
	vars       configuration.Vars
}

func (c current) after(r Registration) outcome {
	out := outcome{machine: c.merged(r), connection: r.Connection.Over(c.connection), vars: maps.Clone(c.vars)}

	if c.node != nil {
		out.addr, out.labels = c.node.Addr, maps.Clone(c.node.Labels)
	}

	// The address of a node whose agent has spoken is observed.
	if r.Addr != "" && (c.node == nil || c.node.Label == "") {
		out.addr = r.Addr
	}

	if out.labels == nil && len(r.Labels) > 0 {
		out.labels = map[string]string{}
	}

	maps.Copy(out.labels, r.Labels)

	if out.vars == nil && len(r.vars) > 0 {
		out.vars = configuration.Vars{}
	}

	maps.Copy(out.vars, r.vars)

	return out
}

// tooLarge returns why the outcome is more than a node may have, or "".
func (o outcome) tooLarge() string {
	if len(o.labels) > inventory.MaxLabels {
		return fmt.Sprintf("it would have %d labels, the limit is %d", len(o.labels), inventory.MaxLabels)
	}

	return ""
}

// changes returns the fields that the registration changes, in the order of their names.
func (c current) changes(after outcome) []api.ImportChange {
	before := outcome{machine: c.machine, connection: c.connection, vars: c.vars}
	if c.node != nil {
		before.addr, before.labels = c.node.Addr, c.node.Labels
	}

	was, is := before.flat(), after.flat()

	names := map[string]bool{}
	for name := range was {
		names[name] = true
	}

	for name := range is {
		names[name] = true
	}

	var changes []api.ImportChange

	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !reflect.DeepEqual(was[name], is[name]) {
			changes = append(changes, api.ImportChange{Field: name, Before: was[name], After: is[name]})
		}
	}

	secret := func(s configuration.Vars) any {
		value, _ := s[state.SecretBMC].(configuration.Secret)
		revealed, _ := value.Reveal()

		return revealed
	}
	if secret(c.machine.Secrets) != secret(after.machine.Secrets) {
		changes = append(changes, api.ImportChange{Field: "password"})
	}

	for _, name := range slices.Sorted(maps.Keys(after.vars)) {
		if !sameValue(c.vars[name], after.vars[name]) {
			changes = append(changes, api.ImportChange{Field: "vars." + name})
		}
	}

	return changes
}

// unproven reports whether the registration changes how a Manageable node or its BMC is reached, so that what was
// checked before says nothing. A node whose agent has spoken stays as it is: the agent of an Enrolled one would offer
// it for use.
func (c current) unproven(r Registration, after outcome) bool {
	if r.Configures || c.node.Status != inventory.Manageable || c.node.Label != "" {
		return false
	}

	was, _ := c.machine.Password()
	is, err := after.machine.Password()

	return err != nil || was != is || !reflect.DeepEqual(c.machine.BMC, after.machine.BMC) ||
		c.node.Addr != after.addr || c.connection != after.connection
}

// sameValue compares a stored variable, which may be a secret, with a given one.
func sameValue(stored, given any) bool {
	if s, ok := stored.(configuration.Secret); ok {
		stored, _ = s.Reveal()
	}

	if s, ok := given.(configuration.Secret); ok {
		given, _ = s.Reveal()
	}

	return reflect.DeepEqual(plain(stored), plain(given))
}

// plain returns a value as JSON has it.
func plain(value any) (out any) {
	b, err := json.Marshal(value)
	if err != nil || json.Unmarshal(b, &out) != nil {
		return value
	}

	return out
}

// flat returns the fields of a machine that can be shown, those of its parts under dotted names.
func (o outcome) flat() map[string]any {
	m := o.machine.Machine
	m.Node, m.Actor = "", ""

	fields, _ := plain(m).(map[string]any)
	delete(fields, "node")
	delete(fields, "registered")

	if o.addr != "" {
		fields["addr"] = o.addr
	}

	for name, part := range map[string]any{"connection": o.connection, "labels": o.labels, "bmc": m.BMC} {
		values, _ := plain(part).(map[string]any)
		delete(fields, name)

		for key, value := range values {
			fields[name+"."+key] = value
		}
	}

	return fields
}

// inWords describes changes for the history of a node.
func inWords(changes []api.ImportChange) string {
	texts := make([]string, len(changes))

	for i, c := range changes {
		switch {
		case c.Before == nil && c.After == nil:
			texts[i] = c.Field + " changed"
		default:
			texts[i] = fmt.Sprintf("%s %s → %s", c.Field, brief(c.Before), brief(c.After))
		}
	}

	return inventory.Shorten(strings.Join(texts, ", "), 400)
}

func brief(value any) string {
	if value == nil {
		return "none"
	}

	if text, ok := value.(string); ok {
		return inventory.Shorten(text, 60)
	}

	var b strings.Builder

	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // operators of hints are < and >

	if err := e.Encode(value); err != nil {
		return fmt.Sprint(value)
	}

	return inventory.Shorten(strings.TrimSpace(b.String()), 60)
}

// planned is what an import would do.
type planned struct {
	machines      []api.ImportedMachine
	registrations []Registration
	again         []string // registered already, and still Enrolled: the verbs that follow take them as well
	reached       []string // registered already, and Manageable: those verbs take them that go on from there
	remove        []string
	warnings      []string
	then          []inventory.Verb
}

// index finds nodes by the evidence of their identity.
type index struct {
	names   map[string][]string // by a key of listing.Keys
	systems map[string][]string // of the nodes whose BMC is at a place
}

func indexOf(v *state.View) index {
	return indexOfNodes(v, func(*inventory.Node) bool { return true })
}

// appeared is the index of the nodes that appeared by their agents.
func appeared(v *state.View) index {
	return indexOfNodes(v, func(n *inventory.Node) bool { return record.Get(v, &state.Agents, n.Name) != nil })
}

func indexOfNodes(v *state.View, match func(*inventory.Node) bool) index {
	in := index{names: map[string][]string{}, systems: map[string][]string{}}

	for _, n := range v.Nodes() {
		if !match(n) {
			continue
		}

		m := record.Get(v, &state.Machines, n.Name)
		if m == nil {
			m = &state.Machine{}
		}

		keys := listing.Keys(&m.Machine, n.Addr)
		if a := record.Get(v, &state.Agents, n.Name); a != nil {
			keys = append(keys, listing.Keys(a.Machine(), "")...)
		}

		for _, key := range keys {
			if !slices.Contains(in.names[key], n.Name) {
				in.names[key] = append(in.names[key], n.Name)
			}
		}

		if place := listing.Place(m.BMC); place != "" {
			in.systems[place] = append(in.systems[place], m.BMC.System)
		}
	}

	return in
}

// find returns the nodes that share evidence with an entry, and that evidence.
func (in index) find(keys []string) (names, why []string) {
	for _, key := range keys {
		for _, name := range in.names[key] {
			if !slices.Contains(names, name) {
				names, why = append(names, name), append(why, name+" by its "+strings.Replace(key, "ssh", "address", 1))
			}
		}
	}

	return names, why
}

// complete names the system that an entry leaves out, as idrac and ilo may, if its BMC has the one of a single node. It
// returns the systems of several nodes.
func (in index) complete(b *machine.BMC) (several []string) {
	if b == nil || b.System != "" || !b.Driver.SpeaksRedfish() {
		return nil
	}

	known := in.systems[listing.Place(b)]
	if len(known) == 1 {
		b.System, known = known[0], nil
	}

	return known
}

// plan compares a list with what there is.
func plan(v *state.View, entries []listing.Entry, prune bool) (planned, []listing.Problem) {
	var (
		p        planned
		problems []listing.Problem
		unused   []listing.Problem // names that are not used
	)

	in, listed := indexOf(v), map[string]int{}

	for i, e := range entries {
		if e.Node == "" {
			continue // it has a mistake
		}

		field := ""
		problem := func(format string, args ...any) {
			problems = append(problems, listing.Problem{
				Entry: i + 1, Name: e.Node, Line: e.Line, Field: field, Message: fmt.Sprintf(format, args...),
			})
		}

		r := registrationOf(e)
		systems := in.complete(r.BMC)

		names, why := in.find(listing.Keys(&r.Machine, r.Addr))

		switch {
		case len(names) > 1:
			problem("it fits several nodes: %s", strings.Join(why, ", "))
			continue
		case len(names) == 1:
			// A node that shares little and differs in much is another machine, as one at a former address.
			if v := compare(v, r, names[0]); v.Score < 0 {
				problem("it seems to be another machine than %s: it has %s", names[0], v)
				continue
			}

			if n, _ := v.Lookup(names[0]); e.Named && e.Node != n.Name && e.Node != n.Label {
				unused = append(unused, listing.Problem{
					Entry: i + 1, Name: e.Node, Line: e.Line, Field: "name",
					Message: fmt.Sprintf("the name is not used: the machine is known as %s, it has the same %s", n.Name,
						strings.TrimPrefix(why[0], n.Name+" by its ")),
				})
			}

			r.Node = names[0]
		case len(systems) > 0:
			field = "pm_system_id"
			problem("the BMC has several nodes; say which one: %s",
				strings.Join(inventory.ShortenAll(systems, maxNamed, maxName), ", "))
			continue
		default:
			// A node without a record may be any machine; one with a record is another machine.
			if c := currentOf(v, r.Node); c.node != nil && c.imported() && !share(c, r) {
				field = "name"
				problem("the name is that of a registered machine with another BMC, MAC, UUID and address")
				continue
			}
		}

		if first, twice := listed[r.Node]; twice {
			problem("it is the node %s, as is entry %d", r.Node, first)
			continue
		}

		listed[r.Node] = i + 1

		c := currentOf(v, r.Node)
		after := c.after(r)
		m := api.ImportedMachine{Node: r.Node, Changes: c.changes(after)}

		if reason := after.tooLarge(); reason != "" {
			field = "labels"
			problem("%s", reason)
			continue
		}

		// The hints are those of the next installation, so they have to fit what is there.
		if err := c.fits(v, r); err != nil {
			field = "root_device"
			problem("%v", err)

			continue
		}

		_, registered := v.Lookup(r.Node)
		busy := c.busy()

		switch {
		case len(m.Changes) == 0 && registered && c.imported():
			m.Action = api.ImportSame
		case busy != "":
			m.Action, m.Changes, m.Reason = api.ImportSkipped, nil, busy
		case !registered:
			m.Action, m.Changes = api.ImportCreated, nil
			p.registrations = append(p.registrations, r)
		default:
			m.Action = api.ImportChanged
			p.registrations = append(p.registrations, r)
		}

		if c.node == nil || c.node.Status == inventory.Enrolled && busy == "" {
			m.Checks = checks(&after.machine.Machine, after.addr)

			if m.Action == api.ImportSame {
				p.again = append(p.again, r.Node)
			}
		}

		if c.node != nil && c.node.Status == inventory.Manageable && busy == "" {
			switch {
			case m.Action == api.ImportSame:
				p.reached = append(p.reached, r.Node)
			case c.unproven(r, after):
				m.Checks = checks(&after.machine.Machine, after.addr)
			}
		}

		p.machines = append(p.machines, m)
	}

	p.warnings = append(p.warnings, listing.Lines(unused)...)
	created := 0

	for _, m := range p.machines {
		if m.Action == api.ImportCreated {
			created++
		}
	}

	if known := len(v.Nodes()); created > 0 && known+created > listing.MaxEntries {
		problems = append(problems, listing.Problem{Message: fmt.Sprintf(
			"%d nodes are known, and %d would be new; the limit is %d", known, created, listing.MaxEntries,
		)})
	}

	if prune {
		p.prune(v, func(name string) bool { return listed[name] > 0 })
	}

	return p, problems
}

// fits returns why no disk of the node fits the hints of the registration, as far as its disks are known.
func (c current) fits(v *state.View, r Registration) error {
	if len(r.RootDevice) == 0 || c.busy() != "" {
		return nil
	}

	found, inspected, err := state.Newest(v, r.Node)
	if err != nil || !inspected {
		return nil //nolint:nilerr // the next inspection replaces facts that cannot be read
	}

	_, err = facts.RootDevice(r.RootDevice, found.Disks)

	return err
}

// compare compares an entry with a node. What the entry leaves out says nothing.
func compare(v *state.View, r Registration, name string) evidence.Verdict {
	n, _ := v.Lookup(name)

	listed := state.EvidenceOfMachine(&state.Machine{Machine: r.Machine})
	listed.Addr = r.Addr

	return evidence.Compare(listed, state.EvidenceOf(v, &n))
}

// prune removes the imported machines that are not listed, and lists the other nodes with the reason.
func (p *planned) prune(v *state.View, listed func(name string) bool) {
	for _, n := range v.Nodes() {
		if listed(n.Name) {
			continue
		}

		m := api.ImportedMachine{Node: n.Name, Action: api.ImportKept, Reason: keptBecause(v, n.Name)}
		if m.Reason == "" {
			m.Action = api.ImportRemoved
			p.remove = append(p.remove, n.Name)
		}

		p.machines = append(p.machines, m)
	}
}

// keptBecause returns why prune leaves a node that is not listed, or "".
func keptBecause(v *state.View, name string) string {
	c := currentOf(v, name)

	switch busy := c.busy(); {
	case !c.imported():
		return "it was not imported"
	case busy != "":
		return busy
	case c.node != nil && c.node.State == inventory.Discovered:
		return "its agent speaks: it would come back as another node"
	}

	return ""
}

// registrationOf returns what an entry says.
func registrationOf(e listing.Entry) Registration {
	r := Registration{
		Machine: e.Machine, Connection: e.Connection, Labels: e.Labels, vars: e.Vars,
	}

	if e.Addr != "" {
		r.Addr = job.CanonicalAddr(e.Addr)
	}

	if e.BMC != nil {
		b := *e.BMC
		r.password, b.Password = b.Password, ""
		r.BMC = &b
	}

	return r
}
