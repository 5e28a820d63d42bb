// SPDX-License-Identifier: Apache-2.0

package job

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

// RetryRequest asks for an ended job again.
type RetryRequest struct {
	Failed bool     // only the targets that the job left other than its verb wants them
	All    bool     // also the targets in service of a verb that interrupts
	Nodes  []string // only these targets; nil: all, or those of Failed if the verb interrupts
	Pinned bool     // with the playbooks, variables and tags of the old job, not those of today

	Extra     configuration.Vars // of the request, besides those of the old one, which they override
	Serial    string             // the size of a batch; empty: that of the old job
	Playbooks string             // of the cleanup: inventory.PlaybooksCurrent, or empty for those of the old job
	Timeout   time.Duration      // 0: that of the old job
	Usual     time.Duration      // the configured time limit, which a remedy need not name
}

// Retry is one job that brings targets of an ended job to where its verb wants
// them.
type Retry struct {
	Verb  inventory.Verb
	Group string // for verbs that join a group
	Names []string
}

// Retries returns the jobs that repeat the ended job on the named targets, and for
// each target that no job can repeat the reason. A target that a failure has taken
// out of service needs another verb than before, see Verb.RetryAs.
func (s Snapshot) Retries(old Job, names []string) (retries []Retry, left []*inventory.Error) {
	v := old.verb()
	if v.Row.TakesAddrs {
		names = slices.DeleteFunc(slices.Clone(names), func(addr string) bool {
			n, here := s.DiscoveredAt(addr)
			if here {
				left = append(left, inventory.Errorf(inventory.KindRefused,
					"%s is node %s by now, which is Discovered", addr, n.Name).
					Do("nothing is to be done for it").About(n.Name))
			}

			return here
		})
		if len(names) == 0 {
			return nil, left
		}
	}

	if !v.Row.ChangesStatus() {
		return []Retry{{Verb: old.Verb, Group: old.Group, Names: names}}, left
	}

	for _, name := range names {
		n := s.Find(name)
		if n == nil {
			left = append(left, inventory.Errorf(inventory.KindRefused, "%s is no longer known", name).About(name))
			continue
		}

		verb, group := old.Verb, old.Group
		if t, _ := old.Target(name); v.outOfService(*n) {
			verb, group = v.RetryAs, t.Group
		}
		row, _ := inventory.TransitionOf(verb)
		// A node that is held or unseen can be retried later: acceptance refuses it now.
		if !n.Status.InProgress() && !row.Takes(*n) {
			left = append(left, s.ineligible(row, *n))
			continue
		}

		same := func(r Retry) bool { return r.Verb == verb && r.Group == group }
		if i := slices.IndexFunc(retries, same); i >= 0 {
			retries[i].Names = append(retries[i].Names, name)
		} else {
			retries = append(retries, Retry{Verb: verb, Group: group, Names: []string{name}})
		}
	}

	return retries, left
}

// DiscoveredAt returns the Discovered node with the address; ok is false if there is none.
func (s Snapshot) DiscoveredAt(addr string) (n *inventory.Node, ok bool) {
	i := slices.IndexFunc(s.Nodes(), func(n *inventory.Node) bool {
		return n.Addr == addr && n.State == inventory.Discovered
	})
	if i < 0 {
		return nil, false
	}
	return s.Nodes()[i], true
}

// outOfService reports whether the node needs the verb's RetryAs.
func (v Verb) outOfService(n inventory.Node) bool {
	row, ok := inventory.TransitionOf(v.RetryAs)
	return ok && slices.Contains(row.From, n.Status)
}

// ineligible returns why the verb is not legal for the node, and the way to where
// it is.
func (s Snapshot) ineligible(row inventory.Transition, n inventory.Node) *inventory.Error {
	e, ok := errors.AsType[*inventory.Error](row.Check(n))
	if !ok {
		return inventory.Errorf(inventory.KindRefused, "%s is %s", n.Name, n.Status).About(n.Name)
	}
	if n.Status == inventory.Quarantined {
		return e.Do("look at the host, clear it, then retry again").With(s.ClearActions(n.Name)...)
	}
	return e
}

// Left returns the targets that an ended job left other than its verb wants them,
// without those that a retry of it has mended.
func (s Snapshot) Left(old Job) []string {
	left := old.Unfinished()
	repeats := map[string]bool{old.ID: true}

	for _, j := range s.Jobs() {
		if j.RetryOf == "" || !repeats[j.RetryOf] {
			continue
		}

		repeats[j.ID] = true
		left = slices.DeleteFunc(left, func(name string) bool {
			_, target := j.Target(name)
			return target && j.Status.Ended() && j.TargetResult(name).OK
		})
	}

	return left
}

