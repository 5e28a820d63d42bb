// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
)

// The widths at which a line of progress cuts long text, in terminal columns.
const (
	itemWidth    = 60
	messageWidth = 400
)

// NewScreen returns a screen for a job: rows that change in place if inPlace is
// set and w is a terminal with a size, and appended lines otherwise.
func NewScreen(w io.Writer, j api.Job, inPlace bool, p print.Paint) Screen {
	t := newTracker(j)
	if f, ok := w.(*os.File); ok && inPlace && hasSize(f) {
		return newRows(f, t, p)
	}
	return &lines{w: w, tracker: t, paint: p}
}

// hasSize reports whether the size of a terminal is known. It is not on some
// serial consoles and under some scripts, where rows would have no width.
func hasSize(f *os.File) bool {
	width, height, err := term.GetSize(int(f.Fd()))
	return err == nil && width > 0 && height > 0
}

// lines is a screen that only appends, for files, pipes and simple terminals.
type lines struct {
	w     io.Writer
	paint print.Paint

	mu      sync.Mutex
	tracker *tracker
	began   bool
}

func (l *lines) Job(j api.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := l.tracker.setJob(j)

	// A job without an obstacle starts at once, and the summary shows its end:
	// neither deserves a line.
	blocked := j.Status == api.Queued && print.WaitReason(j) != ""
	active := j.Status == api.Running && (j.Phase != "" || j.Cancel > 0)

	if (changed || !l.began) && (blocked || active) {
		l.print(fmt.Sprintf("job %s %s", j.ID, l.tracker.status(l.paint)))
	}

	l.began = true
}

func (l *lines) Event(e api.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tracker.add(e)

	if text := eventLine(e, l.tracker.width, l.paint); text != "" {
		l.print(text)
	}
}

func (l *lines) Note(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.print(text)
}

func (l *lines) Close() {}

func (l *lines) print(text string) { fmt.Fprintln(l.w, text) }

// eventLine formats an event as one line, or "" for an event of no interest.
func eventLine(e api.Event, width int, p print.Paint) string {
	result, colour := eventResult(e, p)
	if result == "" {
		return ""
	}

	host := print.Pad(print.Line(e.Host), width)

	text := host + "  " + colour(print.Pad(result, len("changed"))) + "  " + taskName(e)
	if e.Item != "" {
		text += " (" + print.Clip(print.Line(e.Item), itemWidth) + ")"
	}
	if e.Message != "" && e.Event != eventOK {
		text += ": " + print.Clip(print.Line(e.Message), messageWidth)
	}

	return text
}

// eventResult returns the result that an event stands for, and its colour.
func eventResult(e api.Event, p print.Paint) (string, func(string) string) {
	failed := e.Event == eventFailed || e.Event == eventUnreachable
	itemDone := e.Event == eventOK && e.Item != ""

	switch {
	case e.Host == "", itemDone, e.Event == eventSkipped:
		return "", nil
	case e.Event == eventOK && e.Foreseen:
		return "differs", p.Changed
	case e.Event == eventOK && e.Changed:
		return "changed", p.Changed
	case e.Event == eventOK:
		return "ok", p.Good
	case failed && e.Ignored:
		return "ignored", p.Changed
	case e.Event == eventFailed:
		return "FAILED", p.Bad
	case e.Event == eventUnreachable:
		return "UNREACHABLE", p.Bad
	case e.Event == eventRetry:
		return "retry", p.Changed
	}

	return "", nil
}
