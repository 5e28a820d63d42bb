// SPDX-License-Identifier: Apache-2.0

package management

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// maxQueued bounds the queue; a script gone wild is told, not obeyed.
const maxQueued = 1000

// project returns the nodes as they will be if every job that has not ended
// succeeds, those numbered before seq only (0: all).
func project(v *View, seq uint64) []*inventory.Node {
	later := map[string]*inventory.Node{} // nil: gone
	for _, j := range v.Jobs {
		if j.Status.Ended() || seq != 0 && j.Seq() >= seq {
			continue
		}

		t, ok := inventory.TransitionOf(j.Verb)
		if !ok {
			continue // discover changes no known node
		}

		for _, target := range j.Targets {
			n, changed := later[target.Name]
			if !changed {
				n = find(v.Nodes, target.Name)
			}

			if n == nil {
				continue
			}

			m := *n

			m.Status, m.Group = t.Success, target.Group
			if o, ok := j.Outcomes[n.Name]; ok {
				m.Status, m.Group = o.Status, o.Group
			}

			m.Job, m.Verb, m.Before = "", "", nil

			later[n.Name] = &m
			if t.Success == "" {
				later[n.Name] = nil
			}
		}
	}

	if len(later) == 0 {
		return v.Nodes
	}

	nodes := make([]*inventory.Node, 0, len(v.Nodes))
	for _, n := range v.Nodes {
		if m, changed := later[n.Name]; changed {
			n = m
		}

		if n != nil {
			nodes = append(nodes, n)
		}
	}

	return nodes
}

// accept decides whether the request can become a job, given the view. It
// returns the job as it will be queued.
func accept(v *View, groups inventory.Groups, r Request) (Job, error) {
	queued := 0
	for _, j := range v.Jobs {
		if j.Status == Queued {
			queued++
		}
	}

	if queued >= maxQueued {
		return Job{}, inventory.Errorf(inventory.KindRefused, "%d jobs are queued already", queued).
			Do("wait for some to end, or cancel some: clusterctl job list")
	}

	j := Job{
		Verb: r.Verb, Status: Queued, Group: r.Group, OnFailure: r.OnFailure, Force: r.Force, Reason: r.Reason,
		Actor: r.Actor, Timeout: r.Timeout,
	}
	if err := checkOptions(&j); err != nil {
		return Job{}, err
	}

	names := r.Nodes
	if r.Verb == inventory.VerbDiscover {
		r.Addrs = slices.Clone(r.Addrs)
		for i, a := range r.Addrs {
			r.Addrs[i] = canonical(a)
		}

		names = r.Addrs
	}

	if err := checkNames(r, names); err != nil {
		return Job{}, err
	}

	if r.Verb == inventory.VerbDiscover {
		for _, a := range r.Addrs {
			j.Targets = append(j.Targets, Target{Name: a, Addr: a, Group: inventory.GroupPrepare})
		}

		return j, identify(v.Nodes, &j)
	}

	if missing := v.missing(names); len(missing) > 0 {
		return Job{}, inventory.Errorf(inventory.KindNotFound, "no such node: %s", join(missing)).
			Do("see clusterctl nodes get").About(missing...)
	}

	nodes := project(v, 0)
	if j.Verb == inventory.VerbCommission && j.Group == "" {
		j.Group = groups.Default(nodes)
		j.Note = fmt.Sprintf("no group was named: %s is taken", j.Group)
	}

	for _, name := range names {
		j.Targets = append(j.Targets, Target{Name: name})
	}

	now := j
	now.Targets = slices.Clone(j.Targets)

	err := legal(nodes, groups, &j)
	if e, ok := err.(*inventory.Error); ok {
		if is := legal(v.Nodes, groups, &now); is == nil || is.Error() != e.Error() {
			e.Message += ahead(v, e.Nodes)
		}
	}

	return j, err
}

// ahead is what a refusal adds whose nodes are not yet as it says: the jobs
// that it counts on.
func ahead(v *View, nodes []string) string {
	var ids []string
	for _, j := range v.Jobs {
		if !j.Status.Ended() &&
			slices.ContainsFunc(j.Names(), func(name string) bool { return slices.Contains(nodes, name) }) {
			ids = append(ids, j.ID)
		}
	}

	if len(ids) == 0 {
		return " (as it will be after the jobs that have not ended)"
	}

	return fmt.Sprintf(" (as it will be after %s)", jobs(ids))
}

// canonical writes an address the one way in which it can be compared.
func canonical(addr string) string {
	if ip, err := netip.ParseAddr(addr); err == nil {
		return ip.String()
	}

	return addr
}

func checkOptions(j *Job) error {
	bad := func(what string, verbs string) error {
		return inventory.Errorf(inventory.KindInvalid, "%s makes no sense for %s", what, j.Verb).
			Do("it belongs to %s", verbs)
	}

	if _, ok := inventory.TransitionOf(j.Verb); !ok && j.Verb != inventory.VerbDiscover {
		return inventory.Errorf(inventory.KindInvalid, "there is no verb %q for a job", j.Verb).
			Do("use commission, update, maintenance, decommission, clear, forget or discover")
	}

	commission, update, clear := j.Verb == inventory.VerbCommission, j.Verb == inventory.VerbUpdate, j.Verb == inventory.VerbClear
	switch {
	case j.Group != "" && !commission && !update:
		return bad("a host group", "commission and update")
	case j.OnFailure != "" && !commission:
		return bad("on_failure", "commission")
	case j.OnFailure != "" && j.OnFailure != OnFailureBatch && j.OnFailure != OnFailureFailed:
		return inventory.Errorf(inventory.KindInvalid, "on_failure is %q", j.OnFailure).
			Do("use %q or %q", OnFailureBatch, OnFailureFailed)
	case j.Force && !clear:
		return bad("force", "clear, and to forgetting a record without its agent")
	case j.Force && j.Reason == "":
		return inventory.Errorf(inventory.KindInvalid, "to clear without a cleanup a reason is needed").
			Do("add --reason TEXT (in the API the field reason)")
	case len(j.Reason) > 1024:
		return inventory.Errorf(inventory.KindTooLarge, "the reason has %d bytes, the limit is 1024", len(j.Reason))
	case j.Timeout < 0:
		return inventory.Errorf(inventory.KindInvalid, "the timeout is negative")
	}

	if commission && j.OnFailure == "" {
		j.OnFailure = OnFailureBatch
	}

	return nil
}

