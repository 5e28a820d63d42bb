// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/follow"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// flagWaitTimeout is the option that bounds the wait for a job.
const flagWaitTimeout = "wait-timeout"

// waitTimeout returns the value of --wait-timeout, or 0 without the option.
func (c *call) waitTimeout() (time.Duration, error) {
	d, err := c.duration(flagWaitTimeout)

	switch {
	case err != nil:
		return 0, err
	case c.IsSet(flagWaitTimeout) && d <= 0:
		return 0, exit.Usagef("--%s needs a time, not %s", flagWaitTimeout, c.String(flagWaitTimeout)).
			Try("write it like 90s, 15m or 1h30m; to wait not at all, use --no-wait")
	case d > 0 && c.Bool("no-wait"):
		return 0, exit.Usagef("--%s and --no-wait exclude each other", flagWaitTimeout).Try("drop one of them")
	}

	return time.Duration(d), nil
}

// accepted continues after a request for a job: it waits for the job, or prints
// its id with --no-wait.
func (c *call) accepted(ctx context.Context, j api.Job, err error) error {
	if errors.Is(err, context.Canceled) {
		// The request may have arrived before the connection closed.
		return exit.Errorf(exit.Interrupted, "interrupted before the manager answered; it may have accepted the job").
			Try("see: %s job list", c.self())
	}

	if err != nil {
		return err
	}

	for _, w := range j.Warnings {
		c.say("warning: %s", w)
	}

	for _, d := range j.Differences {
		c.say("differs from job %s: %s", j.RetryOf, d)
	}

	if c.Bool("no-wait") {
		if c.format == print.FormatTable {
			c.format = print.FormatName
		}
		return c.showJob(j)
	}

	c.say("job %s: %s", j.ID, print.Title(j))

	if j.Note != "" {
		c.say("job %s: %s", j.ID, j.Note)
	}

	return c.wait(ctx, j)
}

// errWaited is the cancellation cause after --wait-timeout.
var errWaited = errors.New("the time to wait is over")

// waits returns a context that ends after --wait-timeout, with errWaited; limit is 0 without that.
func (c *call) waits(ctx context.Context) (
	bounded context.Context, limit time.Duration, cancel context.CancelFunc, err error,
) {
	if limit, err = c.waitTimeout(); err != nil || limit == 0 {
		return ctx, limit, func() {}, err
	}

	bounded, cancel = context.WithTimeoutCause(ctx, limit, errWaited)

	return bounded, limit, cancel, nil
}

// wait follows a job and prints its result. If ctx is cancelled, or after --wait-timeout, it
// detaches.
func (c *call) wait(ctx context.Context, j api.Job) error {
	bounded, limit, cancel, err := c.waits(ctx)
	if err != nil {
		return err
	}
	defer cancel()

	end, err := c.follow(bounded, j)

	switch {
	case err != nil && ctx.Err() == nil && errors.Is(context.Cause(bounded), errWaited):
		return exit.Errorf(exit.Failed, "after %s, job %s has not ended; it continues",
			inventory.ShortDuration(limit), j.ID).
			Try("to see what it waits for: %[1]s job get %[2]s\nto follow it: %[1]s job wait %[2]s\nto cancel it: "+
				"%[1]s job cancel %[2]s", c.self(), j.ID)
	case err != nil && ctx.Err() != nil:
		return exit.Errorf(exit.Interrupted, "detached; job %s continues", j.ID).
			Try("to follow it: %[1]s job wait %[2]s\nto cancel it: %[1]s job cancel %[2]s", c.self(), j.ID)
	case err != nil && exit.Code(err) == exit.Unreachable:
		message, remedy := exit.Explain(c.self(), err)

		return exit.Errorf(exit.Unreachable, "%s; job %s may still be running", message, j.ID).
			Try("%s\nto follow it again: %s job wait %s", remedy, c.self(), j.ID)
	case err != nil:
		return err
	}

	if end.Note != j.Note {
		c.say("job %s: %s", end.ID, end.Note)
	}

	return c.showResult(end)
}

