// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

var rollouts = noun[api.Rollout]{
	columns: print.RolloutColumns, name: func(r api.Rollout) string { return r.ID }, empty: "no rollouts found",
	all: every((*client.Client).ListRollouts),
}

// rolloutIDs completes rollouts, newest first.
var rolloutIDs = rollouts.offer(func(r api.Rollout) candidate {
	return candidate{r.ID, string(r.Spec.Action) + ": " + print.RolloutLine(r)}
})

func rolloutRows() rows {
	return rows{
		"rollout list": rollouts.list(leaf{}),
		"rollout show": {complete: rolloutIDs, run: rolloutShow},
		"rollout start": {
			max: -1, complete: actionThenNodes, run: startRollout,
			flags: append(flagsAt("rollout start"),
				optionFlags(func(o inventory.JobOption) bool { return o.Shared })...),
		},
		"rollout pause":   rolloutAct[api.RolloutControl](api.PathPauseRollout),
		"rollout undo":    rolloutAct[api.RolloutControl](api.PathUndoRollout, confirmUndo),
		"rollout promote": rolloutAct[api.RolloutControl](api.PathPromoteRollout),
		"rollout approve": rolloutAct[api.RolloutControl](api.PathApproveRollout),
		"rollout resume":  rolloutAct[api.RolloutResume](api.PathResumeRollout),
		"rollout abort":   rolloutAct[api.RolloutAbort](api.PathAbortRollout),
		"rollout retry":   rolloutAct[api.RolloutRetry](api.PathRetryRollout),
	}
}

// rolloutAct is a command that changes a rollout, by a request of type B to the path. It begins with first.
func rolloutAct[B any](path string, first ...func(ctx context.Context, c *call) error) leaf {
	return leaf{complete: rolloutIDs, run: func(ctx context.Context, c *call) error {
		for _, f := range first {
			if err := f(ctx, c); err != nil {
				return err
			}
		}

		var body B
		if err := c.fill(&body); err != nil {
			return err
		}

		r, err := c.manager.ControlRollout(ctx, path, body, c.args[0])
		if err != nil {
			return err
		}

		return c.announce(r)
	}}
}

// confirmUndo asks before a rollout is taken back.
func confirmUndo(ctx context.Context, c *call) error {
	r, err := c.manager.Rollout(ctx, c.args[0])
	if err != nil {
		return err
	}

	// Only nodes that were done are taken back.
	question := fmt.Sprintf("take rollout %s back on %s", r.ID, inventory.Count(r.Count.Done, "node", "nodes"))

	return c.approve(ctx, question, exit.Usagef("rollout undo needs a confirmation, which takes a terminal").
		Try("to confirm it here: add --yes"))
}

// announce prints the state of a rollout that was changed.
func (c *call) announce(r api.Rollout) error {
	if c.forPeople() {
		c.say("rollout %s is %s", r.ID, print.RolloutLine(r))
		c.sayNext(r)
		return nil
	}

	return c.showRollout(r, nil)
}

// showRollout prints a rollout, unless the request failed.
func (c *call) showRollout(r api.Rollout, err error) error {
	if err != nil {
		return err
	}

	err = view(c, (*print.Printer).Rollout, rollouts.name)(r, nil)
	if err == nil && c.forPeople() {
		c.sayNext(r)
	}

	return err
}

func rolloutShow(ctx context.Context, c *call) error {
	if err := c.resolveRollout(ctx); err != nil {
		return err
	}

	switch {
	case c.Bool("events") && c.format == print.FormatName:
		return exit.Usagef("events have no names").Try("leave out -o name")
	case c.Bool("events"):
		return rolloutEvents(ctx, c)
	case c.IsSet("limit"):
		return exit.Usagef("--limit is a number of events").Try("add --events, or leave out --limit")
	case c.Bool("follow") && c.format != print.FormatTable:
		return exit.Usagef("--follow prints one line per change, which -o %s cannot do", c.format).
			Try("leave out -o, or add --events for -o json")
	case c.Bool("follow"):
		return c.followRollout(ctx, c.args[0])
	}

	return c.showRollout(c.manager.Rollout(ctx, c.args[0]))
}

