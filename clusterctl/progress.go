// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-runewidth"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"github.com/contiv/cluster/management/api"
)

// screen chooses how progress is shown: rows that change in place on a terminal
// that can do that, else a line for everything that happens.
func (c *call) screen(j api.Job) screen {
	t := newTracker(j)
	if f, ok := c.Stderr.(*os.File); ok && c.errTTY && !dumb() && sized(f) {
		return newRows(f, t, c.errPaint())
	}

	return &lines{w: c.Stderr, tracker: t, paint: c.errPaint()}
}

// sized tells whether the terminal says how large it is. A serial console or
// what a script opens may not, and rows of no width would show nothing at all.
func sized(f *os.File) bool {
	width, height, err := term.GetSize(int(f.Fd()))
	return err == nil && width > 0 && height > 0
}

// The kinds of event that are shown.
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

// tracker is what is known of a job while it runs. It has no lock of its own.
type tracker struct {
	job   api.Job
	task  string // the one that runs
	play  string
	hosts []*host // in the job's order, helpers and others last
	width int     // of the longest host name
}

// host is one host's part in the job.
type host struct {
	name        string
	ok, changed int
	task        string // the last one that ended, or the one that runs
	failure     string // how it failed in this run; empty: it did not
	done        bool   // with the current task
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
	t.width = max(t.width, runewidth.StringWidth(oneLine(name)))

	return h
}

// setJob takes a new record and tells whether its status, phase or what it
// waits for is news.
func (t *tracker) setJob(j api.Job) (news bool) {
	old := t.job
	t.job = j

	return old.Status != j.Status || old.Phase != j.Phase || old.Cancel != j.Cancel ||
		j.Status == api.Queued && waits(old) != waits(j)
}

// add takes an event.
func (t *tracker) add(e api.Event) {
	switch e.Event {
	case eventPlaybook:
		t.play, t.task = "", ""
		for _, h := range t.hosts {
			h.failure, h.done, h.task = "", false, ""
		}
	case eventPlay:
		t.play, t.task = e.Play, ""
	case eventTask:
		t.task = taskName(e)
		for _, h := range t.hosts {
			h.done = false
			if h.failure == "" {
				h.task = t.task
			}
		}
	case eventOK, eventFailed, eventUnreachable, eventSkipped, eventRetry:
		if e.Host == "" || e.Item != "" {
			return
		}

		h := t.host(e.Host)

		h.task = taskName(e)
		switch {
		case e.Event == eventRetry:
			return
		case e.Event == eventOK, e.Ignored:
			h.ok++
			if e.Changed {
				h.changed++
			}
		case e.Event == eventFailed, e.Event == eventUnreachable:
			h.failure = e.Event
			if e.Message != "" {
				h.failure += ": " + oneLine(e.Message)
			}
		}

		h.done = true
	}
}

// taskName is a task as Ansible's own output names it.
func taskName(e api.Event) string {
	task := oneLine(e.Task)
	if e.Role != "" && !strings.HasPrefix(task, e.Role+" : ") {
		task = oneLine(e.Role) + " : " + task
	}

	return task
}

// status is the job's state in words.
func (t *tracker) status(p paint) string {
	j := t.job
	switch {
	case j.Status == api.Queued && waits(j) == "":
		return "is queued"
	case j.Status == api.Queued:
		return "is queued: " + waits(j)
	case j.Status.Ended():
		return "is " + p.job(j.Status)
	case j.Cancel > 0 && j.Phase != "":
		return "is being cancelled: " + oneLine(j.Phase)
	case j.Cancel > 0:
		return "is being cancelled"
	case j.Phase != "":
		return "is running: " + oneLine(j.Phase)
	}

	return "is running"
}

// lines is a screen that only ever appends, for files, pipes and plain terminals.
type lines struct {
	w     io.Writer
	paint paint

	mu      sync.Mutex
	tracker *tracker
	began   bool
}

func (l *lines) job(j api.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := l.tracker.setJob(j)
	// A job that only waits for its turn has it, and a phase, in a moment; the
	// end is told by the summary.
	worth := j.Status == api.Queued && waits(j) != "" || j.Status == api.Running && (j.Phase != "" || j.Cancel > 0)
	if (news || !l.began) && worth {
		l.line("job %s %s", j.ID, l.tracker.status(l.paint))
	}

	l.began = true
}

func (l *lines) event(e api.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tracker.add(e)

	if text := eventLine(e, l.tracker.width, l.paint); text != "" {
		l.line("%s", text)
	}
}

func (l *lines) note(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line("%s", text)
}

func (l *lines) close() {}

func (l *lines) line(format string, args ...any) { fmt.Fprintf(l.w, format+"\n", args...) }