// RetryActions returns the actions that repeat the ended job for its unfinished
// targets: one, or several if they need different jobs; none if no job helps.
func (s Snapshot) RetryActions(old Job) []inventory.Action {
	left := s.Left(old)

	var actions []inventory.Action

	retries, _ := s.Retries(old, left)
	for _, r := range retries {
		verb, _ := VerbOf(r.Verb)
		for playbooks, names := range s.byCleanup(r.Names) {
			if len(names) == 0 {
				continue
			}

			if !verb.Cleans {
				playbooks = ""
			}

			actions = append(actions, inventory.RetryJob(old.ID, false).On(names...).Cleaning(playbooks))
		}
	}

	if len(actions) == 1 {
		actions[0].Nodes, actions[0].Failed = nil, len(left) < len(old.Targets)
	}

	// The same time again would lead to the same end.
	for i := range actions {
		if old.Cause == CauseDeadline {
			actions[i] = actions[i].Within(2 * old.Timeout)
		}
	}

	return actions
}

// ClearActions returns the actions that clear the named nodes: one, or two if a
// part of them can be cleaned with the playbooks of today only.
func (s Snapshot) ClearActions(names ...string) []inventory.Action {
	return s.CleaningActions(inventory.VerbClear, names...)
}

// CleaningActions returns the actions that clean the named nodes by the verb.
func (s Snapshot) CleaningActions(v inventory.Verb, names ...string) []inventory.Action {
	return s.cleaning(inventory.Submit(v), names)
}

// CommissionActions returns the actions that commission the named nodes into the
// group, or a group that the manager chooses. They clean residue first.
func (s Snapshot) CommissionActions(group string, names ...string) []inventory.Action {
	return s.cleaning(inventory.Submit(inventory.VerbCommission).Joining(group), names)
}

// cleaning returns the action for the named nodes, with the playbooks that can clean
// them.
func (s Snapshot) cleaning(a inventory.Action, names []string) []inventory.Action {
	var actions []inventory.Action
	for playbooks, part := range s.byCleanup(names) {
		if len(part) > 0 {
			actions = append(actions, a.On(part...).Cleaning(playbooks))
		}
	}

	return actions
}

// byCleanup yields the named nodes by the playbooks that can clean them: first those
// with the playbooks that configured them, then those with inventory.PlaybooksCurrent.
func (s Snapshot) byCleanup(names []string) iter.Seq2[string, []string] {
	own := slices.DeleteFunc(slices.Clone(names), s.LacksCleanup)
	current := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !s.LacksCleanup(name) })

	return func(yield func(string, []string) bool) {
		_ = yield("", own) && yield(inventory.PlaybooksCurrent, current)
	}
}

// LacksCleanup reports whether the node carries configuration, and no play of its
// last cleanup acted on it. The playbooks that configured it cannot clean it then.
func (s Snapshot) LacksCleanup(name string) bool {
	result, cleaned := s.lastCleanup(name)
	return cleaned && result.untouched()
}

// CleanupFailed reports whether the node carries configuration, and a task of its last
// cleanup failed on it. The playbooks that configured it may be at fault, which no edit
// of the folder mends.
func (s Snapshot) CleanupFailed(name string) bool {
	result, cleaned := s.lastCleanup(name)
	return cleaned && result.Failed > 0 && !result.Done
}

// lastCleanup returns the result of the last cleanup of a node that carries
// configuration.
func (s Snapshot) lastCleanup(name string) (result HostResult, cleaned bool) {
	n := s.Find(name)
	if n == nil || len(n.Carries()) == 0 {
		return HostResult{}, false
	}

	for _, j := range slices.Backward(s.Jobs()) {
		if result, cleaned := j.cleanupOf(name); cleaned && j.Status.Ended() {
			return result, true
		}
	}

	return HostResult{}, false
}

// cleanupOf returns the result of the job's last cleanup of the target, if it has run
// one.
func (j Job) cleanupOf(name string) (result HostResult, cleaned bool) {
	if !j.verb().Cleans {
		return HostResult{}, false
	}

	for _, r := range slices.Backward(j.Runs) {
		if r.Playbook == PlaybookCleanup && slices.Contains(r.Hosts, name) {
			return r.Results[name], true
		}
	}

	return HostResult{}, false
}

