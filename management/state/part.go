// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
)

// Filter selects the nodes of a scope.
type Filter interface {
	// Contains reports whether the node belongs to the scope. It is false for nil.
	Contains(n *inventory.Node) bool
	// ContainsTarget reports whether the target of a job does; n is its node, or nil.
	ContainsTarget(t job.Target, n *inventory.Node) bool
	// OwnsGroup reports whether all nodes of the group do.
	OwnsGroup(group string) bool
	// CheckGroup returns an error like that for an unknown group unless nodes may be in the group.
	CheckGroup(group string) error
}

// Scoped is a view as callers within a scope see it. A node outside of the scope is not there: not
// in its nodes, jobs or variables, and its name in no text.
type Scoped struct {
	*View // of the scope

	whole  *View
	filter Filter          // nil: every node
	names  map[string]bool // of all nodes, also of forgotten ones: whether it is hidden
	length int             // of the longest of the names
}

// HiddenNode stands in a text for the name of a node outside of the scope.
const HiddenNode = "(a node outside the scope)"

// HiddenJobs stands in a text for the reason to wait for jobs outside of the scope.
const HiddenJobs = "jobs on nodes outside the scope come first"

// In returns the view within a scope; nil: the whole. It shares the records with the view.
func (v *View) In(f Filter) *Scoped {
	if f == nil {
		return &Scoped{View: v, whole: v}
	}

	within := &View{Revision: v.Revision, Stale: v.Stale}
	p := &Scoped{View: within, whole: v, filter: f, names: map[string]bool{}}

	p.nameAll()

	within.Snapshot.View = v.Snapshot.View.Within(p)

	return p
}

// All reports whether the scope is every node.
func (p *Scoped) All() bool { return p.filter == nil }

// Whole returns the view itself, with what is outside of the scope. The rules of groups depend on that.
func (p *Scoped) Whole() *View { return p.whole }

// HasNode implements record.Scope.
func (p *Scoped) HasNode(name string) bool {
	if p.All() {
		return p.Find(name) != nil
	}

	hidden, known := p.names[name]
	return known && !hidden
}

// OwnsGroup implements record.Scope.
func (p *Scoped) OwnsGroup(group string) bool { return p.All() || p.filter.OwnsGroup(group) }

// CheckGroup returns an error like that for an unknown group unless nodes of the scope may be in the group.
func (p *Scoped) CheckGroup(group string) error {
	if p.All() {
		return nil
	}
	return p.filter.CheckGroup(group)
}

// Groups returns those of the groups in which nodes of the scope may be.
func (p *Scoped) Groups(all inventory.Groups) inventory.Groups {
	return slices.DeleteFunc(slices.Clone(all), func(g inventory.Group) bool { return p.CheckGroup(g.Name) != nil })
}

// CheckVars returns an error unless the variables belong to the scope: for those of a node, that
// for an unknown one.
func (p *Scoped) CheckVars(scope Scope) error {
	if p.All() || scope.In(p) {
		return nil
	}

	switch kind, name := scope.Split(); kind {
	case "node":
		_, err := p.Node(name)
		return err
	case "group":
		return inventory.Errorf(inventory.KindNotFound, "the scope does not contain a whole group %q", name).
			Do("read and set the variables of single nodes")
	default:
		return ErrWhole("the globals are those of every node")
	}
}

// CheckNodes returns the error for unknown nodes if names are of none of the scope.
func (p *Scoped) CheckNodes(names []string) error {
	if missing := p.Missing(names); len(missing) > 0 {
		return p.MissingNodes(missing)
	}
	return nil
}

// CheckMove returns an error if a change of the nodes, or their way into the group, is outside of the
// scope. The empty group is the one that they are in. It does not look whether they exist for the whole.
func (p *Scoped) CheckMove(nodes []string, group string) error {
	if p.All() {
		return nil
	}

	if group == "" {
		return p.CheckNodes(nodes)
	}

	if err := cmp.Or(p.CheckGroup(group), p.CheckNodes(nodes)); err != nil {
		return err
	}

	for _, name := range nodes {
		n, err := p.Node(name)
		if err != nil {
			return err
		}
		n.Group = group
		if err := p.CheckRetains(n, "in "+group); err != nil {
			return err
		}
	}

	return nil
}

