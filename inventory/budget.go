// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Budget is how many nodes of a group may be out of service at a time. It holds for every verb but verify.
//
// The zero value is no limit.
type Budget struct {
	// The number of nodes that stay available.
	MinAvailable int `json:"min_available,omitempty" yaml:"min_available,omitempty" minimum:"1"`
	// The number of nodes that may be unavailable at a time, such as 2, or their share, such as 25%.
	MaxUnavailable Amount `json:"max_unavailable,omitempty" yaml:"max_unavailable,omitempty"`
	// The key of a label, such as rack: max_unavailable then holds among the nodes with the same value of it.
	Per string `json:"per,omitempty" yaml:"per,omitempty"`
}

// Check validates the budget. It returns an error of KindInvalid.
func (b Budget) Check() error {
	if b.MinAvailable < 0 {
		return Errorf(KindInvalid, "min_available is %d", b.MinAvailable).
			Do("write the number of nodes that stay available, 1 or more, or leave it out")
	}

	if b.MaxUnavailable != "" {
		if _, err := b.MaxUnavailable.Of(1); err != nil {
			return Errorf(KindInvalid, "max_unavailable is %q", string(b.MaxUnavailable)).
				Do("write a number of nodes from 1, or their share from 1%% to 100%%, such as 25%%; " +
					"with 0, no node could ever be taken out of service")
		}
	}

	if b.Per == "" {
		return nil
	}

	if b.MaxUnavailable == "" {
		return Errorf(KindInvalid, "per is %q without max_unavailable", b.Per).
			Do("say with max_unavailable how many nodes of one %s may be unavailable", b.Per)
	}

	return CheckLabelKey(b.Per)
}

// String returns the limits for people, such as "min_available 2". It is empty without
// a limit.
func (b Budget) String() string {
	var limits []string
	if b.MinAvailable > 0 {
		limits = append(limits, fmt.Sprintf("min_available %d", b.MinAvailable))
	}

	if b.MaxUnavailable != "" {
		limit := fmt.Sprintf("max_unavailable %s", b.MaxUnavailable)
		if b.Per != "" {
			limit += " per " + b.Per
		}
		limits = append(limits, limit)
	}

	return strings.Join(limits, ", ")
}

// Amount is a number of nodes, such as "2", or a share of them, such as "25%". In JSON a
// number is accepted as well.
type Amount string

// UnmarshalJSON reads a text or a number.
func (a *Amount) UnmarshalJSON(data []byte) error {
	if number, err := strconv.Atoi(string(data)); err == nil {
		*a = Amount(strconv.Itoa(number))
		return nil
	}

	return json.Unmarshal(data, (*string)(a))
}

// Of returns the number of nodes that the amount is, of so many. A share is rounded
// down, but is at least one node. It is an error of KindInvalid unless the amount is at
// least 1, or a share from 1% to 100%.
func (a Amount) Of(nodes int) (int, error) {
	number, isShare := strings.CutSuffix(string(a), "%")

	n, err := strconv.Atoi(number)
	// Atoi takes +2 and 02 as well, which would be other spellings of the same amount.
	if err != nil || n < 1 || isShare && n > 100 || number != strconv.Itoa(n) {
		return 0, Errorf(KindInvalid, "%q is no number of nodes, and no share of them", string(a)).
			Do("write a number from 1, such as 2, or a share from 1%% to 100%%, such as 25%%")
	}

	if isShare {
		return max(nodes*n/100, 1), nil
	}

	return n, nil
}

// Budgeted reports whether a group has a budget.
func (gs Groups) Budgeted() bool {
	return slices.ContainsFunc(gs, func(g Group) bool { return g.Budget != Budget{} })
}

// CheckBudgets returns an error of KindRefused if the budget of a group does not allow
// that these nodes go out of service now. Those that are unavailable already count as
// such, and may be taken.
func (gs Groups) CheckBudgets(nodes []*Node, take []string) error {
	taken := set(take)

	for _, g := range gs {
		if g.Budget == (Budget{}) {
			continue
		}

		u := usageOf(g, nodes, taken)
		if err := u.checkMin(); err != nil {
			return err
		}
		if err := u.checkMax(); err != nil {
			return err
		}
	}

	return nil
}

// AtATime returns how many of these nodes the budgets allow to be taken now; 0 if none.
func (gs Groups) AtATime(nodes []*Node, take []string) int {
	most, taken := len(take), set(take)

	for _, g := range gs {
		u := usageOf(g, nodes, taken)
		if len(u.leaving) == 0 {
			continue
		}
		if g.Budget.MinAvailable > 0 {
			most = min(most, len(u.members)-len(u.down)-g.Budget.MinAvailable)
		}

		if g.Budget.MaxUnavailable == "" {
			continue
		}

		for _, part := range u.parts() {
			limit, _ := g.Budget.MaxUnavailable.Of(len(part.members))
			most = min(most, limit-len(part.down))
		}
	}

	return max(most, 0)
}