// resolveRollout replaces "last", or a missing argument, by the id of the newest rollout.
func (c *call) resolveRollout(ctx context.Context) error {
	if len(c.args) > 0 && c.args[0] != jobLast {
		return nil
	}

	all, err := c.manager.ListRollouts(ctx)
	if err != nil {
		return err
	}
	if len(all.Items) == 0 {
		return exit.Errorf(exit.NotFound, "there are no rollouts yet").Try("to start one: %s rollout start", c.self())
	}

	c.args = []string{all.Items[0].ID}

	return nil
}

// stopped is the status of a rollout with too many failures.
const stopped = "Stopped"

// followRollout prints each change of a rollout until it has ended, or has stopped.
func (c *call) followRollout(ctx context.Context, id string) error {
	last, states := "", map[string]string{}

	// A manager that cannot be reached at all is an error at once, and not waited for.
	if _, err := c.manager.Rollout(ctx, id); err != nil {
		return err
	}

	r, err := c.manager.WatchRollout(ctx, id, func(r api.Rollout) bool {
		c.sayNodes(states, r)

		if line := print.RolloutLine(r); line != last {
			last = line
			c.say("%s  %s", time.Now().Format(time.TimeOnly), line)
			c.sayNext(r)
		}

		// A stopped rollout waits for a person, and may never end by itself.
		return r.Status != stopped
	})

	switch {
	case err != nil && ctx.Err() != nil:
		return exit.Errorf(exit.Interrupted, "detached; the rollout %s goes on", id).
			Try("to follow it again: %s rollout show -f %s", c.self(), id)
	case err != nil:
		return err
	case r.Status == "Done" && r.Count.Done == r.Count.Total:
		return nil
	}

	return exit.Errorf(exit.JobFailed, "the rollout %s is %s", id, print.RolloutLine(r)).
		Try("to see each node: %s rollout show %s", c.self(), id)
}

// goesOnBy has the commands of each status of a rollout that waits for a person, or has failed, with their effect.
var goesOnBy = map[api.RolloutStatus][]struct{ effect, act string }{
	"AwaitingApproval":  {{"to let it go on", "approve"}},
	"AwaitingPromotion": {{"to let it go on", "promote"}},
	"Paused":            {{"to let it go on", "resume"}},
	stopped: {
		{"without the nodes that failed", "resume"},
		{"to give it up", "abort"},
	},
	"Failed":  {{takesBack, "undo"}},
	"Aborted": {{takesBack, "undo"}},
}

const takesBack = "to take the changed nodes back"

// sayNext prints the commands with which a rollout goes on that waits for a person, and which end it.
func (c *call) sayNext(r api.Rollout) {
	for i, a := range api.RestoreActions(r.Actions) {
		when := "once the cause is corrected"

		switch {
		case a.Name == inventory.ActionSyncRepo:
			when = "if it was in the playbooks, once that is committed"
		case a.Playbooks == inventory.PlaybooksCurrent:
			when = "with the corrected playbooks"
		case i > 0:
			when = "with the playbooks of its start"
		}

		for _, line := range api.CommandsOf(c.self(), []inventory.Action{a}) {
			c.say("%s: %s", when, line)
		}
	}

	row, _ := inventory.TransitionOf(r.Spec.Action)
	hasUndo := row.Undo != "" && r.UndoOf == "" && r.Count.Done+r.Count.Failed > 0

	for _, way := range goesOnBy[r.Status] {
		if way.act == "undo" && !hasUndo {
			continue
		}

		c.say("%s: %s rollout %s %s", way.effect, c.self(), way.act, r.ID)
	}
}

