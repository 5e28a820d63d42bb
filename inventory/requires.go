// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Requirements are the groups that a group requires, each with the number of healthy
// nodes that it must have, 1 or more.
type Requirements map[string]int

// Groups returns the required groups, sorted.
func (r Requirements) Groups() []string { return slices.Sorted(maps.Keys(r)) }

// String returns the requirements for people, such as "1 of etcd, 2 of service-master". It is
// empty without any.
func (r Requirements) String() string {
	var all []string
	for _, name := range r.Groups() {
		all = append(all, fmt.Sprintf("%d of %s", r[name], name))
	}

	return strings.Join(all, ", ")
}

// Healthy reports whether the node counts for the requirements of other groups: it is
// Discovered, serves, and passed the checks of its last verification.
func (n Node) Healthy() bool { return n.Serves() && n.State == Discovered && !n.failsChecks() }

func (n Node) failsChecks() bool { return n.Verification != nil && n.Verification.Failed }

// Required returns the number of healthy nodes that the named group must have for every
// other group to be able to join; 0 if no group requires it.
func (gs Groups) Required(name string) int {
	most := 0
	for _, g := range gs {
		most = max(most, g.Requires[name])
	}

	return most
}

// Dependents returns the names of the groups that require the named one, in order.
func (gs Groups) Dependents(name string) []string {
	var names []string
	for _, g := range gs {
		if g.Requires[name] > 0 {
			names = append(names, g.Name)
		}
	}

	return names
}

// Depth returns the length of the longest chain of groups that require the named one, one by the other.
func (gs Groups) Depth(name string) int {
	depth := 0
	for _, dependent := range gs.Dependents(name) {
		depth = max(depth, 1+gs.Depth(dependent))
	}

	return depth
}

// Related returns the groups whose nodes decide whether nodes of the named groups may
// leave or enter them: by a budget, as required ones, or as dependents.
func (gs Groups) Related(names []string) []string {
	named := func(group string) bool { return slices.Contains(names, group) }

	var related []string
	for _, g := range gs {
		dependents := gs.Dependents(g.Name)
		ruled := named(g.Name) && (g.Budget != Budget{} || len(dependents) > 0)

		if ruled || slices.ContainsFunc(dependents, named) || slices.ContainsFunc(g.Requires.Groups(), named) {
			related = append(related, g.Name)
		}
	}

	return related
}

// Default returns the group for a commission that names none: the first required group
// that has fewer commissioned nodes than are required of it, and whose own requirements
// are met in the same way; once there is none, the first group that requires others and
// that none requires. Without rules it is the first group, without groups "".
func (gs Groups) Default(nodes []*Node) string {
	// The state does not count here: a master that has disappeared is still the master.
	serving := map[string]int{}
	for _, n := range nodes {
		if n.Commissioned() {
			serving[n.Group]++
		}
	}

	for _, g := range gs {
		short := func(name string) bool { return serving[name] < g.Requires[name] }
		if serving[g.Name] < gs.Required(g.Name) && !slices.ContainsFunc(g.Requires.Groups(), short) {
			return g.Name
		}
	}

	for _, g := range gs {
		if len(g.Requires) > 0 && gs.Required(g.Name) == 0 {
			return g.Name
		}
	}

	if len(gs) == 0 {
		return ""
	}

	return gs[0].Name
}

// Unmet is a requirement that is not met.
type Unmet struct {
	Group   string // the required group
	Minimum int    // the number of healthy nodes that it must have
	Healthy []*Node
	// Unhealthy are its nodes in service that do not count.
	Unhealthy []*Node
}

// Unmet returns the requirements of the named group that are not met without the nodes of
// the batch, sorted by group.
func (gs Groups) Unmet(nodes []*Node, batch []string, group string) []Unmet {
	g, err := gs.Get(group)
	if err != nil {
		return nil
	}

	var all []Unmet
	for _, required := range g.Requires.Groups() {
		if u := unmet(nodes, set(batch), required, g.Requires[required]); len(u.Healthy) < u.Minimum {
			all = append(all, u)
		}
	}

	return all
}

func unmet(nodes []*Node, batch map[string]bool, group string, minimum int) Unmet {
	u := Unmet{Group: group, Minimum: minimum}
	for _, n := range nodes {
		switch {
		case n.Group != group || batch[n.Name]:
		case n.Healthy():
			u.Healthy = append(u.Healthy, n)
		case n.member():
			u.Unhealthy = append(u.Unhealthy, n)
		}
	}

	return u
}

// String returns the requirement and the state of its nodes, such as "2 healthy nodes of
// service-master, and there is 1: m-1; not healthy: m-2 (Disappeared)".
func (u Unmet) String() string { return u.words("") }