// Retry returns the request that repeats the ended job, and the differences in its
// targets and its verb. The inputs are for the caller to add.
func (s Snapshot) Retry(old Job, r RetryRequest) (Request, []string, error) {
	names, err := s.retryNames(old, r)
	if err != nil {
		return Request{}, nil, err
	}
	retries, left := s.Retries(old, names)
	if len(retries) == 0 {
		return Request{}, nil, Combine(left)
	}
	if len(retries) > 1 {
		return Request{}, nil, s.refuseSeveral(old, retries)
	}

	var differences []string
	if spared := old.spared(r, names); len(spared) > 0 {
		differences = append(differences, "left out, because the job succeeded on them: "+ShortList(spared))
	}

	for _, e := range left {
		differences = append(differences, "left out: "+e.Message)
	}

	again := retries[0]
	row, _ := inventory.TransitionOf(again.Verb)

	request := Request{
		Verb: again.Verb, Nodes: again.Names, Group: again.Group, JobOptions: old.JobOptions,
		Timeout: cmp.Or(r.Timeout, old.Timeout),
	}
	if r.Timeout == 0 {
		request.TimeoutFrom = "job " + old.ID
	}
	request.Serial = cmp.Or(r.Serial, old.Serial)
	request.Playbooks = cmp.Or(r.Playbooks, old.Playbooks)

	if r.Pinned {
		request.GroupTags = map[string]inventory.Selection{}
		maps.Copy(request.GroupTags, old.GroupTags)
	}

	if row.TakesAddrs {
		request.Nodes = nil
		request.Addrs, request.Ranges = old.splitRanged(again.Names)
		request.HostKeys = old.hostKeys(again.Names)
	}

	if again.Verb != old.Verb {
		differences = append(differences, fmt.Sprintf("%s as %s in place of %s: %s out of service",
			again.Verb, again.Group, old.Verb, areOrIs(again.Names)))
	}

	// A node out of service has nothing left to clean with other playbooks. An
	// explicit choice is for the acceptance to refuse.
	if !row.Accepts(inventory.FieldPlaybooks) {
		request.Playbooks = r.Playbooks
	}

	if r.Serial == "" && old.Serial != "" && !row.Accepts(inventory.FieldSerial) {
		differences = append(differences, "all nodes at once: "+string(again.Verb)+" takes no batches")
		request.Serial, request.MaxFailures = "", 0
	}

	return request, differences, nil
}

// narrows reports whether the request leaves out the targets on which the job has
// succeeded: another run of its verb would interrupt them for nothing.
func (j Job) narrows(r RetryRequest) bool {
	return r.Nodes == nil && !r.All && !r.Failed && j.verb().Row.Interrupts()
}

// spared returns the targets that the request leaves out of its own accord.
func (j Job) spared(r RetryRequest, names []string) []string {
	if !j.narrows(r) {
		return nil
	}
	return slices.DeleteFunc(j.Names(), func(name string) bool { return slices.Contains(names, name) })
}

func areOrIs(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	return ShortList(names) + " are"
}

// retryNames returns the targets of the old job that the request selects.
func (s Snapshot) retryNames(old Job, r RetryRequest) ([]string, error) {
	names, left := old.Names(), s.Left(old)

	switch {
	case !old.Status.Ended():
		return nil, inventory.Errorf(inventory.KindRefused, "job %s has not ended: it is %s", old.ID, old.Status).
			Do("wait for it, or cancel it").With(inventory.WaitForJob(old.ID), inventory.CancelJob(old.ID))
	case r.Pinned && r.Extra != nil:
		return nil, inventory.Errorf(inventory.KindInvalid, "pinned excludes extra_vars").
			Do("leave out one of them: a pinned retry has the variables of the original")
	case r.All && (r.Failed || r.Nodes != nil):
		return nil, inventory.Errorf(inventory.KindInvalid, "all excludes failed and nodes").Do("leave out all")
	case len(left) == 0:
		return nil, s.nothingFailed(old, r.Usual)
	case r.Failed, old.narrows(r):
		names = left
	}

	if r.Nodes == nil {
		return names, nil
	}

	for _, name := range r.Nodes {
		if _, ok := old.Target(name); !ok {
			return nil, inventory.Errorf(inventory.KindInvalid, "%s is no target of job %s", name, old.ID).
				Do("see its targets").With(inventory.ShowJob(old.ID)).About(name)
		}
	}

	// The order of the job is that of its batches.
	named := func(name string) bool { return slices.Contains(r.Nodes, name) }
	if names = slices.DeleteFunc(names, func(name string) bool { return !named(name) }); len(names) == 0 {
		return nil, inventory.Errorf(inventory.KindRefused, "job %s did not fail on %s", old.ID, ShortList(r.Nodes)).
			Do("see its results").With(inventory.ShowJob(old.ID)).About(r.Nodes...)
	}

	return names, nil
}