// sayNodes prints the nodes with a changed state. states is by the name of the node.
func (c *call) sayNodes(states map[string]string, r api.Rollout) {
	first := len(states) == 0

	for _, n := range r.Nodes {
		was := states[n.Name]
		states[n.Name] = n.State

		// The first answer shows the state so far, which is no change.
		if first || was == n.State {
			continue
		}

		text := n.Name + " is " + n.State
		if n.Job != "" {
			text += ", job " + n.Job
		}
		if n.Reason != "" {
			text += ": " + n.Reason
		}

		c.say("%s  %s", time.Now().Format(time.TimeOnly), print.Line(text))
	}
}

// startRollout shows the plan of a rollout, and starts it once that is confirmed.
func startRollout(ctx context.Context, c *call) error {
	action, err := c.takeAction(ctx)
	if err != nil {
		return err
	}
	request, err := c.rolloutRequest(ctx, action)
	if err != nil {
		return err
	}
	preview, err := c.manager.PreviewRollout(ctx, request)
	if err != nil {
		return err
	}

	// The confirmed nodes are the ones that start, even if the selector matches others by then.
	request.Nodes = nil
	for _, n := range preview.Nodes {
		request.Nodes = append(request.Nodes, n.Name)
	}

	if c.Bool("plan") || c.forPeople() {
		if err := c.showRollout(preview, nil); err != nil {
			return err
		}
	}

	for _, w := range preview.Warnings {
		c.say("warning: %s", w)
	}

	if c.Bool("plan") {
		c.say("nothing was changed")
		return nil
	}

	question := api.VerbWords(request.Spec.Action) + " " + inventory.Count(preview.Count.Total, "node", "nodes")

	err = c.approve(ctx, question, exit.Usagef("a rollout needs a confirmation, which takes a terminal").
		Try("to confirm it here: add --yes"))
	if err != nil {
		return err
	}

	r, err := c.manager.StartRollout(ctx, request)
	if err != nil {
		return err
	}
	if !c.forPeople() {
		return c.showRollout(r, nil)
	}

	c.say("rollout %s is %s; to follow it: %s rollout show -f %s", r.ID, r.Status, c.self(), r.ID)

	return nil
}

// takeAction returns the action of a rollout: that of --action, or else the first word. It leaves the names of nodes
// in c.args, whole.
func (c *call) takeAction(ctx context.Context) (inventory.Verb, error) {
	action := inventory.Verb(c.String("action"))

	if !c.IsSet("action") {
		if len(c.args) > 0 {
			action = inventory.Verb(c.args[0])
		}

		if row, known := inventory.TransitionOf(action); !known || !takesNodes(row) {
			return "", exit.Usagef("rollout start needs an action").
				Try("begin with it: clusterctl rollout start apply NAME…; see: %s --help", c.FullName())
		}

		c.args = c.args[1:]
	}

	if c.IsSet("selector") {
		if err := c.checkSelector(); err != nil {
			return "", err
		}
	}

	var err error
	c.args, err = c.expand(ctx, c.args)

	return action, err
}

// rolloutRequest returns the request that the command line describes.
func (c *call) rolloutRequest(ctx context.Context, action inventory.Verb) (r api.RolloutRequest, err error) {
	if c.hasSelector() == (len(c.args) > 0) {
		return r, exit.Usagef("a rollout needs the names of its nodes, or a selector, and not both").
			Try("give names, or -l SELECTOR")
	}

	options, err := c.jobOptions()
	if err != nil {
		return r, err
	}

	r.Nodes = c.args
	r.Spec = api.RolloutSpec{Action: action, Group: c.String("host-group"), SharedOptions: options.SharedOptions}

	if err := c.fill(&r.Spec); err != nil {
		return r, err
	}

	if c.Bool("clean") {
		clean, ok := cleanVerb(r.Spec.Action)
		if !ok {
			return r, exit.Usagef("--clean belongs to the action apply").Try("leave out --clean")
		}
		r.Spec.Action = clean
	}

	if c.IsSet("max-unavailable") && r.Spec.MaxUnavailable == "" {
		return r, exit.Usagef("--max-unavailable is empty").Try("give a number such as 2, or a share such as 10%%")
	}

	if r.Spec.Order, err = orderFrom(c.String("order")); err != nil {
		return r, err
	}

	if r.Spec.Strategies, err = strategiesFrom(c.StringSlice("strategy")); err != nil {
		return r, err
	}

	if r.Spec.Gate, err = c.gate(); err != nil {
		return r, err
	}

	vars, err := c.extraVars(ctx)
	if err != nil {
		return r, err
	}
	r.ExtraVars, err = raw(vars)

	return r, err
}