// BudgetUse returns the budget of the group for people, with the nodes that are
// unavailable. It is empty without a budget.
func (g Group) BudgetUse(nodes []*Node) string {
	if g.Budget == (Budget{}) {
		return ""
	}

	u := usageOf(g, nodes, nil)
	text := fmt.Sprintf(
		"%s, and %d of %s unavailable",
		g.Budget,
		len(u.down),
		Count(len(u.members), "node is", "nodes are"),
	)

	if len(u.down) > 0 {
		text += ": " + shorten(reasonsOf(u.down))
	}

	return text
}

// usage is the use of the budget of a group.
type usage struct {
	group   Group
	members []*Node
	down    []*Node // unavailable members
	leaving []*Node // available members that are to be taken
}

func usageOf(g Group, nodes []*Node, taken map[string]bool) usage {
	u := usage{group: g}

	for _, n := range nodes {
		if n.Group == g.Name && n.member() {
			u.add(n, taken[n.Name])
		}
	}

	return u
}

// add counts a member of the group.
func (u *usage) add(n *Node, taken bool) {
	u.members = append(u.members, n)

	switch {
	case !n.Available():
		u.down = append(u.down, n)
	case taken:
		u.leaving = append(u.leaving, n)
	}
}

// Available reports whether the node counts as available for the budget of its group: it
// is Healthy, and no job works on it, except for a verification.
func (n Node) Available() bool { return n.Healthy() && (n.Status == Allocated || n.Verb.Verifies()) }

// member reports whether the node counts for the budget of its group. One that is being
// commissioned has not served yet, and one with an alert that excludes it is left out.
func (n Node) member() bool {
	serves := n.Status == Allocated || n.Status == Maintenance || n.Status == Decommissioning
	return serves && n.Alerted(Excluded) == nil
}

// checkMin checks the number of nodes that stay available.
func (u usage) checkMin() error {
	b := u.group.Budget
	available := len(u.members) - len(u.down)

	// A group that is short already must not hold up a job that takes none of its nodes.
	if len(u.leaving) == 0 || available-len(u.leaving) >= b.MinAvailable {
		return nil
	}

	return u.refuse(fmt.Sprintf("%s must keep %s available (min_available), and %d of %d would be",
		u.group.Name, Count(b.MinAvailable, "node", "nodes"), available-len(u.leaving), len(u.members)),
		available-b.MinAvailable)
}

// checkMax checks the number of unavailable nodes, per value of the label if there is
// one.
func (u usage) checkMax() error {
	if u.group.Budget.MaxUnavailable == "" || len(u.leaving) == 0 {
		return nil
	}

	for _, part := range u.parts() {
		if err := part.checkLimit(); err != nil {
			return err
		}
	}

	return nil
}

// checkLimit checks the number of unavailable nodes of a part that parts returned.
func (u usage) checkLimit() error {
	b := u.group.Budget
	if b.MaxUnavailable == "" || len(u.leaving) == 0 {
		return nil
	}
	limit, err := b.MaxUnavailable.Of(len(u.members))
	if err != nil || len(u.down)+len(u.leaving) <= limit {
		return err
	}

	where := u.group.Name
	if b.Per != "" {
		where = fmt.Sprintf("%s with %s %q", u.group.Name, b.Per, u.leaving[0].Labels[b.Per])
	}

	return u.refuse(
		fmt.Sprintf(
			"at most %s of %s may be unavailable (max_unavailable %s), and %d of %d would be",
			Count(limit, "node", "nodes"), where, b.MaxUnavailable, len(u.down)+len(u.leaving), len(u.members),
		),
		limit-len(u.down),
	)
}

// parts returns the usage for each value of the label of the budget, in their order.
func (u usage) parts() []usage {
	if u.group.Budget.Per == "" {
		return []usage{u}
	}

	// A part that loses no node cannot break the limit, so only the values of leaving nodes count.
	var values []string
	for _, n := range u.leaving {
		values = append(values, n.Labels[u.group.Budget.Per])
	}

	slices.Sort(values)

	var list []usage
	for _, value := range slices.Compact(values) {
		of := func(all []*Node) []*Node {
			return slices.DeleteFunc(slices.Clone(all), func(n *Node) bool {
				return n.Labels[u.group.Budget.Per] != value
			})
		}

		list = append(list, usage{group: u.group, members: of(u.members), down: of(u.down), leaving: of(u.leaving)})
	}

	return list
}

