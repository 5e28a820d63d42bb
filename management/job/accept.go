// SPDX-License-Identifier: Apache-2.0

package job

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

// MaxQueued limits the queue. It protects the store from a runaway script.
const MaxQueued = 1000

// The bounds of one request.
const (
	MaxNames  = 10_000 // nodes
	maxAddrs  = inventory.MaxRange
	maxRanges = 64
)

// Accept decides whether a request can become a job, and returns the job as it
// is to be queued, without its id. The request is checked against the nodes as
// they will be if every job ahead succeeds.
func Accept(s Snapshot, groups inventory.Groups, r Request) (Job, error) {
	if queued := s.Queued(); queued >= MaxQueued {
		return Job{}, inventory.Errorf(inventory.KindRefused, "%d jobs are queued already", queued).
			Do("wait for some to end, or cancel some").With(inventory.ListJobs())
	}

	if err := s.unreadableInputs(); err != nil {
		return Job{}, err
	}

	// Check the request by itself first, so that its errors do not depend on the nodes.
	v, err := VerbOf(r.Verb)
	if err != nil {
		return Job{}, err
	}

	j := Job{Verb: r.Verb, Status: Queued, Group: r.Group, JobOptions: r.JobOptions, Timeout: r.Timeout}
	j.TimeoutFrom = r.TimeoutFrom

	if err := v.checkOptions(j); err != nil {
		return Job{}, err
	}

	if len(r.HostKeys) > 0 && !v.Row.Accepts(inventory.FieldHostKeys) {
		return Job{}, v.refuseField(inventory.FieldHostKeys)
	}

	if v.defaults != nil {
		v.defaults(&j)
	}

	// Addresses without a node have no status to check.
	if v.Row.TakesAddrs {
		if len(r.Expect) > 0 {
			return Job{}, inventory.Errorf(inventory.KindInvalid,
				"expect: %s takes addresses, and only nodes have a status to expect", v.Name).Do("leave it out")
		}

		if j.Targets, err = addrTargets(v, r); err != nil {
			return Job{}, err
		}

		if err := giveHostKeys(j.Targets, r.HostKeys); err != nil {
			return Job{}, err
		}

		return j, identify(s.Nodes(), &j)
	}

	names, err := v.nodeNames(r)
	if err != nil {
		return Job{}, err
	}
	if missing := s.Missing(names); len(missing) > 0 {
		return Job{}, s.MissingNodes(missing)
	}

	// The job runs after those ahead, so the default group depends on their success.
	nodes := s.project(0)
	if err := s.checkExpected(nodes, r); err != nil {
		return Job{}, err
	}

	if v.defaultGroup && j.Group == "" {
		j.Group = s.DefaultGroup(groups)
		j.Note = fmt.Sprintf("no group was named: %s is taken", j.Group)
	}

	for _, name := range names {
		j.Targets = append(j.Targets, Target{Name: name})
	}

	s.order(groups, &j)

	// A refusal names the variables of the request.
	j.ExtraNames = namesOf(r.Extra)

	if j.GroupTags = r.GroupTags; r.GroupTags == nil {
		j.GroupTags = groups.Selections()
	}

	if err := s.checkProjected(nodes, groups, &j); err != nil {
		return j, err
	}

	j.pinTags(s)

	return j, nil
}

// namesOf returns the names of the variables of a request that a job keeps.
func namesOf(extra configuration.Vars) []string {
	names := slices.Sorted(maps.Keys(extra))
	return names[:min(len(names), inventory.MaxExtraNames)]
}

// DefaultGroup returns the group of a commission that names none, if it is accepted now.
func (s Snapshot) DefaultGroup(groups inventory.Groups) string { return groups.Default(s.project(0)) }