// duration returns the value of an option, or 0 without it.
func (c *call) duration(flag string) (api.Duration, error) {
	if !c.IsSet(flag) {
		return 0, nil
	}
	return durationFrom("--"+flag, c.String(flag))
}

// durationFrom parses a duration of a command line.
func durationFrom(what, text string) (d api.Duration, err error) {
	if err := d.UnmarshalText([]byte(text)); err != nil {
		return 0, exit.Usagef("%s: %q is not a duration", what, text).Try("write it like 90s, 15m or 1h30m")
	}
	return d, nil
}

// orderFrom parses an order; "" is none.
func orderFrom(text string) (*api.RolloutOrder, error) {
	by, label, _ := strings.Cut(text, ":")

	switch {
	case text == "":
		return nil, nil //nolint:nilnil // the default
	case by == "label" && label != "", (by == "name" || by == "group") && by == text:
		return &api.RolloutOrder{By: by, Label: label}, nil
	}

	return nil, exit.Usagef("--order: %q is no order", text).Try("write name, group or label:KEY such as label:rack")
}

// strategiesFrom parses the bounds of groups.
func strategiesFrom(texts []string) (map[string]api.RolloutStrategy, error) {
	if len(texts) == 0 {
		return nil, nil //nolint:nilnil // none
	}

	out := map[string]api.RolloutStrategy{}

	for _, text := range texts {
		group, bounds, ok := strings.Cut(text, ":")
		if _, twice := out[group]; !ok || group == "" || twice {
			return nil, errStrategy(text)
		}
		one, err := strategyFrom(text, bounds)
		if err != nil {
			return nil, err
		}
		out[group] = one
	}

	return out, nil
}

func errStrategy(text string) error {
	return exit.Usagef("--strategy: %q is no strategy", text).
		Try("write one for each group, such as 'service-worker:max-unavailable=2;max-failures=1;soak=5m'")
}

// strategyFrom parses the bounds of one group.
func strategyFrom(text, bounds string) (one api.RolloutStrategy, err error) {
	for bound := range strings.SplitSeq(bounds, ";") {
		key, value, _ := strings.Cut(bound, "=")

		switch key {
		case "max-unavailable":
			one.MaxUnavailable = value
		case "max-failures":
			n, err := strconv.Atoi(value)
			if err != nil {
				return one, errStrategy(text)
			}
			one.MaxFailures = &n
		case "soak":
			d, err := durationFrom("--strategy: soak", value)
			if err != nil {
				return one, err
			}
			one.Soak = &d
		default:
			return one, errStrategy(text)
		}
	}

	return one, nil
}

// gate returns the checks that a node passes after its job; nil: the usual ones.
func (c *call) gate() (*api.RolloutGate, error) {
	for _, of := range []struct{ timeout, check string }{
		{"http-timeout", "http-check"}, {"command-timeout", "check-command"},
	} {
		if c.IsSet(of.timeout) && !c.IsSet(of.check) {
			return nil, exit.Usagef("--%s needs --%s, the check whose time it is", of.timeout, of.check).
				Try("add --%s, or leave out --%s", of.check, of.timeout)
		}
	}

	if !c.Bool("no-verify") && !c.IsSet("http-check") && !c.IsSet("check-command") {
		return nil, nil //nolint:nilnil // the default
	}

	var err error

	g := &api.RolloutGate{SkipVerify: c.Bool("no-verify")}
	if g.HTTP, err = c.httpCheck(); err != nil || !c.IsSet("check-command") {
		return g, err
	}

	timeout, err := c.duration("command-timeout")
	g.Command = &api.RolloutCommand{Name: c.String("check-command"), Timeout: timeout}

	return g, err
}