// splitRanged separates the addresses that a discover was given from those of its
// ranges, which it joins again: a retry skips a silent address of a range as well.
func (j Job) splitRanged(addrs []string) (named, ranged []string) {
	for _, addr := range addrs {
		if t, _ := j.Target(addr); t.Ranged {
			ranged = append(ranged, addr)
		} else {
			named = append(named, addr)
		}
	}

	return named, joinRanges(ranged)
}

// joinRanges returns the addresses as ranges. Neighbours are in one.
func joinRanges(addrs []string) []string {
	var (
		ranges      []string
		first, last netip.Addr
	)

	for _, text := range addrs {
		addr, err := netip.ParseAddr(text)

		switch {
		case err != nil:
			ranges = append(ranges, text)
			continue
		case len(ranges) > 0 && last.IsValid() && addr == last.Next():
			ranges = ranges[:len(ranges)-1]
		default:
			first = addr
		}

		last = addr
		ranges = append(ranges, first.String()+"-"+last.String())
	}

	return ranges
}

// nothingFailed refuses the retry of a success. The same again is a new job, where
// its verb is still legal.
func (s Snapshot) nothingFailed(old Job, usual time.Duration) error {
	if len(old.Unfinished()) > 0 {
		return inventory.Errorf(inventory.KindRefused, "nothing is left to repeat of job %s", old.ID).
			Do("its retries have succeeded")
	}

	e := inventory.Errorf(inventory.KindRefused, "nothing failed in job %s", old.ID)

	retries, left := s.Retries(old, old.Names())
	if len(retries) == 1 && len(left) == 0 && retries[0].Verb == old.Verb && !old.TakesAddrs() {
		actions, with := Anew(old, old.Names(), old.unknownExtra(), usual)
		return e.Do("to do the same again, submit a new job%s", with).With(actions...)
	}

	return e.Do("there is nothing to repeat")
}

// refuseSeveral refuses a retry that needs several jobs, and names each.
func (s Snapshot) refuseSeveral(old Job, retries []Retry) error {
	var parts, names []string
	for _, r := range retries {
		part := string(r.Verb)
		if r.Verb != old.Verb {
			part += " as " + r.Group
		}
		parts = append(parts, fmt.Sprintf("%s (%s)", ShortList(r.Names), part))
		names = append(names, r.Names...)
	}

	return inventory.Errorf(inventory.KindRefused, "the nodes of job %s need %d jobs now: %s",
		old.ID, len(retries), strings.Join(parts, "; ")).
		Do("retry them apart").With(s.RetryActions(old)...).About(names...)
}

// DifferentInputs describes, in names only, how the inputs of a job differ from
// those of the job that it retries.
func DifferentInputs(old, again Job, then, now Inputs) []string {
	var differences []string

	// A job that cleans with the playbooks of its nodes may have none of its own.
	if old.PlaybookDigest != again.PlaybookDigest && old.PlaybookDigest != "" && again.PlaybookDigest != "" {
		differences = append(differences, fmt.Sprintf("playbooks: %s now, %s then",
			shortDigest(again.PlaybookDigest), shortDigest(old.PlaybookDigest)))
	}

	differences = append(differences, differentTags(old, again)...)
	changed := map[string]bool{}

	for _, t := range again.Targets {
		if was, ok := old.Target(t.Name); ok && was.Group != t.Group {
			differences = append(differences, fmt.Sprintf("%s: group %s now, %s then", t.Name, t.Group, was.Group))
		}

		for _, key := range differentVars(old, again, t, then, now) {
			changed[key] = true
		}
	}

	if len(changed) > 0 {
		differences = append(differences, "variables: "+ShortList(slices.Sorted(maps.Keys(changed)))+" changed")
	}

	return differences
}

// differentVars returns the variables of the target that changed between two jobs. The variables of a group of which
// only one of the jobs cleans it are no change.
func differentVars(old, again Job, t Target, then, now Inputs) []string {
	was, _ := old.Target(t.Name)

	var keys []string

	for _, group := range again.InputGroups(t) {
		before, _, known := then.Of(was, group)
		if !known && group == t.Group {
			before, known = then.Vars[t.Name]
		}
		if vars, _, _ := now.Of(t, group); known {
			keys = append(keys, DifferentKeys(before, vars)...)
		}
	}

	return keys
}

// shortDigest is enough of a digest for a person to tell two apart.
func shortDigest(digest string) string { return digest[:min(len(digest), 12)] }

// DifferentKeys returns the keys with other values, or in one map only.
func DifferentKeys(then, now map[string]configuration.Var) []string {
	var keys []string
	for key, v := range now {
		if old, ok := then[key]; !ok || !reflect.DeepEqual(v.Value, old.Value) {
			keys = append(keys, key)
		}
	}

	for key := range then {
		if _, ok := now[key]; !ok {
			keys = append(keys, key)
		}
	}

	return keys
}
