// SPDX-License-Identifier: Apache-2.0

package desired

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/merge"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Source has the desired configurations of an instance. Its methods may be called at
// once.
type Source struct {
	instance string
	settings func() merge.Settings

	mu      sync.Mutex
	last    *Configurations // of the newest inputs
	masters masterList
}

// New returns the source of the instance with that id.
func New(instance string, settings func() merge.Settings) *Source {
	return &Source{instance: instance, settings: settings}
}

// Of returns the desired configurations of the view's nodes. Views with the same inputs
// share them. The view must be a whole one: the variables of a part are incomplete.
func (s *Source) Of(v *state.View) *Configurations {
	next := inputs{
		// The nodes of the view are no part of the inputs, and must not be held.
		view:      &state.View{Snapshot: job.Snapshot{View: record.Only(v, &state.Variables)}},
		settings:  s.settings(),
		playbooks: state.PlaybooksOf(v, s.instance),
		key:       state.ChecksumKey(v),
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	next.masters = s.masters.of(v.Nodes(), next.settings.Groups)

	if s.last == nil || !s.last.same(next) {
		folder := &sync.Map{}
		if s.last != nil && s.last.playbooks.Digest == next.playbooks.Digest {
			folder = s.last.folder
		}
		s.last = newConfigurations(next, folder)
	}

	return s.last
}

// masterList has the masters among a list of nodes. Most requests are about the list of the one before.
type masterList struct {
	nodes    []*inventory.Node
	required map[string]bool // the groups that others require
	found    []merge.Master
}

// of returns the nodes that every inventory has. One that a job works on comes back, so it
// counts: nobody becomes outdated for the time of an update.
func (l *masterList) of(nodes []*inventory.Node, groups inventory.Groups) []merge.Master {
	required := map[string]bool{}
	for _, name := range groups.Names() {
		required[name] = groups.Required(name) > 0
	}

	sameList := len(nodes) == len(l.nodes) && (len(nodes) == 0 || &nodes[0] == &l.nodes[0])
	if sameList && maps.Equal(required, l.required) {
		return l.found
	}

	var found []merge.Master
	for _, n := range nodes {
		if (n.Status == inventory.Allocated || n.Status == inventory.Maintenance) && required[n.Group] {
			found = append(found, merge.Master{Name: n.Name, Addr: n.Addr, Group: n.Group})
		}
	}

	*l = masterList{nodes, required, found}

	return found
}

// inputs are everything that desired configurations depend on, the nodes that are no masters apart.
type inputs struct {
	view      *state.View
	settings  merge.Settings
	playbooks state.Playbooks
	key       configuration.ChecksumKey
	masters   []merge.Master
}

func (i inputs) same(as inputs) bool {
	merger := merge.NewMerger(i.view, i.settings)

	return i.playbooks == as.playbooks && i.key == as.key && slices.Equal(i.masters, as.masters) &&
		slices.EqualFunc(i.settings.Groups, as.settings.Groups, alikeGroups) &&
		merger.Alike(merge.NewMerger(as.view, as.settings)) == nil
}

// alikeGroups reports whether both groups give their nodes the same configuration, the
// variables apart.
func alikeGroups(a, b inventory.Group) bool {
	return a.Name == b.Name && a.Selection().Equal(b.Selection())
}

// Configurations are the desired configurations of all nodes, for inputs of one moment.
// The methods may be called at once.
type Configurations struct {
	inputs

	groups     map[string]sums // of the configured groups
	folder     *sync.Map       // place to configuration.FolderVars: of the nodes with variables of a request
	own        sync.Map        // place to checksum: of the nodes with variables of their own
	mastersSum string          // empty: unknown
}

// sums are the variables of a group with those of all nodes.
type sums struct {
	sums     configuration.Sums
	checksum string // of a node without variables of its own; empty: unknown
	tags     string // that choose the tasks of its playbooks
}

// place is a node in a group.
type place struct{ node, group string }

func newConfigurations(in inputs, folder *sync.Map) *Configurations {
	c := &Configurations{inputs: in, groups: map[string]sums{}, folder: folder}
	for _, name := range in.settings.Groups.Names() {
		c.groups[name] = c.sumsOf(name)
	}

	c.mastersSum = inventory.MastersOf(merge.MastersSum(c.key, c.masters),
		in.settings.MasterVarsSum(c.view, c.key, c.masters, nil))

	return c
}

func (c *Configurations) sumsOf(group string) sums {
	out := sums{
		sums: c.key.Sums(c.settings.Merge(c.view, group, "")), tags: c.settings.Groups.Selection(group).String(),
	}
	out.checksum, _ = out.sums.With(nil)
	return out
}

// variables returns the checksum of the node's variables, or "" if it is unknown.
func (c *Configurations) variables(n *inventory.Node) string {
	group, known := c.groups[n.Group]
	if !known {
		// A group that was removed from the configuration may still have nodes.
		group = c.sumsOf(n.Group)
	}

	vars := state.VarsOf(c.view, state.ScopeNode(n.Name))
	if len(vars) == 0 {
		return group.checksum
	}

	at := place{n.Name, n.Group}
	if sum, ok := c.own.Load(at); ok {
		text, _ := sum.(string)
		return text
	}

	over := make(map[string]configuration.Var, len(vars))
	for name, value := range vars {
		over[name] = configuration.Var{Value: value, Origin: configuration.OriginNode}
	}

	sum, _ := group.sums.With(over)
	c.own.Store(at, sum)

	return sum
}

// Of returns the desired configuration of the node; false for a node that is not in
// service.
func (c *Configurations) Of(n *inventory.Node) (inventory.Configuration, bool) {
	if !n.InService() || n.Group == "" {
		return inventory.Configuration{}, false
	}

	return inventory.Configuration{
		Playbooks: c.playbooks.Digest, Commit: c.playbooks.Commit, Group: n.Group, Variables: c.variables(n),
		Tags: c.groups[n.Group].tags, Masters: c.mastersSum,
	}, true
}

// Masters returns the names of the nodes that every inventory has now.
func (c *Configurations) Masters() []string {
	names := make([]string, len(c.masters))
	for i, m := range c.masters {
		names[i] = m.Name
	}

	return names
}

// Visible returns the variables without those that are, or contain, secrets.
func (c *Configurations) Visible(vars configuration.Vars) configuration.Vars {
	hidden := c.settings.Secrets.HideVars(vars)
	for name, value := range hidden {
		if !reflect.DeepEqual(value, vars[name]) {
			delete(hidden, name)
		}
	}

	return hidden
}

// Playbooks returns the playbooks that would configure a node now.
func (c *Configurations) Playbooks() state.Playbooks { return c.playbooks }

// Judgement compares the desired configuration of a node with the applied one.
type Judgement struct {
	// InService: the node has a desired configuration. Otherwise all else is zero.
	InService bool
	Desired   inventory.Configuration
	// Known: it is known whether the node is outdated.
	Known    bool
	Outdated bool
	Differs  []inventory.Part // the parts that differ, if it is outdated
	// Undone are variables whose values only the request of the applied job had set: the next verb
	// replaces or leaves them out.
	Undone []string
}

// Judge compares the node with its desired configuration.
func (c *Configurations) Judge(n *inventory.Node) Judgement {
	want, inService := c.Of(n)
	if !inService {
		return Judgement{}
	}
	j := Judgement{InService: true, Desired: want}
	if n.Configured == nil {
		return j
	}
	j.Differs = want.Differs(n.Configured.Configuration)
	if len(n.Configured.Extra) > 0 && slices.Contains(j.Differs, inventory.PartVariables) {
		c.judgeRequest(n, &j)
	}

	// One known difference is enough. Without any, every part must be known.
	j.Outdated = len(j.Differs) > 0
	j.Known = j.Outdated || want.Complete(n.Configured.Configuration)

	return j
}

// TakenBack describes what the next verb takes back from the node, but for the variables of its own request; "":
// nothing.
func (c *Configurations) TakenBack(n *inventory.Node, request []string) string {
	return job.TakenBack(n, slices.DeleteFunc(slices.Clone(c.Judge(n).Undone), func(name string) bool {
		return slices.Contains(request, name)
	}))
}

// judgeRequest judges the variables that the request of the applied job had set. Those that the playbooks set to the
// same value by themselves are no difference.
func (c *Configurations) judgeRequest(n *inventory.Node, j *Judgement) {
	merged := c.settings.Merge(c.view, n.Group, n.Name)
	host := c.FolderVars(n).Merge(merged)

	j.Undone = n.Configured.Undone(true, func(name string) string { return c.key.ChecksumOf(name, host) })
	if len(j.Undone) > 0 {
		return
	}

	for _, name := range n.Configured.Extra {
		merged[name] = host[name]
	}

	if sum, err := c.key.Checksum(merged, nil); err == nil && sum == n.Configured.Variables {
		j.Differs = slices.DeleteFunc(j.Differs, func(p inventory.Part) bool { return p == inventory.PartVariables })
	}
}

// FolderVars returns the variables that the playbooks of now set for the node by themselves.
func (c *Configurations) FolderVars(n *inventory.Node) configuration.FolderVars {
	at := place{n.Name, n.Group}
	if vars, ok := c.folder.Load(at); ok {
		known, _ := vars.(configuration.FolderVars)
		return known
	}

	if c.settings.FolderVars == nil {
		return configuration.FolderVars{}
	}

	vars, known := c.settings.FolderVars(c.playbooks.Digest, n.Name, n.Group)
	if known {
		c.folder.Store(at, vars)
	}
	return vars
}

// Word returns true or false for a node that is or is not outdated, and "" if that is not
// known, or if the node is not in service.
func (c *Configurations) Word(n *inventory.Node) string {
	j := c.Judge(n)
	if !j.Known {
		return ""
	}
	return strconv.FormatBool(j.Outdated)
}

// Alike returns a function that reports whether older configurations give a node the
// same judgement, or nil if they give it to every node.
func (c *Configurations) Alike(older *Configurations) func(n *inventory.Node) bool {
	switch {
	case c == older:
		return nil
	case older == nil:
		return func(*inventory.Node) bool { return false }
	}

	return func(n *inventory.Node) bool {
		now, inService := c.Of(n)
		before, was := older.Of(n)
		return inService == was && now == before
	}
}

// Counts are numbers of nodes.
type Counts struct {
	Outdated int
	Unknown  int // Allocated nodes of which that is not known
}

// Count counts the nodes that are outdated.
func (c *Configurations) Count(nodes []*inventory.Node) Counts {
	var counts Counts
	for _, n := range nodes {
		switch j := c.Judge(n); {
		case j.Outdated:
			counts.Outdated++
		case j.InService && !j.Known && n.Status == inventory.Allocated:
			counts.Unknown++
		}
	}

	return counts
}