// httpCheck returns the HTTP check of a gate; nil: none.
func (c *call) httpCheck() (*api.RolloutHTTPCheck, error) {
	if !c.IsSet("http-check") {
		return nil, nil //nolint:nilnil // there is none
	}

	text := c.String("http-check")
	u, err := url.Parse(text)

	wrong := func() error {
		return exit.Usagef("--http-check: %q is no URL without a host", text).
			Try("write one such as http://:8080/health: the host is each node")
	}

	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() != "" || u.User != nil {
		return nil, wrong()
	}

	port, err := strconv.Atoi(u.Port())
	if err != nil {
		return nil, wrong()
	}

	timeout, err := c.duration("http-timeout")

	return &api.RolloutHTTPCheck{TLS: u.Scheme == "https", Port: port, Path: u.RequestURI(), Timeout: timeout}, err
}

func rolloutEvents(ctx context.Context, c *call) error {
	limit, err := number(c, "limit", 1)
	if err != nil {
		return err
	}

	// A manager that cannot be reached at all is an error at once, and not waited for.
	r, err := c.manager.Rollout(ctx, c.args[0])
	if err != nil {
		return err
	}

	// The manager lists the newest first.
	slices.Reverse(r.Events)

	if limit > 0 {
		r.Events = r.Events[max(0, len(r.Events)-limit):]
	}

	if c.Bool("follow") {
		return c.followEvents(ctx, r)
	}

	return noun[api.RolloutEvent]{
		columns: print.RolloutEventColumns, long: print.RolloutEventDetails.Blocks,
		empty: "rollout " + r.ID + " has no events",
		all: func(context.Context, *call) (listing[api.RolloutEvent], error) {
			return listingOf(api.List[api.RolloutEvent]{Items: r.Events}, nil)
		},
	}.showAll(ctx, c)
}

// followEvents prints the events of the rollout, and each new one until it has ended.
func (c *call) followEvents(ctx context.Context, r api.Rollout) error {
	if c.format != print.FormatTable && c.format != print.FormatJSON {
		return exit.Usagef("--follow prints one event per line, which -o %s cannot do", c.format).
			Try("leave out -o, or use -o json")
	}

	if err := c.printEvents(r.Events); err != nil || r.Status.Ended() {
		return err
	}

	var failed error

	// A watch shows the whole rollout each time.
	shown := r.Events
	_, err := c.manager.WatchRollout(ctx, r.ID, func(now api.Rollout) bool {
		slices.Reverse(now.Events)
		failed = c.printEvents(newEvents(shown, now.Events))
		shown = now.Events
		return failed == nil
	})

	switch {
	case failed != nil:
		return failed
	case err != nil && ctx.Err() != nil:
		return exit.Errorf(exit.Interrupted, "detached; the rollout %s goes on", r.ID).
			Try("to follow it again: %s rollout show --events -f %s", c.self(), r.ID)
	}

	return err
}

// newEvents returns the events after the last of those that were shown. The manager drops the
// oldest.
func newEvents(shown, now []api.RolloutEvent) []api.RolloutEvent {
	if len(shown) == 0 {
		return now
	}

	last := shown[len(shown)-1]
	same := func(e api.RolloutEvent) bool {
		return e.Time.Equal(last.Time) && e.Kind == last.Kind && e.Node == last.Node && e.Text == last.Text
	}

	return now[slices.IndexFunc(now, same)+1:]
}

// printEvents prints events, one per line.
func (c *call) printEvents(events []api.RolloutEvent) error {
	for _, e := range events {
		line := []byte(print.RolloutEventLine(e))

		if c.format == print.FormatJSON {
			var err error
			if line, err = json.Marshal(e); err != nil {
				return err
			}
		}

		if err := c.write(append(line, '\n')); err != nil {
			return err
		}
	}

	return nil
}