// checkProjected checks the job against the projected nodes. A refusal that
// does not hold for the nodes as they are now names the jobs it depends on.
func (s Snapshot) checkProjected(projected []*inventory.Node, groups inventory.Groups, j *Job) error {
	// legal fills in the targets, hence a copy for the second opinion.
	now := *j
	now.Targets = slices.Clone(j.Targets)

	err := legal(projected, groups, j)
	if e, ok := errors.AsType[*inventory.Error](err); ok {
		if is := legal(s.Nodes(), groups, &now); is == nil || is.Error() != e.Error() {
			e.Message += s.describeAhead(e.Nodes)
		}
	}

	return err
}

// project returns the nodes as they will be if every job that has not ended
// succeeds. With seq > 0 it considers only jobs before that number.
func (s Snapshot) project(seq uint64) []*inventory.Node {
	nodes, copied, gone := s.Nodes(), false, false

	for _, j := range s.Jobs() {
		// A later job can run already, if a window held the earlier one back.
		if j.Status.Ended() || seq != 0 && j.Seq() >= seq && j.Status != Running {
			continue
		}

		row := j.verb().Row
		if !row.ChangesStatus() {
			continue
		}

		// Most decisions have no job ahead. Do not copy the nodes for them.
		if !copied {
			nodes, copied = slices.Clone(s.Nodes()), true
		}

		// A node may be the target of several jobs ahead: project one on the other.
		for _, target := range j.Targets {
			at, known := search(s.Nodes(), target.Name)
			if !known || nodes[at] == nil {
				continue
			}
			nodes[at] = j.projectNode(*nodes[at], row, target)
			gone = gone || nodes[at] == nil // forgotten by then
		}
	}

	if gone {
		nodes = slices.DeleteFunc(nodes, func(n *inventory.Node) bool { return n == nil })
	}

	return nodes
}

// projectNode returns the node after the job, or nil if the job removes it. An
// outcome that is already decided replaces the assumption of success.
func (j *Job) projectNode(n inventory.Node, row inventory.Transition, target Target) *inventory.Node {
	if row.Success == "" {
		return nil
	}

	if row.Success == inventory.AsBefore {
		if n.Status.InProgress() {
			n.Status = target.From
		}
		n.Job, n.Verb, n.Before = "", "", nil

		return &n
	}

	was, success := n, j.success(target)
	n.Cleaned, n.Verification = n.CleanedAfter(success), n.VerificationAfter(success, row.Success)
	n.Uncleaned = n.UncleanedAfter(success)
	n.Status, n.Group = row.Success, target.Group

	if target.Group != "" && !j.Check && !row.Verifies {
		n.Playbooks = maps.Clone(n.Playbooks)
		if n.Playbooks == nil {
			n.Playbooks = map[string]string{}
		}

		n.Playbooks[target.Group] = j.PlaybookDigest
	}

	if o, ok := j.Outcomes[n.Name]; ok {
		n.Cleaned, n.Verification = was.CleanedAfter(o), was.VerificationAfter(o, o.Status)
		n.Uncleaned = was.UncleanedAfter(o)
		n.Status, n.Group = o.Status, o.Group
	}

	// After its end the job holds the node no longer.
	n.Job, n.Verb, n.Before = "", "", nil

	return &n
}

// describeAhead names the jobs that the projection of the nodes depends on.
func (s Snapshot) describeAhead(nodes []string) string {
	concerns := func(name string) bool { return slices.Contains(nodes, name) }

	var ids []string
	for _, j := range s.Jobs() {
		if !j.Status.Ended() && slices.ContainsFunc(j.Names(), concerns) {
			ids = append(ids, j.ID)
		}
	}

	if len(ids) == 0 {
		return " (as it will be after the jobs that have not ended)"
	}

	return fmt.Sprintf(" (as it will be after %s)", Jobs(ids))
}

// CanonicalAddr returns the one spelling of an address that compares equal.
func CanonicalAddr(addr string) string {
	if ip, err := netip.ParseAddr(addr); err == nil {
		return ip.String()
	}
	return addr
}

