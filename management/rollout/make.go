// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// The bounds of a specification.
const (
	maxSoak      = inventory.MaxSoak
	maxCheckTime = time.Hour
	maxPath      = 1024 // bytes
)

// Verifies reports whether the gate verifies the nodes: the action configures them, and the
// specification does not say otherwise.
func (s Spec) Verifies() bool { return !s.Gate.SkipVerify && configures(s.Action) }

// configures reports whether the verb leaves its nodes in service with a new configuration.
func configures(v inventory.Verb) bool {
	row, _ := inventory.TransitionOf(v)
	return row.Success == inventory.Allocated && !row.Verifies
}

// joins reports whether the verb brings nodes into service, which have no group before.
func (s Spec) joins() bool {
	row, _ := inventory.TransitionOf(s.Action)
	return configures(s.Action) && !slices.Contains(row.From, inventory.Allocated)
}

// Check refuses a specification that would be refused for any nodes.
func (s Spec) Check(groups inventory.Groups) error { return s.check(groups, MaxNodes) }

// check validates the specification by itself. nodes is the number of nodes.
func (s Spec) check(groups inventory.Groups, nodes int) error {
	if !slices.Contains(Actions, s.Action) {
		return inventory.Errorf(inventory.KindInvalid, "a rollout cannot carry out %q",
			inventory.Shorten(string(s.Action), 100)).Do("the actions are %s", actionList())
	}

	for _, check := range []func(inventory.Groups, int) error{
		s.checkGroup, s.checkBounds, s.checkOrder, s.checkStrategies, s.checkRun,
	} {
		if err := check(groups, nodes); err != nil {
			return err
		}
	}

	if err := s.Gate.HTTP.check(); err != nil {
		return err
	}

	return s.Gate.Command.check()
}

func actionList() string {
	words := make([]string, len(Actions))
	for i, a := range Actions {
		words[i] = string(a)
	}

	return strings.Join(words, ", ")
}

func (s Spec) checkGroup(groups inventory.Groups, _ int) error {
	row, _ := inventory.TransitionOf(s.Action)

	switch {
	case s.Group == "" && s.joins():
		return inventory.Errorf(inventory.KindInvalid, "a rollout of %s names no group", s.Action).
			Do("name the group that its nodes are to join")
	case s.Group == "":
		return nil
	case !row.Accepts(inventory.FieldGroup):
		return inventory.Errorf(inventory.KindInvalid, "%s takes no group", s.Action).Do("leave it out")
	}

	_, err := groups.Get(s.Group)

	return err
}

func (s Spec) checkBounds(_ inventory.Groups, nodes int) error {
	if _, err := Window(s.MaxUnavailable, nodes); err != nil {
		return err
	}

	switch {
	case s.MaxFailures < 0:
		return inventory.Errorf(inventory.KindInvalid, "max_failures is %d", s.MaxFailures).
			Do("write the number of failed nodes with which further nodes are begun: 0 or more")
	case s.Canary < 0:
		return inventory.Errorf(inventory.KindInvalid, "the canary has %d nodes", s.Canary).
			Do("write the number of nodes that go first: 0 or more")
	case s.Canary > nodes:
		return inventory.
			Errorf(inventory.KindInvalid, "the canary has %d nodes, and the rollout has %d", s.Canary, nodes).
			Do("choose a smaller canary, or more nodes")
	case s.Promote && s.Canary == 0:
		return inventory.Errorf(inventory.KindInvalid, "the rollout is to be promoted after its canary, and has none").
			Do("set the number of nodes that go first (canary)")
	case s.Soak < 0 || s.Soak > maxSoak:
		return inventory.Errorf(inventory.KindInvalid, "the soak time is %s", s.Soak).
			Do("choose one from 0 to %s", maxSoak)
	}

	return nil
}