// CheckTargets is CheckMove for targets and their groups.
func (p *Scoped) CheckTargets(targets []job.Target) error {
	for _, t := range targets {
		if err := p.CheckMove([]string{t.Name}, t.Group); err != nil {
			return err
		}
	}

	return nil
}

// CheckRetains refuses a change after which the node would have left the scope. how describes it.
func (p *Scoped) CheckRetains(n inventory.Node, how string) error {
	if p.All() || p.filter.Contains(&n) {
		return nil
	}

	return inventory.Errorf(inventory.KindForbidden, "%s, %s would leave the scope", how, n.Name).
		Do("ask a caller without a scope to do that").About(n.Name)
}

// CheckJob returns the error for an unknown job if the reference is to none of the scope.
func (p *Scoped) CheckJob(ref string) error {
	j, err := p.Job(ref)
	if err != nil {
		return err
	}

	// "active" and "last" may select another job of the whole view.
	if selected, err := p.whole.Job(ref); err != nil || selected.ID != j.ID {
		return inventory.Errorf(inventory.KindNotFound, "there is no job %q", ref).
			Do("use the id of the job").With(inventory.ListJobs())
	}

	return nil
}

// HadNode implements record.Scope.
func (p *Scoped) HadNode(name, group string) bool {
	return p.All() || p.filter.ContainsTarget(job.Target{Name: name, FromGroup: group}, p.whole.Find(name))
}

// HasJob implements record.Scope.
func (p *Scoped) HasJob(id string) bool {
	if p.All() {
		return true
	}

	j := record.Get(p.whole, &job.Kind, id)
	return j != nil && j.In(p)
}

// nameAll fills the names.
func (p *Scoped) nameAll() {
	for name := range record.All(p.whole, &Tombstones) {
		p.names[name] = true
	}

	for key := range p.whole.Unreadable {
		if _, name, _ := strings.Cut(strings.TrimPrefix(key, "v/"), "/"); p.whole.UnreadableNode(name) != nil {
			p.names[name] = true
		}
	}

	for _, n := range p.whole.Nodes() {
		p.names[n.Name] = !p.filter.Contains(n)
	}

	for name := range p.names {
		p.length = max(p.length, len(name))
	}
}

// hides reports whether the name is that of a node outside of the scope, or of one that
// was forgotten.
func (p *Scoped) hides(name string) bool { return p.names[name] }

// nodeWord matches what may contain names of nodes in a text.
var nodeWord = regexp.MustCompile(`[A-Za-z0-9._-]*-[A-Za-z0-9._-]*`)

// Text returns the text without the names of nodes outside of the scope.
func (p *Scoped) Text(text string) string {
	// Most texts have no name, and the expression is slow.
	if p.All() || !strings.Contains(text, "-") {
		return text
	}
	return nodeWord.ReplaceAllStringFunc(text, p.word)
}

// word returns a word without the names of nodes outside of the scope. A name is whole
// between characters that are neither letters nor digits; of several the longest counts.
func (p *Scoped) word(word string) string {
	var shown strings.Builder

	for word != "" {
		name := word[:1]
		if isAlphanumeric(word[0]) {
			name = p.nameAt(word)
		}
		word = word[len(name):]

		if p.hides(name) {
			name = HiddenNode
		}

		shown.WriteString(name)
	}

	return shown.String()
}