// follow shows the progress of a job until its end, and returns its last record.
func (c *call) follow(ctx context.Context, j api.Job) (api.Job, error) {
	if j.Status.Ended() {
		return j, nil
	}

	// The job itself is awaited without patience, so that outages are visible.
	m, err := c.dial(impatient)
	if err != nil {
		return j, err
	}

	s := follow.NewScreen(c.Stderr, j, c.errTTY && !isDumb(), c.errPaint())
	defer s.Close()

	return follow.Job(ctx, follow.Clients{Impatient: m, Patient: c.manager}, j, s)
}

// showResult prints how a job ended. A job that failed is an error.
func (c *call) showResult(j api.Job) error {
	var err error
	// A table has the result per host only; other formats have the whole record.
	switch {
	case c.answered:
	case c.format == print.FormatTable:
		err = c.show(print.Answer{Table: func(p *print.Printer) { p.Summary(j) }})
	default:
		err = c.showJob(j)
	}

	if err != nil {
		return err
	}

	after := ""
	if t := print.Elapsed(j.Started, j.Ended); t != "" {
		after = " after " + t
	}

	if j.Status == api.Complete {
		c.say("job %s is %s%s", j.ID, j.Status, after)

		switch {
		case j.Message == "":
		case j.Check, j.Verb.Verifies(): // the sentence is the result
			c.say("%s", print.JobMessage(j))
		default:
			c.say("warning: %s", print.JobMessage(j))
			c.say("to see the cause and a remedy: %s job why %s", c.self(), j.ID)
		}

		if slices.ContainsFunc(j.Hosts, leavesResidue) {
			return &exit.Error{Code: exit.Residue} // the warning has the reason
		}

		return nil
	}

	// Without a message, the cause is the next best explanation.
	message := print.JobMessage(j)
	if message == "" {
		message = print.Line(j.Cause)
	}
	if message != "" {
		message = ": " + message
	}

	failed := exit.Errorf(exit.JobFailed, "job %s (%s) is %s%s%s", j.ID, j.Verb, j.Status, after, message)
	if commands := c.differencesOf(j); commands != "" {
		return failed.Try("%s", commands)
	}

	// A job that never ran has no output.
	if len(j.Runs) == 0 && j.LogBytes == 0 {
		return failed.Try("to see the cause and a remedy: %s job why %s", c.self(), j.ID)
	}

	return failed.Try(
		"to see the cause and a remedy: %[1]s job why %[2]s\nto read the output:            %[1]s job logs %[2]s%[3]s",
		c.self(), j.ID, c.goOn(j),
	)
}

// goOn returns the line with the command for the nodes whose batch did not begin, or "". A retry of all that
// the job left begins with the nodes that failed.
func (c *call) goOn(j api.Job) string {
	var rest []string

	for _, h := range j.Hosts {
		if strings.HasPrefix(h.Error, "not begun: ") {
			rest = append(rest, h.Host)
		}
	}

	if len(rest) == 0 {
		return ""
	}

	a := inventory.RetryJob(j.ID, false).On(rest...)
	a.Confirmed = c.Bool("yes")

	return "\nto go on with what was not begun: " + strings.Join(api.CommandsOf(c.self(), []inventory.Action{a}), "")
}

// leavesResidue reports whether the node is out of service, and not cleaned.
func leavesResidue(h api.HostSummary) bool { return h.Status == inventory.Decommissioned && !h.OK }

// differencesOf returns the commands that show what a verification found, for the first
// few nodes that drifted.
func (c *call) differencesOf(j api.Job) string {
	const most = 3

	if j.Cause != api.CauseDrifted {
		return ""
	}

	var commands []string
	for _, h := range j.Hosts {
		if strings.HasPrefix(h.Error, string(inventory.Drifted)) && len(commands) < most {
			commands = append(commands, fmt.Sprintf("to see the differences: %s nodes diff %s", c.self(), h.Host))
		}
	}

	return strings.Join(commands, "\n")
}