func (s Spec) checkOrder(inventory.Groups, int) error {
	switch s.Order.By {
	case "", ByName, ByGroup:
		if s.Order.Label != "" {
			return inventory.Errorf(inventory.KindInvalid, "the nodes are ordered by %s, and a label is named",
				cmp.Or(s.Order.By, ByName)).Do("order by label, or leave the label out")
		}

		return nil
	case ByLabel:
		return inventory.CheckLabelKey(s.Order.Label)
	}

	return inventory.Errorf(inventory.KindInvalid, "nodes cannot be ordered by %q",
		inventory.Shorten(string(s.Order.By), 100)).Do("order by name, group or label")
}

func (s Spec) checkStrategies(groups inventory.Groups, nodes int) error {
	for _, group := range slices.Sorted(maps.Keys(s.Strategies)) {
		if _, err := groups.Get(group); err != nil {
			return err
		}

		one := s.Strategies[group]

		_, err := Window(one.MaxUnavailable, nodes)

		switch {
		case err != nil:
			return err
		case one.MaxFailures != nil && *one.MaxFailures < 0:
			return inventory.Errorf(inventory.KindInvalid, "max_failures of group %s is %d", group, *one.MaxFailures).
				Do("write 0 or more")
		case one.Soak != nil && (*one.Soak < 0 || *one.Soak > maxSoak):
			return inventory.Errorf(inventory.KindInvalid, "the soak time of group %s is %s", group, *one.Soak).
				Do("choose one from 0 to %s", maxSoak)
		}
	}

	return nil
}

// checkRun refuses bad options of the jobs.
func (s Spec) checkRun(inventory.Groups, int) error {
	if s.Timeout < 0 {
		return inventory.Errorf(inventory.KindInvalid, "the timeout is negative").Do("write a positive one")
	}

	verb, err := job.VerbOf(s.Action)
	if err != nil {
		return err
	}

	options := inventory.JobOptions{SharedOptions: s.SharedOptions}
	if err := verb.CheckTaken(options); err != nil {
		return err
	}
	return options.CheckOptions()
}

// check refuses an HTTP check that no host could pass, or whose path is invalid.
func (c *HTTPCheck) check() error {
	if c == nil {
		return nil
	}

	// Anything beyond a path could redirect the request to another host.
	u, err := url.ParseRequestURI(cmp.Or(c.Path, "/"))

	switch {
	case c.Port < 1 || c.Port > 65535:
		return inventory.Errorf(inventory.KindInvalid, "the port of the HTTP check is %d", c.Port).
			Do("choose one from 1 to 65535")
	case err != nil || u.Host != "" || u.Scheme != "" || len(c.Path) > maxPath || !strings.HasPrefix(u.Path, "/"):
		return inventory.
			Errorf(inventory.KindInvalid, "the path of the HTTP check is %q", inventory.Shorten(c.Path, 100)).
			Do("write only a path with a query, such as /health?full=1; the host is always the node")
	case c.Status != 0 && (c.Status < 100 || c.Status > 599):
		return inventory.Errorf(inventory.KindInvalid, "the status of the HTTP check is %d", c.Status).
			Do("choose one from 100 to 599, or leave it out for any of 200 to 299")
	case c.Timeout < 0 || c.Timeout > maxCheckTime:
		return inventory.Errorf(inventory.KindInvalid, "the timeout of the HTTP check is %s", c.Timeout).
			Do("choose one from 0 to %s", maxCheckTime)
	}

	return nil
}

// check refuses a command check whose name or timeout is invalid.
func (c *CommandCheck) check() error {
	if c == nil {
		return nil
	}

	if c.Timeout < 0 || c.Timeout > maxCheckTime {
		return inventory.Errorf(inventory.KindInvalid, "the timeout of the command %s is %s",
			inventory.Shorten(c.Name, 100), c.Timeout).Do("choose one from 0 to %s", maxCheckTime)
	}

	return CheckCommandName(c.Name)
}

var commandName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)

// CheckCommandName refuses a name that no command of a gate can have.
func CheckCommandName(name string) error {
	if !commandName.MatchString(name) {
		return inventory.
			Errorf(inventory.KindInvalid, "the name of a command is %q", inventory.Shorten(name, 100)).
			Do("write lower-case letters, digits and dashes, at most 40 characters, and a letter first")
	}

	return nil
}