// eventLine is an event as one line; "": it is not worth one.
func eventLine(e api.Event, width int, p paint) string {
	word, colour := "", p.good
	switch {
	case e.Host == "", e.Event == eventOK && e.Item != "", e.Event == eventSkipped:
		return ""
	case e.Event == eventOK && e.Changed:
		word, colour = "changed", p.changed
	case e.Event == eventOK:
		word = "ok"
	case e.Ignored && (e.Event == eventFailed || e.Event == eventUnreachable):
		word, colour = "ignored", p.changed
	case e.Event == eventFailed:
		word, colour = "FAILED", p.bad
	case e.Event == eventUnreachable:
		word, colour = "UNREACHABLE", p.bad
	case e.Event == eventRetry:
		word, colour = "retry", p.changed
	default:
		return ""
	}

	text := runewidth.FillRight(
		oneLine(e.Host),
		width,
	) + "  " + colour(
		runewidth.FillRight(word, len("changed")),
	) + "  " + taskName(
		e,
	)
	if e.Item != "" {
		text += " (" + clip(oneLine(e.Item), 60) + ")"
	}

	if e.Message != "" && e.Event != eventOK {
		text += ": " + clip(oneLine(e.Message), 400)
	}

	return text
}

// rows is a screen that redraws in place: a row for the job, one for each host.
type rows struct {
	out   *mpb.Progress
	bars  []*mpb.Bar
	paint paint

	mu      sync.Mutex
	tracker *tracker
	frame   int
}

// maxRows bounds the rows of hosts; a terminal that is lower shows fewer.
const maxRows = 30

func newRows(f *os.File, t *tracker, p paint) *rows {
	r := &rows{tracker: t, paint: p}

	n := min(len(t.hosts)+len(t.job.Helpers), maxRows)
	if _, height, err := term.GetSize(int(f.Fd())); err == nil {
		n = min(n, max(height-3, 1))
	}

	r.out = mpb.New(mpb.WithOutput(f), mpb.WithRefreshRate(150*time.Millisecond))
	for i := range n + 1 {
		fill := func(w io.Writer, s decor.Statistics) error {
			_, err := io.WriteString(w, r.row(i, n, s.AvailableWidth))
			return err
		}
		if b, err := r.out.Add(0, mpb.BarFillerFunc(fill), mpb.BarFillerTrim(), mpb.BarRemoveOnComplete()); err == nil {
			r.bars = append(r.bars, b)
		}
	}

	return r
}

func (r *rows) job(j api.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tracker.setJob(j)
}

func (r *rows) event(e api.Event) {
	r.mu.Lock()
	r.tracker.add(e)
	width := r.tracker.width
	r.mu.Unlock()

	if !e.Ignored && (e.Event == eventFailed || e.Event == eventUnreachable) {
		r.note(eventLine(e, width, r.paint))
	}
}

// note writes a line above the rows.
func (r *rows) note(text string) { _, _ = fmt.Fprintln(r.out, text) }

func (r *rows) close() {
	for _, b := range r.bars {
		b.Abort(true)
	}

	r.out.Wait()
}

// row is the i-th of n+1 rows, no wider than width.
func (r *rows) row(i, n, width int) string {
	r.mu.Lock()
	defer r.mu.Unlock()

	if i == 0 {
		r.frame++
		return r.head(width)
	}

	hosts := r.tracker.hosts
	if len(hosts) > n {
		// Those that failed or still work are the ones to see.
		hosts = slices.Clone(hosts)
		slices.SortStableFunc(hosts, func(a, b *host) int { return rank(a) - rank(b) })

		if i == n {
			return clip(fmt.Sprintf("  and %d more hosts", len(hosts)-n+1), width)
		}
	}

	if i > len(hosts) {
		return ""
	}

	return r.hostRow(hosts[i-1], width)
}

func rank(h *host) int {
	switch {
	case h.failure != "":
		return 0
	case !h.done:
		return 1
	}

	return 2
}

// head says what the job does: spinner, status, the task with how many hosts have done it, time.
func (r *rows) head(width int) string {
	t := r.tracker
	spin := string(`|/-\`[r.frame%4])

	elapsed := ""
	if t.job.Started != nil {
		// The two clocks may differ.
		elapsed = "  " + duration(max(time.Since(*t.job.Started), 0).Truncate(time.Second))
	}

	text := fmt.Sprintf("%s job %s %s", spin, t.job.ID, t.status(false))
	if t.task == "" || t.job.Status != api.Running {
		return r.paint.busy(clip(text+elapsed, width))
	}

	done, all := 0, 0
	for _, h := range t.hosts {
		if h.failure != "" {
			continue
		}

		all++

		if h.done {
			done++
		}
	}

	const cells = 20

	full := 0
	if all > 0 {
		full = done * cells / all
	}

	bar := fmt.Sprintf(
		"  [%s%s] %d/%d hosts%s",
		strings.Repeat("#", full),
		strings.Repeat("-", cells-full),
		done,
		all,
		elapsed,
	)
	if room := width - runewidth.StringWidth(bar); room >= cells {
		return r.paint.busy(clip(text, room) + bar)
	}

	return r.paint.busy(clip(text+elapsed, width))
}

func (r *rows) hostRow(h *host, width int) string {
	left := fmt.Sprintf(
		"  %s  ok %-3d changed %-3d ",
		runewidth.FillRight(oneLine(h.name), r.tracker.width),
		h.ok,
		h.changed,
	)
	room := max(width-runewidth.StringWidth(left), 0)

	left = clip(left, width)
	switch {
	case h.failure != "":
		return left + r.paint.bad(clip(h.failure, room))
	case h.task == "":
		return left
	case h.done:
		return left + r.paint.faint(clip(h.task, room))
	}

	return left + clip(h.task, room)
}