// checkOptions refuses options the verb does not understand and bad values.
func (v Verb) checkOptions(j Job) error {
	if j.Group != "" && !v.Row.Accepts(inventory.FieldGroup) {
		return v.refuseField(inventory.FieldGroup)
	}

	if err := v.CheckTaken(j.JobOptions); err != nil {
		return err
	}

	if err := j.CheckOptions(); err != nil {
		return err
	}

	switch {
	case j.OverrideWindow && !j.ChangesHosts():
		return inventory.Errorf(inventory.KindInvalid, "the job changes no host, so no maintenance window holds it").
			Do("leave override_window out")
	case j.Timeout < 0:
		return inventory.Errorf(inventory.KindInvalid, "the timeout is negative")
	}

	return nil
}

// CheckTaken refuses the options that only other verbs take, by the rows of the lifecycle table.
func (v Verb) CheckTaken(o inventory.JobOptions) error {
	for _, option := range inventory.Options {
		if option.Takes != nil || !option.IsSet(o) || v.Row.Accepts(option.Field) {
			continue
		}

		err := v.refuseField(option.Field)
		if e, ok := errors.AsType[*inventory.Error](err); ok && option.Refusal != "" {
			e.Message += ": " + option.Refusal
		}

		return err
	}

	return nil
}

// nodeNames returns the node names of the request, checked against their grammar.
func (v Verb) nodeNames(r Request) ([]string, error) {
	if len(r.Addrs)+len(r.Ranges) > 0 {
		return nil, inventory.Errorf(inventory.KindInvalid, "%s takes nodes, not addresses", v.Name).
			Do("put them into nodes")
	}

	return r.Nodes, CheckNames("node", r.Nodes, inventory.CheckName)
}

// addrTargets returns a target for each address of the request: the named ones
// first, then those of the ranges. An address that is there twice is a target
// once, unless it is named twice.
func addrTargets(v Verb, r Request) ([]Target, error) {
	if len(r.Nodes) > 0 {
		return nil, inventory.Errorf(inventory.KindInvalid, "%s takes addresses, not nodes", v.Name).
			Do("put them into addrs")
	}

	if len(r.Addrs) > maxAddrs {
		return nil, inventory.
			Errorf(inventory.KindInvalid, "the request has %d addresses, the limit is %d", len(r.Addrs), maxAddrs).
			Do("split it into several requests")
	}

	// Two spellings of one address must count as a duplicate.
	addrs := slices.Clone(r.Addrs)
	for i, addr := range addrs {
		addrs[i] = CanonicalAddr(addr)
	}

	// A request may have nothing but ranges.
	if len(addrs) > 0 || len(r.Ranges) == 0 {
		if err := CheckNames("address", addrs, inventory.CheckAddr); err != nil {
			return nil, err
		}
	}

	ranged, err := expandRanges(r.Ranges, addrs)
	if err != nil {
		return nil, err
	}

	var targets []Target
	for i, addr := range slices.Concat(addrs, ranged) {
		targets = append(targets, Target{
			Name: addr, Addr: addr, Group: inventory.GroupPrepare, Ranged: i >= len(addrs),
		})
	}

	return targets, nil
}

// expandRanges returns the addresses of the ranges, each once and without the
// named ones.
func expandRanges(ranges, named []string) ([]string, error) {
	// Before they expand: many may be the same.
	if len(ranges) > maxRanges {
		return nil, inventory.
			Errorf(inventory.KindInvalid, "the request has %d ranges, the limit is %d", len(ranges), maxRanges).
			Do("split it into several requests")
	}

	seen := map[string]bool{}
	for _, addr := range named {
		seen[addr] = true
	}

	var addrs []string
	for _, r := range ranges {
		expanded, err := inventory.ParseRange(r)
		if err != nil {
			return nil, err
		}

		for _, addr := range expanded {
			if err := inventory.CheckAddr(addr); err != nil {
				return nil, err
			}

			if !seen[addr] {
				addrs = append(addrs, addr)
			}

			seen[addr] = true
		}
	}

	if len(addrs) > inventory.MaxRange {
		return nil, inventory.Errorf(inventory.KindInvalid, "the ranges have %d addresses, the limit is %d", len(addrs),
			inventory.MaxRange).Do("split them into several requests")
	}

	return addrs, nil
}