// UnknownCommand returns the error for a command that is not configured. known are the names
// of those that are.
func UnknownCommand(name string, known []string) error {
	remedy := "the configuration file has none (gate_commands)"
	if len(known) > 0 {
		remedy = "gate_commands in the configuration file has " + job.ShortList(known)
	}
	return inventory.Errorf(inventory.KindInvalid, "there is no command %q for a gate", name).Do("%s", remedy)
}

// Checks reports whether the gate has a check besides the verification.
func (g Gate) Checks() bool { return g.HTTP != nil || g.Command != nil }

// current returns the check in progress, in words, and its timeout.
func (g Gate) current(command bool) (what string, within time.Duration) {
	if command {
		return "command " + g.Command.Name, cmp.Or(g.Command.Timeout, DefaultCheckTime)
	}
	return "HTTP check", cmp.Or(g.HTTP.Timeout, DefaultCheckTime)
}

// URL returns the URL of the check of a host.
func (c *HTTPCheck) URL(addr string) string {
	scheme := "http"
	if c.TLS {
		scheme = "https"
	}

	host := addr
	if strings.Contains(addr, ":") {
		host = "[" + addr + "]"
	}
	return scheme + "://" + host + ":" + strconv.Itoa(c.Port) + cmp.Or(c.Path, "/")
}

// Passes reports whether the status of an answer passes the check.
func (c *HTTPCheck) Passes(status int) bool {
	if c.Status != 0 {
		return status == c.Status
	}
	return status >= 200 && status <= 299
}

var ids = regexp.MustCompile(`^r[0-9a-f]{8}$`)

// NewID returns the id of a new rollout.
func NewID() string {
	var random [4]byte
	_, _ = rand.Read(random[:]) // it never fails
	return "r" + hex.EncodeToString(random[:])
}

// CheckID refuses an id that no rollout can have.
func CheckID(id string) error {
	if !ids.MatchString(id) {
		return inventory.Errorf(inventory.KindNotFound, "%q is not the id of a rollout", inventory.Shorten(id, 100)).
			Do("list the rollouts").With(inventory.ListRollouts())
	}

	return nil
}

// Unknown returns the error for an id without a rollout.
func Unknown(id string) error {
	return inventory.Errorf(inventory.KindNotFound, "there is no rollout %s", id).
		Do("list the rollouts").
		With(inventory.ListRollouts())
}

// Make validates a request and returns its rollout, Planned. The nodes and their order are fixed from
// now on.
func Make(s job.Snapshot, groups inventory.Groups, open []*Record, req Request, now time.Time) (Record, error) {
	if err := job.CheckNames("node", req.Nodes, inventory.CheckName); err != nil {
		return Record{}, err
	}

	if missing := s.Missing(req.Nodes); len(missing) > 0 {
		return Record{}, s.MissingNodes(missing)
	}

	if err := req.Spec.check(groups, len(req.Nodes)); err != nil {
		return Record{}, err
	}

	row, _ := inventory.TransitionOf(req.Action)
	if len(req.Extra) > 0 && !row.Accepts(inventory.FieldExtraVars) {
		return Record{}, inventory.Errorf(inventory.KindInvalid, "%s takes no extra variables", req.Action).
			Do("leave them out")
	}

	if err := configuration.CheckVars(req.Extra); err != nil {
		return Record{}, err
	}

	r := Record{Status: Planned, Spec: req.Spec, Created: now, ExtraNames: slices.Sorted(maps.Keys(req.Extra))}
	r.ExtraNames = r.ExtraNames[:min(len(r.ExtraNames), inventory.MaxExtraNames)]

	// Group and rack are copied: a later change of a label does not reorder the rollout.
	for _, name := range req.Nodes {
		n, _ := s.Lookup(name)
		r.Nodes = append(r.Nodes, r.node(n))
	}

	if err := r.checkTags(groups); err != nil {
		return Record{}, err
	}

	r.Spec.Strategies = r.strategies(groups)

	r.sort()
	r.Estimate = pace(s.Jobs(), r.Spec)

	return r, checkFree(open, r)
}