// nameAt returns the longest name of a node that a word begins with, or the letters and
// digits that it begins with.
func (p *Scoped) nameAt(word string) string {
	first, longest := 0, 0

	for end := 1; end <= len(word) && (end <= p.length || first == 0); end++ {
		if !isAlphanumeric(word[end-1]) || end < len(word) && isAlphanumeric(word[end]) {
			continue
		}

		if first == 0 {
			first = end
		}

		if _, known := p.names[word[:end]]; known {
			longest = end
		}
	}

	return word[:max(first, longest)]
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// Texts returns the texts without the names of nodes outside of the scope.
func (p *Scoped) Texts(texts []string) []string {
	shown := slices.Clone(texts)
	for i, text := range texts {
		shown[i] = p.Text(text)
	}

	return shown
}

// Names returns those names that are not of nodes outside of the scope.
func (p *Scoped) Names(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), p.hides)
}

// Actions returns the actions that concern no node outside of the scope.
func (p *Scoped) Actions(actions []inventory.Action) []inventory.Action {
	return slices.DeleteFunc(slices.Clone(actions), func(a inventory.Action) bool {
		return !p.All() && len(a.Addrs)+len(a.Ranges) > 0 || len(p.Names(a.Nodes)) < len(a.Nodes)
	})
}

// ErrWhole refuses a request of a caller with a scope that concerns the manager as a whole.
func ErrWhole(why string) error {
	return inventory.Errorf(inventory.KindForbidden, "%s: this concerns the whole manager", why).
		Do("repeat the request with a credential without a scope")
}

// Unknown is the error for a request that names what is not in the scope of the caller. It is the same
// whether that exists or not, and has the words of the request only.
type Unknown struct{ Err error }

func (u Unknown) Error() string { return u.Err.Error() }

// Unwrap returns the error itself.
func (u Unknown) Unwrap() error { return u.Err }

// Error returns an error without the names of nodes outside of the scope.
func (p *Scoped) Error(err error) error {
	if _, ok := errors.AsType[Unknown](err); ok {
		return err
	}

	e, ok := errors.AsType[*inventory.Error](err)
	if !ok || p.All() {
		return err
	}
	shown := *e
	shown.Message, shown.Remedy = p.Text(e.Message), p.Text(e.Remedy)
	shown.Nodes, shown.Actions = p.Names(e.Nodes), p.Actions(e.Actions)

	return &shown
}

// Show returns a record within the scope, without the names of other nodes in its texts.
func (p *Scoped) Show(n *inventory.Node) *inventory.Node {
	if p.All() {
		return n
	}
	return job.NodeWithin(n, p)
}

// ShowJob returns the form of a job that belongs to the scope.
func (p *Scoped) ShowJob(j job.Job) job.Job {
	if p.All() {
		return j
	}
	return j.Within(p)
}

// WholeJob returns a job of the scope with what ShowJob leaves out.
func (p *Scoped) WholeJob(j job.Job) job.Job {
	if whole, err := p.whole.Job(j.ID); err == nil {
		return whole
	}
	return j
}

// Changes returns the changes that the scope shows. A node that leaves the scope is gone, and so
// is a record that leaves it with its own change.
func (p *Scoped) Changes(list []Change) []Change {
	if p.All() {
		return list
	}

	var shown []Change

	for _, c := range list {
		if p.change(&c) {
			shown = append(shown, c)
		}
	}

	return shown
}

// change reduces a change to the scope, and reports whether anything is left of it.
func (p *Scoped) change(c *Change) bool {
	switch c.Kind {
	case Config.Kind:
		return false
	case job.Nodes.Name:
		c.Record, c.Former = p.nodeThen(c.Record), p.nodeThen(c.Former)
		return c.Record != nil || c.Former != nil
	default:
		c.Record = p.whole.Shown(c.Ref, c.Record, p)
		return c.Record != nil || p.Has(c.Ref) || p.whole.Shown(c.Ref, c.Former, p) != nil
	}
}

// nodeThen returns the form of an earlier record of a node, or nil if it was not in the scope.
func (p *Scoped) nodeThen(r any) any {
	if n, ok := r.(*inventory.Node); ok && p.filter.Contains(n) {
		return p.Show(n)
	}
	return nil
}