func checkNames(r Request, names []string) error {
	what, check := "node", inventory.CheckName
	if r.Verb == inventory.VerbDiscover {
		what, check = "address", inventory.CheckAddr

		if len(r.Nodes) > 0 {
			return inventory.Errorf(inventory.KindInvalid, "discover takes addresses, not nodes").
				Do("put them into addrs")
		}
	} else if len(r.Addrs) > 0 {
		return inventory.Errorf(inventory.KindInvalid, "%s takes nodes, not addresses", r.Verb).
			Do("put them into nodes")
	}

	if len(names) == 0 {
		return inventory.Errorf(inventory.KindInvalid, "no %s is named", what).Do("name at least one")
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
			Do("name each %s once", what)
	}

	return nil
}

// legal refuses a job that the table or the rules do not allow on the nodes,
// sorted by name, as given, and fills its targets with what they are.
func legal(nodes []*inventory.Node, groups inventory.Groups, j *Job) error {
	if j.Verb == inventory.VerbDiscover {
		return identify(nodes, j)
	}

	t, _ := inventory.TransitionOf(j.Verb)

	var refusals []*inventory.Error
	for i := range j.Targets {
		target := &j.Targets[i]

		n := find(nodes, target.Name)
		if n == nil {
			refusals = append(
				refusals,
				inventory.Errorf(inventory.KindRefused, "%s is no longer known, or will be forgotten by then", target.Name).
					About(target.Name),
			)
			continue
		}

		if err := t.Check(*n); err != nil {
			refusals = append(refusals, err.(*inventory.Error))
			continue
		}

		*target = Target{
			Name: n.Name, Addr: n.Addr, Label: n.Label, Serial: n.Serial, From: n.Status, FromGroup: n.Group,
			Residue: slices.Clone(n.Residue), Applied: n.Applied, Group: after(*j, *n),
		}
	}

	if len(refusals) > 0 {
		return together(refusals)
	}

	return rules(nodes, groups, j)
}

// after is the group that the node is in after the job has succeeded.
func after(j Job, n inventory.Node) string {
	switch j.Verb {
	case inventory.VerbCommission:
		return j.Group
	case inventory.VerbUpdate:
		if j.Group != "" {
			return j.Group
		}

		return n.Group
	case inventory.VerbMaintenance:
		return n.Group
	}

	return ""
}

func rules(nodes []*inventory.Node, groups inventory.Groups, j *Job) error {
	batch := j.Names()
	switch j.Verb {
	case inventory.VerbUpdate, inventory.VerbDecommission:
		if err := groups.CheckLeave(nodes, batch); err != nil {
			return err
		}
	}

	switch j.Verb {
	case inventory.VerbCommission, inventory.VerbUpdate:
		var done []string
		for _, t := range j.Targets {
			if slices.Contains(done, t.Group) {
				continue
			}

			done = append(done, t.Group)
			if err := groups.CheckJoin(nodes, batch, t.Group); err != nil {
				return err
			}
		}
	}

	return nil
}

// identify finds the known nodes behind the addresses of a discover and refuses
// those that need none.
func identify(nodes []*inventory.Node, j *Job) error {
	var refusals []*inventory.Error
	for i := range j.Targets {
		target := &j.Targets[i]
		for _, n := range nodes {
			if n.Addr != target.Addr {
				continue
			}

			switch {
			case n.Job != "":
				refusals = append(
					refusals,
					inventory.Errorf(inventory.KindRefused, "%s is node %s, which job %s holds", target.Addr, n.Name, n.Job).
						Do("wait for the job: clusterctl job logs -f %s", n.Job).
						About(n.Name),
				)
			case n.State == inventory.Discovered:
				refusals = append(
					refusals,
					inventory.Errorf(inventory.KindRefused, "%s is node %s, which is Discovered already", target.Addr, n.Name).
						Do("leave it out").
						About(n.Name),
				)
			default:
				target.Label, target.Serial = n.Label, n.Serial
			}
		}
	}

	return together(refusals)
}

// together makes one refusal of several. It says why of the first few, and
// names all nodes.
func together(refusals []*inventory.Error) error {
	switch len(refusals) {
	case 0:
		return nil
	case 1:
		return refusals[0]
	}

	const most = 8
	all := *refusals[0]
	all.Nodes = nil

	var why []string
	for i, r := range refusals {
		if i < most {
			why = append(why, r.Message)
		}

		if r.Remedy != all.Remedy {
			all.Remedy = "correct or leave out the nodes named, then repeat"
		}

		all.Nodes = append(all.Nodes, r.Nodes...)
	}

	all.Message = strings.Join(why, "; ")
	if more := len(refusals) - most; more > 0 {
		all.Message += fmt.Sprintf("; and %d more", more)
	}

	return &all
}