// checkTags refuses tags that are not enabled for one of the groups: every job there would be refused.
func (r Record) checkTags(groups inventory.Groups) error {
	if !r.Spec.Partial() {
		return nil
	}

	checked := map[string]bool{}

	for _, n := range r.Nodes {
		if checked[n.Group] {
			continue
		}

		checked[n.Group] = true
		if _, err := r.Spec.Selection().Within(n.Group, groups.Selection(n.Group)); err != nil {
			return err
		}
	}

	return nil
}

// Foresee marks the nodes that would be skipped, or would wait for another job, if it were their turn
// now.
func (r Record) Foresee(s job.Snapshot) Record {
	row, _ := inventory.TransitionOf(r.Spec.Action)
	r.Nodes = slices.Clone(r.Nodes)

	for i := range r.Nodes {
		n, known := s.Lookup(r.Nodes[i].Name)

		switch err := row.Check(n); {
		case !known || err == nil:
		case n.Status.InProgress():
			r.Nodes[i].Reason = fmt.Sprintf("it waits while job %s holds it", n.Job)
		default:
			r.Nodes[i].Reason = inventory.Shorten("it would be skipped now: "+job.Message(err), maxText)
		}
	}

	return r
}

// strategies returns the per-group limits of the request, completed by those of the configuration.
func (r Record) strategies(groups inventory.Groups) map[string]Strategy {
	all := maps.Clone(r.Spec.Strategies)
	if all == nil {
		all = map[string]Strategy{}
	}

	for _, g := range groups {
		inGroup := func(n Node) bool { return n.Group == g.Name }
		if g.Strategy == (inventory.Strategy{}) || !slices.ContainsFunc(r.Nodes, inGroup) {
			continue
		}

		// The configuration was checked when it came into force.
		soak, _ := g.Strategy.SoakTime()
		one := all[g.Name]

		all[g.Name] = Strategy{
			MaxUnavailable: cmp.Or(one.MaxUnavailable, string(g.Strategy.MaxUnavailable)),
			MaxFailures:    cmp.Or(one.MaxFailures, g.Strategy.MaxFailures),
			Soak:           cmp.Or(one.Soak, soak),
		}
	}

	if len(all) == 0 {
		return nil
	}

	return all
}

// node returns the entry of a node at the start.
func (r Record) node(n inventory.Node) Node {
	group := n.Group
	if r.Spec.joins() {
		group = r.Spec.Group
	}
	return Node{Name: n.Name, Group: group, Rack: n.Labels[r.Spec.Order.Label], State: Waiting}
}

// sort puts the nodes into the order of the specification.
func (r *Record) sort() {
	slices.SortStableFunc(r.Nodes, func(a, b Node) int {
		by := 0

		switch r.Spec.Order.By {
		case ByGroup:
			by = strings.Compare(a.Group, b.Group)
		case ByLabel:
			by = strings.Compare(a.Rack, b.Rack)
		}

		return cmp.Or(by, strings.Compare(a.Name, b.Name))
	})
}

// TakesNodes reports whether the rollout will begin nodes that it would not have begun before the change.
func (r Record) TakesNodes(before Record) bool {
	for i := range r.Nodes {
		if was := before.Nodes[i].State; r.Nodes[i].State == Waiting && was != Waiting {
			return true
		}
	}

	return false
}

// CheckFree refuses to begin nodes that belong to another open rollout.
func (r Record) CheckFree(list []*Record) error {
	others := slices.DeleteFunc(slices.Clone(list), func(o *Record) bool { return o.ID == r.ID })
	return checkFree(others, r.waiting())
}

// checkFree refuses a rollout if too many are open, or if another open one has not finished one of its
// nodes.
func checkFree(list []*Record, r Record) error {
	open, busy := 0, map[string]*Record{}

	for _, other := range list {
		if other.Status.Ended() {
			continue
		}

		open++

		for k := range other.Nodes {
			if s := other.Nodes[k].State; s == Waiting || s.InProgress() {
				busy[other.Nodes[k].Name] = other
			}
		}
	}

	if open >= MaxOpen {
		return inventory.Errorf(inventory.KindRefused, "%d rollouts have not ended, which is the limit", open).
			Do("wait for some, or abort some")
	}

	for i := range r.Nodes {
		if other := busy[r.Nodes[i].Name]; other != nil {
			return other.refuseNode(r.Nodes[i].Name)
		}
	}

	return nil
}

