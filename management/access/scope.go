// SPDX-License-Identifier: Apache-2.0

package access

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/selector"
	"github.com/contiv/cluster/management/state"
)

// maxScopeGroups is the greatest number of groups of one scope.
const maxScopeGroups = 64

// Scope limits an identity to the nodes of some groups, to the nodes that match
// a selector, or to those that meet both. The zero Scope is every node.
type Scope struct {
	Groups   []string
	Selector string
}

// All reports whether the scope contains every node.
func (s Scope) All() bool { return len(s.Groups) == 0 && s.Selector == "" }

// String returns the scope as the flags of `clusterctl token create` write it;
// empty for every node.
func (s Scope) String() string {
	var parts []string
	if len(s.Groups) > 0 {
		parts = append(parts, "group "+strings.Join(s.Groups, ","))
	}

	if s.Selector != "" {
		parts = append(parts, "selector "+s.Selector)
	}

	return strings.Join(parts, ", ")
}

// Check returns an error if a group does not exist or is named twice, or the
// selector is malformed.
func (s Scope) Check(groups inventory.Groups) error {
	return s.check(func(group string) error {
		_, err := groups.Get(group)
		return err
	})
}

// CheckForm is Check without a look whether the groups exist.
func (s Scope) CheckForm() error { return s.check(inventory.CheckGroup) }

func (s Scope) check(exists func(group string) error) error {
	if len(s.Groups) > maxScopeGroups {
		return inventory.Errorf(inventory.KindTooLarge, "the scope has %d groups, the limit is %d",
			len(s.Groups), maxScopeGroups).Do("use a selector, or several tokens")
	}

	for i, group := range s.Groups {
		if err := exists(group); err != nil {
			return err
		}

		if slices.Contains(s.Groups[:i], group) {
			return inventory.Errorf(inventory.KindInvalid, "the scope names the group %s twice", group).
				Do("name each group once")
		}
	}

	_, err := parseScope(s.Selector, exists)

	return err
}

// parseScope parses the selector of a scope. What is not in the record of a node, such as whether it is outdated, is no
// part of a scope: a change of variables would move it. Nor are facts, which hosts say of themselves.
func parseScope(text string, checkGroup func(string) error) (selector.Selector, error) {
	parsed, err := selector.Parse(text, checkGroup)
	if err != nil {
		return parsed, err
	}

	if field := parsed.Judged(); field != "" {
		err = inventory.Errorf(inventory.KindInvalid, "the selector of a scope depends on %s", field).
			Do("use labels, or fields that are in the record of a node")
	}
	if err == nil && parsed.OfHardware() {
		err = inventory.Errorf(inventory.KindInvalid, "the selector of a scope depends on hardware facts").
			Do("use labels: a host says its facts itself, and could choose its scope")
	}

	return parsed, err
}

// CheckRole returns KindInvalid unless a credential of the role can have the scope.
// The other roles act on the manager as a whole: an admin changes the configuration,
// a monitor reports hosts that are no nodes yet.
func (s Scope) CheckRole(role Role) error {
	if s.All() || role == RoleViewer || role == RoleOperator {
		return nil
	}

	return inventory.Errorf(inventory.KindInvalid, "the role %q has no scope: it concerns the whole manager", role).
		Do("leave the scope out, or choose the role %s", namesOf([]Role{RoleViewer, RoleOperator}))
}

// Filter is a scope that is ready to be compared with nodes. It implements state.Filter; nil contains
// every node.
type Filter struct {
	groups   []string
	labelled bool // a selector is set
	selector selector.Selector

	mu   sync.Mutex
	last *state.Scoped // of the newest view
}

// Filter returns the filter of the scope, or KindForbidden if its selector is not
// valid any more. A group that was removed from the configuration has no nodes.
func (s Scope) Filter() (*Filter, error) {
	parsed, err := parseScope(s.Selector, func(string) error { return nil })
	if err != nil {
		return nil, inventory.Errorf(inventory.KindForbidden, "the scope of the credential is not valid: %w", err).
			Do("ask an admin for a new token")
	}

	return &Filter{groups: s.Groups, labelled: s.Selector != "", selector: parsed}, nil
}

// All reports whether the scope is every node.
func (f *Filter) All() bool { return f == nil || len(f.groups) == 0 && !f.labelled }

// View returns the view within the scope. The newest one is made once.
func (f *Filter) View(v *state.View) *state.Scoped {
	if f.All() {
		return v.In(nil)
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	if f.last != nil && f.last.Whole() == v {
		return f.last
	}

	scoped := v.In(f)
	if f.last == nil || f.last.Revision <= scoped.Revision {
		f.last = scoped
	}
	return scoped
}

// Contains reports whether the node is in the scope.
func (f *Filter) Contains(n *inventory.Node) bool {
	return n != nil && (len(f.groups) == 0 || slices.Contains(f.groups, n.Group)) && f.selector.Matches(n)
}

// ContainsTarget reports whether the target of a job is in the scope: n, its node, is,
// or was in a group of the scope when the job was accepted. A decommission takes its
// nodes out of their group, and its caller sees the end of it. n is nil if the node
// does not exist.
func (f *Filter) ContainsTarget(t job.Target, n *inventory.Node) bool {
	if f.Contains(n) {
		return true
	}
	return slices.Contains(f.groups, t.FromGroup) && (!f.labelled || n != nil && f.selector.Matches(n))
}

// CheckGroup returns an error like that for an unknown group unless nodes may be brought into the group:
// no others than those of the scope may become members of its groups, nor its nodes leave them.
func (f *Filter) CheckGroup(name string) error {
	if len(f.groups) == 0 {
		return nil
	}

	groups := make(inventory.Groups, len(f.groups))
	for i, group := range f.groups {
		groups[i].Name = group
	}

	_, err := groups.Get(name)

	return err
}

// OwnsGroup reports whether the scope contains every node of the group.
func (f *Filter) OwnsGroup(group string) bool { return !f.labelled && slices.Contains(f.groups, group) }

// maxFilters bounds the filters that are kept. Each keeps its part of a view, and is soon made again.
const maxFilters = 64

// Filters keeps the filters of the scopes in use. The zero value is empty. Its method may be called at
// once.
type Filters struct {
	mu      sync.Mutex
	filters map[string]*Filter
}

// Of returns the filter of the scope, as Scope.Filter does.
func (fs *Filters) Of(s Scope) (*Filter, error) {
	if s.All() {
		return nil, nil
	}

	// No other scope has the same key.
	key := fmt.Sprintf("%q %q", s.Groups, s.Selector)

	fs.mu.Lock()
	defer fs.mu.Unlock()

	if f, ok := fs.filters[key]; ok {
		return f, nil
	}

	f, err := s.Filter()
	if err != nil {
		return nil, err
	}

	if fs.filters == nil || len(fs.filters) >= maxFilters {
		fs.filters = map[string]*Filter{}
	}

	fs.filters[key] = f

	return f, nil
}