// CheckNames refuses an empty list, one of more than MaxNames, names outside the
// grammar that check holds, and duplicates. kind names an element in messages.
func CheckNames(kind string, names []string, check func(string) error) error {
	if len(names) == 0 {
		return inventory.Errorf(inventory.KindInvalid, "no %s is named", kind).Do("name at least one")
	}

	if len(names) > MaxNames {
		return inventory.
			Errorf(inventory.KindInvalid, "%d times a %s is named, the limit is %d", len(names), kind, MaxNames).
			Do("split the request")
	}

	seen := map[string]bool{}

	var twice []string
	for _, name := range names {
		if err := check(name); err != nil {
			return err
		}

		if seen[name] && !slices.Contains(twice, name) {
			twice = append(twice, name)
		}

		seen[name] = true
	}

	if len(twice) > 0 {
		return inventory.Errorf(inventory.KindInvalid, "named more than once: %s", join(twice)).
			Do("name each %s once", kind)
	}

	return nil
}

// legal refuses a job that the lifecycle or the group rules forbid on the given
// nodes, which are sorted by name. It fills in the job's targets.
func legal(nodes []*inventory.Node, groups inventory.Groups, j *Job) error {
	v := j.verb()
	if !v.Row.ChangesStatus() {
		return identify(nodes, j)
	}

	// Collect every refusal: an operator corrects a batch once, not node by node.
	var refusals []*inventory.Error
	for i := range j.Targets {
		target := &j.Targets[i]

		n := Find(nodes, target.Name)
		if n == nil {
			refusals = append(refusals, inventory.Errorf(inventory.KindRefused,
				"%s is no longer known, or will be forgotten by then", target.Name).About(target.Name))

			continue
		}

		if e, refused := errors.AsType[*inventory.Error](v.Row.Check(*n)); refused {
			refusals = append(refusals, e)
			continue
		}

		if j.Erase != "" && n.Addr == "" {
			refusals = append(refusals, inventory.Errorf(inventory.KindRefused,
				"no address of %s is known at which ssh could reach it to erase its disks", n.Name).
				Do("import its addr, or leave it out").About(n.Name))

			continue
		}

		if n.Uncleaned && n.Addr == "" && v.Row.CleansHost && !j.Force {
			refusals = append(refusals, inventory.Errorf(inventory.KindRefused,
				"a cleaning failed on %s, and no address is known at which ssh could reach it to clean it", n.Name).
				Do("import its addr, or clean it yourself and clear it by force").About(n.Name))

			continue
		}

		// The queued job may have found the playbooks of a node without a record of
		// them, see Snapshot.Recall.
		playbooks := maps.Clone(n.Playbooks)
		if len(playbooks) == 0 && n.Applied != "" && n.Applied == target.Applied {
			playbooks = target.Playbooks
		}

		// A registered machine is a node before its agent has told its label.
		label, known := n.Label, n.OwnName()
		if label == "" {
			label, known = n.Name, n.Name
		}

		// Pin the node as it is, because the job changes it.
		*target = Target{
			Name: n.Name, Addr: n.Addr, Label: label, Serial: n.Serial, Known: known,
			From: n.Status, FromGroup: n.Group,
			Residue: slices.Clone(n.Residue), Uncleaned: n.Uncleaned, Applied: n.Applied, Playbooks: playbooks,
			Variables: target.Variables,
		}
		if n.Configured != nil {
			target.Configured, target.ConfiguredTags = n.Configured.Variables, n.Configured.Tags
			target.ConfiguredMasters = n.Configured.Masters
		}

		if v.GroupAfter != nil {
			target.Group = v.GroupAfter(*j, *n)
		}
	}

	if len(refusals) > 0 {
		return Combine(refusals)
	}

	if err := j.checkTags(); err != nil {
		return err
	}

	return v.checkBatches(nodes, groups, *j)
}