// refuseNode returns the error for a node that an unfinished rollout holds, with how that one ends: by
// itself, or by an operator.
func (r Record) refuseNode(name string) error {
	remedy, actions := "wait for it, or abort it", []inventory.Action{inventory.ShowRollout(r.ID)}

	switch r.Status {
	case Paused, Stopped:
		remedy, actions = "resume it, or abort it", []inventory.Action{inventory.ResumeRollout(r.ID)}
	case AwaitingPromotion:
		remedy, actions = "promote it, or abort it", []inventory.Action{inventory.PromoteRollout(r.ID)}
	case AwaitingApproval:
		remedy, actions = "let another person approve it, or abort it", []inventory.Action{
			inventory.ApproveRollout(r.ID),
		}
	}

	status := "has not ended"
	if !r.Status.moves() {
		status = fmt.Sprintf("is %s and does not end by itself", r.Status)
	}
	return inventory.Errorf(inventory.KindRefused, "%s is to be changed by rollout %s, which %s", name, r.ID, status).
		Do("%s", remedy).With(append(actions, inventory.AbortRollout(r.ID))...).About(name)
}

// RequestOf returns the request for the job of a node. extra are the extra variables of the
// rollout.
func (r Record) RequestOf(b Begin, extra configuration.Vars) job.Request {
	i := slices.IndexFunc(r.Nodes, func(n Node) bool { return n.Name == b.Node })
	if i < 0 {
		return job.Request{}
	}

	reason := fmt.Sprintf("rollout %s of %s", r.ID, job.OrSomebody(r.Actor))
	if r.Spec.Reason != "" {
		reason += ": " + r.Spec.Reason
	}

	req := job.Request{
		Verb: r.Spec.Action, Nodes: []string{b.Node}, Group: r.Spec.Group, Extra: extra,
		JobOptions: inventory.JobOptions{SharedOptions: r.Spec.SharedOptions}, Timeout: r.Spec.Timeout,
	}
	if b.Gate {
		req.Verb, req.Group, req.Extra = inventory.VerbVerify, "", nil
	}

	// A verification does not accept all options of the action.
	row, _ := inventory.TransitionOf(req.Verb)
	req.JobOptions = req.For(row)
	req.Reason = inventory.Shorten(reason, maxJobReason)

	// An undo returns each node to its own former group.
	if r.UndoOf != "" && row.Accepts(inventory.FieldGroup) {
		req.Group = r.Nodes[i].Group
	}

	return req
}

// maxJobReason bounds the reason of a job, in bytes.
const maxJobReason = 900

// PlaybooksOf returns the digest of the playbooks of the job of a node.
func (r Record) PlaybooksOf(node string) string {
	i := slices.IndexFunc(r.Nodes, func(n Node) bool { return n.Name == node })
	if i < 0 {
		return r.Playbooks
	}
	return cmp.Or(r.Nodes[i].Playbooks, r.Playbooks)
}

// InUse returns the digests of the playbooks that the rollout, or its undo, may need, sorted.
func (r Record) InUse() []string {
	kept := map[string]bool{r.Playbooks: true}
	for i := range r.Nodes {
		kept[r.Nodes[i].Playbooks], kept[r.Nodes[i].Former] = true, true
	}

	delete(kept, "")

	return slices.Sorted(maps.Keys(kept))
}

// Expired returns the ids of the rollouts to remove: the oldest ended ones beyond MaxKept. list is
// sorted, the oldest first.
func Expired(list []*Record) []string {
	var ids []string

	excess := len(list) - MaxKept
	for _, r := range list {
		if len(ids) < excess && r.Status.Ended() {
			ids = append(ids, r.ID)
		}
	}

	return ids
}
