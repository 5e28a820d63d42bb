// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
)

// The kinds of event that a screen shows.
const (
	eventPlaybook    = "playbook"
	eventPlay        = "play"
	eventTask        = "task"
	eventOK          = "ok"
	eventFailed      = "failed"
	eventUnreachable = "unreachable"
	eventSkipped     = "skipped"
	eventRetry       = "retry"
)

// tracker is the progress of a job, derived from its record and its events. The
// screen guards it with a lock.
type tracker struct {
	job   api.Job
	task  string  // the running task
	hosts []*host // in the order of the job, then helpers in order of appearance
	width int     // of the longest host name
}

// host is the progress of one host.
type host struct {
	name        string
	ok, changed int
	foreseen    int    // tasks that would change the host, in a check
	task        string // the running task, or the last one
	failure     string // empty unless the host failed in the current run
	finished    bool   // with the running task
}

func newTracker(j api.Job) *tracker {
	t := &tracker{job: j}
	for _, name := range slices.Concat(j.Nodes, j.Addrs) {
		t.host(name)
	}

	return t
}

func (t *tracker) host(name string) *host {
	for _, h := range t.hosts {
		if h.name == name {
			return h
		}
	}

	h := &host{name: name}
	t.hosts = append(t.hosts, h)
	t.width = max(t.width, runewidth.StringWidth(print.Line(name)))

	return h
}

// setJob takes a new record, and reports whether its visible state changed.
func (t *tracker) setJob(j api.Job) (changed bool) {
	old := t.job
	t.job = j

	newObstacle := j.Status == api.Queued && print.WaitReason(old) != print.WaitReason(j)
	return old.Status != j.Status || old.Phase != j.Phase || old.Cancel != j.Cancel || newObstacle
}

// add takes an event.
func (t *tracker) add(e api.Event) {
	switch e.Event {
	case eventPlaybook:
		// A new run: failures of the previous one are in the record of the job.
		t.task = ""
		for _, h := range t.hosts {
			h.failure, h.finished, h.task = "", false, ""
		}
	case eventPlay:
		t.task = ""
	case eventTask:
		t.task = taskName(e)
		for _, h := range t.hosts {
			h.finished = false
			if h.failure == "" {
				h.task = t.task
			}
		}
	case eventOK, eventFailed, eventUnreachable, eventSkipped, eventRetry:
		// The result of a loop follows the results of its items.
		if e.Host != "" && e.Item == "" {
			t.host(e.Host).add(e)
		}
	}
}

// add takes the result of a task on the host.
func (h *host) add(e api.Event) {
	h.task = taskName(e)

	switch {
	case e.Event == eventRetry:
		return
	case e.Event == eventOK, e.Ignored:
		h.ok++

		switch {
		case e.Foreseen:
			h.foreseen++
		case e.Changed:
			h.changed++
		}
	case e.Event == eventFailed, e.Event == eventUnreachable:
		h.failure = e.Event
		if e.Message != "" {
			h.failure += ": " + print.Line(e.Message)
		}
	}

	h.finished = true
}

// taskName returns the name of a task as Ansible prints it.
func taskName(e api.Event) string {
	task := print.Line(e.Task)
	if e.Role != "" && !strings.HasPrefix(task, e.Role+" : ") {
		task = print.Line(e.Role) + " : " + task
	}
	return task
}

// status returns the state of the job in words.
func (t *tracker) status(p print.Paint) string {
	j := t.job
	switch {
	case j.Status == api.Queued && print.WaitReason(j) == "":
		return "is queued"
	case j.Status == api.Queued:
		return "is queued: " + print.WaitReason(j) + print.WaitTime(j)
	case j.Status.Ended():
		return "is " + p.Job(j.Status)
	case j.Cancel > 0 && j.Phase != "":
		return "is being cancelled: " + print.Line(j.Phase)
	case j.Cancel > 0:
		return "is being cancelled"
	case j.Phase != "":
		return "is running: " + print.Line(j.Phase)
	}

	return "is running"
}