// checkGroups checks the rules of the groups that the targets leave and enter, and their
// budgets.
func (v Verb) checkGroups(nodes []*inventory.Node, groups inventory.Groups, j Job) error {
	batch := j.Names()

	if !v.Row.Verifies && !j.Check {
		if err := groups.CheckBudgets(nodes, batch); err != nil {
			return err
		}
	}

	if v.Leaves {
		if err := groups.CheckLeave(nodes, batch); err != nil {
			return err
		}
	}

	if !v.Joins {
		return nil
	}

	// An update may send its targets to several groups.
	var checked []string
	for _, t := range j.Targets {
		if slices.Contains(checked, t.Group) {
			continue
		}

		checked = append(checked, t.Group)
		if err := groups.CheckJoin(nodes, batch, t.Group); err != nil {
			return err
		}
	}

	return nil
}

// identify finds the nodes at the addresses of a job. It refuses nodes that a
// job holds, and nodes that are Discovered and need no preparation. In a range it
// leaves them out instead.
func identify(nodes []*inventory.Node, j *Job) error {
	at := map[string][]*inventory.Node{}
	for _, n := range nodes {
		at[n.Addr] = append(at[n.Addr], n)
	}

	var (
		refusals []*inventory.Error
		targets  []Target
		left     []string
	)

	for _, target := range j.Targets {
		busy := slices.ContainsFunc(at[target.Addr], func(n *inventory.Node) bool {
			return n.Job != "" || n.State == inventory.Discovered
		})
		if busy && target.Ranged {
			left = append(left, target.Addr+" ("+at[target.Addr][0].Name+")")
			continue
		}

		for _, n := range at[target.Addr] {
			switch {
			case n.Job != "":
				refusals = append(refusals, inventory.Errorf(inventory.KindRefused,
					"%s is node %s, which job %s holds", target.Addr, n.Name, n.Job).
					Do("wait for the job").With(inventory.WaitForJob(n.Job)).About(n.Name))
			case n.State == inventory.Discovered:
				refusals = append(refusals, inventory.Errorf(inventory.KindRefused,
					"%s is node %s, which is Discovered already", target.Addr, n.Name).
					Do("leave it out").About(n.Name))
			case contradicts(target.HostKeys, n.HostKeys):
				refusals = append(refusals, inventory.Errorf(inventory.KindRefused,
					"%s is node %s, with another recorded ssh host key than the given one", target.Addr, n.Name).
					Do("trust the new key first, if it was changed on purpose").
					With(inventory.TrustHostKey(n.Name)).About(n.Name))
			default:
				target.Label, target.Serial, target.Known = n.Label, n.Serial, n.OwnName()
				if n.Label == "" { // a registered machine; its agent will tell the label
					target.Known = n.Name
				}
			}
		}

		targets = append(targets, target)
	}

	if len(targets) == 0 {
		return inventory.Errorf(inventory.KindRefused, "every address of the range is a node already: %s",
			ShortList(left)).Do("there is nothing to discover").With(inventory.ListNodes())
	}

	j.Targets = targets
	if len(left) > 0 {
		j.Note = "left out of the range, because they are nodes already: " + ShortList(left)
	}

	return Combine(refusals)
}

// Combine returns one error for several refusals, or nil for none. It explains
// the first few, with their actions, and names all nodes.
func Combine(refusals []*inventory.Error) error {
	const explained = 8

	switch len(refusals) {
	case 0:
		return nil
	case 1:
		return refusals[0]
	}

	all := *refusals[0]
	all.Nodes = nil

	var messages []string
	for i, r := range refusals {
		if i < explained {
			messages = append(messages, r.Message)
			all.Actions = inventory.MergeActions(all.Actions, r.Actions)
		}

		// A remedy for one node may not help another.
		if r.Remedy != all.Remedy {
			all.Remedy = "correct or leave out the nodes named, then repeat"
		}

		all.Nodes = append(all.Nodes, r.Nodes...)
	}

	all.Message = strings.Join(messages, "; ")
	if more := len(refusals) - explained; more > 0 {
		all.Message += fmt.Sprintf("; and %d more", more)
	}

	return &all
}
