// SPDX-License-Identifier: Apache-2.0

package program

import (
	"cmp"
	"context"
	"io"
	"os"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/configuration/ansible"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/step/playbook"
)

// run implements playbook.Run with a run of Ansible.
type run struct {
	*ansible.Run

	counts counts
}

// Wait blocks until the run has ended and no process of it is left.
func (r run) Wait(ctx context.Context) (playbook.RunExit, error) {
	r.counts.processes.WithLabelValues().Inc()
	defer r.counts.processes.WithLabelValues().Dec()

	exit, err := r.Run.Wait(ctx)
	if err != nil {
		return playbook.RunExit{}, err
	}
	out := runExit(exit, r.Output())
	out.Incomplete = out.Incomplete || exit.Reason != ansible.Done && r.Truncated(r.Events())
	r.counts.ended(out, r.Truncated(r.Output()), r.Truncated(r.Events()))

	return out, nil
}

// runExit converts the end of a run; output is the path of its text.
func runExit(exit ansible.Exit, output string) playbook.RunExit {
	out := playbook.RunExit{Code: exit.Code, Incomplete: exit.Error != "" && !exit.Reason.NotExecuted()}

	switch exit.Reason {
	case ansible.Done:
		if exit.Signal != "" {
			out.Cause, out.Message = job.CauseInterrupted, "ansible-playbook was ended by "+exit.Signal
		} else if exit.Code != 0 {
			out.Message = lastError(output)
		}
	case ansible.Cancelled:
		out.Cause = job.CauseCancelled
	case ansible.DeadlineExceeded:
		out.Cause, out.Message = job.CauseDeadline, "it ran longer than it may"
	case ansible.LeaseLost:
		out.Cause, out.Lost, out.Incomplete = job.CauseInterrupted, true, true
		out.Message = "clusterm did not renew the lease of its runner within jobs.runner_lease, so the runner ended it"
	case ansible.GivenUp:
		out.NotBegun = true
		out.Cause, out.Message = job.CauseInterrupted, exit.Error
	case ansible.NotStarted:
		out.NotBegun = true
		out.Cause, out.Message = job.CauseInternal, "ansible-playbook could not be run: "+exit.Error
	default:
		// Vanished, or a record of another version: anything may have happened.
		const gone = "its runner is gone: it was killed, or the machine went down"
		out.Cause, out.Message, out.Incomplete = job.CauseInterrupted, cmp.Or(exit.Error, gone), true
	}

	return out
}

// lastError returns the last error line of ansible-playbook itself in the output
// file, e.g. about a missing vault password, or "" if there is none. Lines that
// hosts printed do not count.
func lastError(output string) string {
	const (
		tailSize = 8 << 10 // bytes of the output to search
		maxLine  = 400     // bytes of the line to return
	)

	f, err := os.Open(output)
	if err != nil {
		return ""
	}
	defer f.Close()

	// The error is at the end; the output may be large.
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	text, err := io.ReadAll(io.NewSectionReader(f, max(end-tailSize, 0), tailSize))
	if err != nil {
		return ""
	}

	last := ""
	for line := range strings.Lines(string(text)) {
		// The second form is that of ansible-core 2.19 and later.
		if strings.HasPrefix(line, "ERROR! ") || strings.HasPrefix(line, "[ERROR]: ") {
			line = strings.TrimSpace(line)
			last = strings.ToValidUTF8(line[:min(len(line), maxLine)], "")
		}
	}

	return last
}

// Cancel asks the runner to end all its processes.
func (r run) Cancel(ctx context.Context) error {
	r.counts.cancellations.WithLabelValues().Inc()
	return r.Run.Cancel(ctx)
}

// Tail emits the stream from the offset on, until the run has ended and
// everything is emitted.
func (r run) Tail(ctx context.Context, s job.Stream, offset int64, emit func([]byte) error) error {
	path := r.Output()
	if s == job.StreamEvents {
		path = r.Events()
	}

	_, err := r.Follow(ctx, path, offset, func(_ int64, chunk []byte) error {
		r.counts.emitted(s, chunk)
		return emit(chunk)
	})

	return err
}

// Results returns the result on each host, after the end.
func (r run) Results() (map[string]job.HostResult, error) {
	var sum configuration.Summary
	var stream configuration.EventStream

	add := func(_ int64, chunk []byte) error {
		for _, e := range stream.Write(chunk) {
			sum.Add(e)
		}

		return nil
	}
	// The run has ended, so do not wait for more events.
	ended := func() bool { return true }
	_, err := ansible.Tail(context.Background(), r.Events(), 0, ended, add)

	out := map[string]job.HostResult{}
	for host, h := range sum.Results() {
		out[host] = job.HostResult{
			Begun: h.Begun, OK: h.OK, Changed: h.Changed, Failed: h.Failed, Unreachable: h.Unreachable > 0,
			Task: h.Task, Message: h.Message, Done: h.Good(), Selected: h.Selected, Executed: h.Executed,
			Foreseen: h.Foreseen, Unjudged: h.Unjudged, Judged: h.Judged, Doubt: h.Doubt, Ignored: h.Ignored,
		}
	}

	return out, err
}

// HostKeys returns the ssh host keys recorded at a first contact.
func (r run) HostKeys() (map[string][]string, error) { return ansible.NewHostKeys(r.Dir()) }