// refuse returns the refusal, with the nodes that use the budget up. left is the number of nodes
// that may be taken now.
func (u usage) refuse(why string, left int) error {
	text := fmt.Sprintf("the budget of its group does not allow to take %s now: %s", shorten(namesOf(u.leaving)), why)
	if len(u.down) > 0 {
		text += "; unavailable already: " + shorten(reasonsOf(u.down))
	}
	e := Errorf(KindRefused, "%s", text).About(append(namesOf(u.leaving), namesOf(u.down)...)...)

	switch {
	case left > 0:
		return e.Do("take %s at a time (serial)", Count(left, "node", "nodes"))
	case len(u.down) > 0 && u.never() == "":
		remedy := "wait until %s available again, or bring it back"
		if slices.ContainsFunc(u.down, func(n *Node) bool { return n.Status == Allocated && n.State == Disappeared }) {
			remedy += "; if a host is gone for good, take it out of service"
		}
		return e.Do(remedy, are(u.down)).With(repairsOf(u.down)...)
	}

	if never := u.never(); never != "" {
		return e.Do("%s: add a node to the group, or lower min_available", never).With(u.lower())
	}

	return e.Do("add a node to the group, or lower min_available").With(u.lower())
}

// lower returns the action that lowers min_available as far as it takes for the leaving nodes.
func (u usage) lower() Action {
	stay := ""
	if available := len(u.members) - len(u.down) - len(u.leaving); available > 0 {
		stay = strconv.Itoa(available)
	}
	return SetGroup(u.group.Name, "budget.min_available", stay)
}

// Lowering returns the actions that lower min_available of each group that keeps more nodes than remain
// without those of take. single: as far as it takes for one of its nodes at a time.
func (gs Groups) Lowering(nodes []*Node, take []string, single bool) []Action {
	var actions []Action
	for _, g := range gs {
		u := usageOf(g, nodes, set(take))
		if u.checkMin() == nil {
			continue
		}
		if single {
			u.leaving = u.leaving[:1]
		}

		actions = append(actions, u.lower())
	}

	return actions
}

// Unbudgeted returns the groups without their budgets.
func (gs Groups) Unbudgeted() Groups {
	without := slices.Clone(gs)
	for i := range without {
		without[i].Budget = Budget{}
	}

	return without
}

// repairsOf returns the actions that make the nodes available again, or end their service where the host is
// gone: one for each of the first nodes, because an action of several asks for a confirmation.
func repairsOf(nodes []*Node) []Action {
	const most = 5

	var actions []Action
	for _, n := range nodes[:min(len(nodes), most)] {
		switch {
		case n.Job != "":
			if wait := WaitForJob(n.Job); !slices.ContainsFunc(actions, wait.Equal) {
				actions = append(actions, wait)
			}
		case n.Status != Allocated:
		case n.State == Disappeared:
			actions = append(actions, Submit(VerbDecommission, n.Name))
		case n.State == Discovered:
			actions = append(actions, Submit(VerbApply, n.Name))
		}
	}

	return actions
}

// never says in words that no node can be taken, even if all nodes of the group are
// available. It is empty if one can.
func (u usage) never() string {
	least, have := u.group.Budget.MinAvailable, len(u.members)
	if have == 0 || have > least {
		return ""
	}
	return fmt.Sprintf("with %s, min_available %d never allows it", Count(have, "node", "nodes"), least)
}

// BudgetProblems describes the budgets that allow no job to take a node of their group, as long
// as the group has no more nodes. A group without nodes has no problem.
func (gs Groups) BudgetProblems(nodes []*Node) []string {
	var problems []string
	for _, g := range gs {
		if never := usageOf(g, nodes, nil).never(); never != "" {
			problems = append(
				problems,
				fmt.Sprintf("no job can take a node of group %s out of service: %s", g.Name, never),
			)
		}
	}

	return problems
}

// reasonsOf returns the nodes, each with the reason why it is unavailable.
func reasonsOf(nodes []*Node) []string {
	reasons := make([]string, len(nodes))
	for i, n := range nodes {
		reasons[i] = n.Name + " (" + n.unavailability() + ")"
	}

	return reasons
}

// unavailability returns why the node is unavailable.
func (n Node) unavailability() string {
	why := string(n.Status)

	switch {
	case n.State != Discovered:
		why = string(n.State)
	case n.Cleaned && n.Status == Allocated:
		why = "cleaned, and not configured since"
	case n.failsChecks() && n.Status == Allocated:
		why = "it failed the checks of its verification"
	}

	if n.Job != "" {
		why += ", job " + n.Job
	}

	return why
}

func are(nodes []*Node) string {
	names := namesOf(nodes)
	if len(names) == 1 {
		return names[0] + " is"
	}
	return shorten(names) + " are"
}

func namesOf(nodes []*Node) []string {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name
	}

	return names
}
