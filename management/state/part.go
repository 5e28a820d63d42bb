// SPDX-License-Identifier: Apache-2.0

package state

import (
	"regexp"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
)

// Bounds select the part of a view that a caller may see.
type Bounds interface {
	// Contains reports whether the node belongs to the part. It is false for nil.
	Contains(n *inventory.Node) bool
	// ContainsTarget reports whether the target of a job does; n is its node, or nil.
	ContainsTarget(t job.Target, n *inventory.Node) bool
	// OwnsGroup reports whether all nodes of the group do.
	OwnsGroup(group string) bool
}

// Part is the part of a view within bounds. A node outside of them is not there: not
// in its nodes, jobs or variables, and its name in no text.
type Part struct {
	*View // of the part

	whole  *View
	bounds Bounds
	names  map[string]bool // of all nodes, also of forgotten ones: whether it is hidden
	length int             // of the longest of the names
}

// HiddenNode stands in a text for the name of a node outside of the part.
const HiddenNode = "(a node outside the scope)"

// HiddenJobs stands in a text for the reason to wait for jobs outside of the part.
const HiddenJobs = "jobs on nodes outside the scope come first"

// NewPart returns the part of the view within the bounds. It shares the records with
// the view.
func NewPart(v *View, b Bounds) *Part {
	within := &View{
		Revision: v.Revision, Stale: v.Stale,
	}
	p := &Part{View: within, whole: v, bounds: b, names: map[string]bool{}}

	for _, n := range v.Nodes {
		if !b.Contains(n) {
			continue
		}

		within.Nodes = append(within.Nodes, n)
	}

	p.nameAll()

	for i, n := range within.Nodes {
		within.Nodes[i] = p.Show(n)
	}

	within.View = v.View.Within(p)
	within.Jobs = record.List(within, &job.Kind)

	return p
}

// Whole returns the view of which p is a part.
func (p *Part) Whole() *View { return p.whole }

// HasNode implements record.Scope.
func (p *Part) HasNode(name string) bool { return job.Find(p.Nodes, name) != nil }

// OwnsGroup implements record.Scope.
func (p *Part) OwnsGroup(group string) bool { return p.bounds.OwnsGroup(group) }

// HadNode implements record.Scope.
func (p *Part) HadNode(name, group string) bool {
	return p.bounds.ContainsTarget(job.Target{Name: name, FromGroup: group}, job.Find(p.whole.Nodes, name))
}

// HasJob implements record.Scope.
func (p *Part) HasJob(id string) bool {
	j := record.Get(p.whole, &job.Kind, id)
	return j != nil && j.In(p)
}

// nameAll fills the names. The nodes of the part must be complete.
func (p *Part) nameAll() {
	for name := range record.All(p.whole, &Tombstones) {
		p.names[name] = true
	}

	for key := range p.whole.Unreadable {
		if _, name, _ := strings.Cut(strings.TrimPrefix(key, "v/"), "/"); p.whole.UnreadableNode(name) != nil {
			p.names[name] = true
		}
	}

	for _, n := range p.whole.Nodes {
		p.names[n.Name] = true
	}

	for _, n := range p.Nodes {
		p.names[n.Name] = false
	}

	for name := range p.names {
		p.length = max(p.length, len(name))
	}
}

// hides reports whether the name is that of a node outside of the part, or of one that
// was forgotten.
func (p *Part) hides(name string) bool { return p.names[name] }

// nodeWord matches what may contain names of nodes in a text.
var nodeWord = regexp.MustCompile(`[A-Za-z0-9._-]*-[A-Za-z0-9._-]*`)

// Text returns the text without the names of nodes outside of the part.
func (p *Part) Text(text string) string {
	// Most texts have no name, and the expression is slow.
	if !strings.Contains(text, "-") {
		return text
	}

	return nodeWord.ReplaceAllStringFunc(text, p.word)
}

// word returns a word without the names of nodes outside of the part. A name is whole
// between characters that are neither letters nor digits; of several the longest counts.
func (p *Part) word(word string) string {
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
func (p *Part) nameAt(word string) string {
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

// Texts returns the texts without the names of nodes outside of the part.
func (p *Part) Texts(texts []string) []string {
	shown := slices.Clone(texts)
	for i, text := range texts {
		shown[i] = p.Text(text)
	}

	return shown
}

// Names returns those names that are not of nodes outside of the part.
func (p *Part) Names(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), p.hides)
}

// Show returns a record within the part, without the names of other nodes in its texts.
func (p *Part) Show(n *inventory.Node) *inventory.Node {
	text := p.Text(n.LastError)
	verdict := n.Verification.Reworded(p.Text)

	if text == n.LastError && verdict == n.Verification && n.Before == nil {
		return n
	}

	shown := *n
	shown.LastError, shown.Verification = text, verdict

	if n.Before != nil {
		before := *n.Before
		before.LastError = p.Text(before.LastError)
		shown.Before = &before
	}

	return &shown
}

// Job returns the form of a job that belongs to the part.
func (p *Part) Job(j job.Job) job.Job { return j.Within(p) }

// Changes returns the changes that the part shows. A node that leaves the part is gone, and so
// is a record that leaves it with its own change.
func (p *Part) Changes(list []Change) []Change {
	var shown []Change

	for _, c := range list {
		if p.change(&c) {
			shown = append(shown, c)
		}
	}

	return shown
}

// change reduces a change to the part, and reports whether anything is left of it.
func (p *Part) change(c *Change) bool {
	switch c.Kind {
	case ChangeNodes:
		if !p.bounds.Contains(c.Was) {
			c.Was = nil
		}

		if !p.bounds.Contains(c.Node) {
			c.Node, c.Connection = nil, nil
		}

		if c.Node != nil {
			c.Node = p.Show(c.Node)
		}

		return c.Node != nil || c.Was != nil
	case ChangeVars:
		return Scope(c.Name).In(p)
	case ChangeConfig:
		return false
	default:
		ref, _ := c.Ref()
		c.Record = p.whole.Shown(ref, c.Record, p)

		return c.Record != nil || p.Has(ref) || p.whole.Shown(ref, c.Former, p) != nil
	}
}