// words is String with a condition on the nodes, such as " outside this request".
func (u Unmet) words(condition string) string {
	text := fmt.Sprintf("%s of %s%s, and there ", Count(u.Minimum, "healthy node", "healthy nodes"), u.Group, condition)

	switch len(u.Healthy) {
	case 0:
		text += "is none"
	case 1:
		text += "is 1: " + u.Healthy[0].Name
	default:
		text += fmt.Sprintf("are %d: %s", len(u.Healthy), shorten(namesOf(u.Healthy)))
	}

	if len(u.Unhealthy) > 0 {
		text += "; not healthy: " + shorten(reasonsOf(u.Unhealthy))
	}

	return text
}

// CheckJoin returns an error of KindRefused if the group requires others that have too few
// healthy nodes outside the batch. It names each of them.
func (gs Groups) CheckJoin(nodes []*Node, batch []string, group string) error {
	g, err := gs.Get(group)
	if err != nil {
		return err
	}

	var (
		texts, remedies []string
		actions         []Action
		about           = slices.Clone(batch)
	)

	for _, u := range gs.Unmet(nodes, batch, g.Name) {
		texts = append(texts, u.words(" outside this request"))
		remedies = append(remedies, fmt.Sprintf("%d more of %s", u.Minimum-len(u.Healthy), u.Group))
		actions = append(actions, Submit(VerbCommission).Joining(u.Group))
		about = append(about, append(namesOf(u.Healthy), namesOf(u.Unhealthy)...)...)
	}

	if len(texts) == 0 {
		return nil
	}

	return Errorf(KindRefused, "%s cannot join %s: it requires %s",
		strings.Join(batch, ", "), g.Name, strings.Join(texts, "; and ")).
		Do("commission %s first", strings.Join(remedies, ", ")).
		With(actions...).
		About(about...)
}

// CheckLeave returns an error of KindRefused if nodes that stay in service require a
// group, the batch takes a node of that group out of service, and fewer healthy nodes
// remain than they require. That includes a group with too few already: its dependents
// have to leave first.
func (gs Groups) CheckLeave(nodes []*Node, batch []string) error {
	inBatch := set(batch)

	for _, g := range gs {
		for _, required := range g.Requires.Groups() {
			var leaving, dependents []string

			for _, n := range nodes {
				serves := !n.Cleaned && (n.Status == Allocated || n.Status == Maintenance)

				switch {
				case inBatch[n.Name] && n.Group == required && serves:
					leaving = append(leaving, n.Name)
				case !inBatch[n.Name] && n.Group == g.Name && n.InService():
					dependents = append(dependents, n.Name)
				}
			}

			u := unmet(nodes, inBatch, required, g.Requires[required])

			// The rule holds if nothing is lost, nothing depends on it, or enough nodes remain.
			if len(leaving) > 0 && len(dependents) > 0 && len(u.Healthy) < u.Minimum {
				return u.refuseLeave(g.Name, leaving, dependents)
			}
		}
	}

	return nil
}

// refuseLeave returns the refusal to take nodes of the required group out of service.
func (u Unmet) refuseLeave(group string, leaving, dependents []string) error {
	about := slices.Concat(leaving, dependents, namesOf(u.Healthy), namesOf(u.Unhealthy))

	return Errorf(KindRefused, "without %s, %s of group %s would not have what it requires: %s",
		strings.Join(leaving, ", "), shorten(dependents), group, u).
		Do("commission another %s first, or decommission %s with it", u.Group, shorten(dependents)).
		About(about...)
}

// checkRequirements validates the rules of groups with valid names.
func (gs Groups) checkRequirements() error {
	for _, g := range gs {
		for _, required := range g.Requires.Groups() {
			if _, err := gs.Get(required); err != nil {
				return Errorf(KindInvalid, "group %s requires group %s, which is not configured", g.Name, required).
					Do("the groups are %s", strings.Join(gs.Names(), ", "))
			}

			if least := g.Requires[required]; least < 1 {
				return Errorf(KindInvalid, "group %s requires %d nodes of %s", g.Name, least, required).
					Do("write the number of healthy nodes that it must have, 1 or more, or leave it out")
			}
		}
	}

	if circle := gs.circle(); circle != nil {
		return Errorf(KindInvalid, "%s: no node could ever join one of them", strings.Join(circle, ", ")).
			Do("remove one of these requirements")
	}

	return nil
}

// circle returns requirements that lead from a group back to it, in words, or nil if there
// are none.
func (gs Groups) circle() []string {
	met := map[string]bool{}

	var path func(name string, over []string) []string

	path = func(name string, over []string) []string {
		if i := slices.Index(over, name); i >= 0 {
			return append(slices.Clone(over[i:]), name)
		}

		if met[name] {
			return nil
		}

		g, _ := gs.Get(name)
		for _, required := range g.Requires.Groups() {
			if found := path(required, append(over, name)); found != nil {
				return found
			}
		}

		met[name] = true

		return nil
	}

	for _, g := range gs {
		found := path(g.Name, nil)
		if found == nil {
			continue
		}
		words := make([]string, len(found)-1)
		for i := range words {
			words[i] = fmt.Sprintf("group %s requires %s", found[i], found[i+1])
		}

		return words
	}

	return nil
}
