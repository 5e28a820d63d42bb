// SPDX-License-Identifier: Apache-2.0

package follow

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

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
)

const (
	// maxRows bounds the rows of hosts; a lower terminal shows fewer.
	maxRows = 30
	// barCells is the length of the progress bar, and the least room for the text before it.
	barCells = 20
	// refreshInterval is the time between two redraws.
	refreshInterval = 150 * time.Millisecond
)

// rows is a screen that redraws in place: one row for the job, one per host.
type rows struct {
	out   *mpb.Progress
	bars  []*mpb.Bar
	paint print.Paint

	mu      sync.Mutex
	tracker *tracker
	frame   int
}

func newRows(f *os.File, t *tracker, p print.Paint) *rows {
	r := &rows{tracker: t, paint: p}

	n := min(len(t.hosts)+len(t.job.Helpers), maxRows)
	if _, height, err := term.GetSize(int(f.Fd())); err == nil {
		n = min(n, max(height-3, 1))
	}

	// A bar of mpb is only the slot for a row: this room draws the text itself.
	r.out = mpb.New(mpb.WithOutput(f), mpb.WithRefreshRate(refreshInterval))
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

func (r *rows) Job(j api.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tracker.setJob(j)
}

func (r *rows) Event(e api.Event) {
	r.mu.Lock()
	r.tracker.add(e)
	width := r.tracker.width
	r.mu.Unlock()

	// A failure must outlive the rows.
	if !e.Ignored && (e.Event == eventFailed || e.Event == eventUnreachable) {
		r.Note(eventLine(e, width, r.paint))
	}
}

// Note writes a line above the rows.
func (r *rows) Note(text string) { _, _ = fmt.Fprintln(r.out, text) }

func (r *rows) Close() {
	for _, b := range r.bars {
		b.Abort(true)
	}

	r.out.Wait()
}

// row returns the i-th of n+1 rows, no wider than width.
func (r *rows) row(i, n, width int) string {
	r.mu.Lock()
	defer r.mu.Unlock()

	if i == 0 {
		r.frame++
		return r.jobRow(width)
	}

	hosts := r.tracker.hosts
	if len(hosts) > n {
		// Failed and busy hosts take precedence; the last row counts the rest.
		hosts = slices.Clone(hosts)
		slices.SortStableFunc(hosts, func(a, b *host) int { return a.rank() - b.rank() })

		if i == n {
			return print.Clip(fmt.Sprintf("  and %d more hosts", len(hosts)-n+1), width)
		}
	}

	if i > len(hosts) {
		return ""
	}

	return r.hostRow(hosts[i-1], width)
}

// rank orders hosts by their need for attention.
func (h *host) rank() int {
	switch {
	case h.failure != "":
		return 0
	case !h.finished:
		return 1
	}

	return 2
}

// jobRow shows a spinner, the status of the job, the progress of the running
// task, and the time since the start.
func (r *rows) jobRow(width int) string {
	t := r.tracker
	spinner := string(`|/-\`[r.frame%4])

	elapsed := ""
	if t.job.Started != nil {
		// The clock of the manager may be ahead.
		since := max(time.Since(*t.job.Started), 0)
		elapsed = "  " + print.Duration(since.Truncate(time.Second))
	}

	text := fmt.Sprintf("%s job %s %s", spinner, t.job.ID, t.status(false))
	if t.task != "" && t.job.Status == api.Running {
		bar := t.bar() + elapsed
		if room := width - runewidth.StringWidth(bar); room >= barCells {
			return r.paint.Busy(print.Clip(text, room) + bar)
		}
	}

	return r.paint.Busy(print.Clip(text+elapsed, width))
}

// bar shows how many hosts have finished the running task. Failed hosts do not count.
func (t *tracker) bar() string {
	finished, all := 0, 0
	for _, h := range t.hosts {
		if h.failure != "" {
			continue
		}

		all++

		if h.finished {
			finished++
		}
	}

	filled := finished * barCells / max(all, 1)
	bar := strings.Repeat("#", filled) + strings.Repeat("-", barCells-filled)

	return fmt.Sprintf("  [%s] %d/%d hosts", bar, finished, all)
}

func (r *rows) hostRow(h *host, width int) string {
	name := print.Pad(print.Line(h.name), r.tracker.width)
	left := fmt.Sprintf("  %s  ok %-3d changed %-3d ", name, h.ok, h.changed)

	if h.foreseen > 0 {
		left = fmt.Sprintf("  %s  ok %-3d differs %-3d ", name, h.ok, h.foreseen)
	}

	room := max(width-runewidth.StringWidth(left), 0)

	left = print.Clip(left, width)
	switch {
	case h.failure != "":
		return left + r.paint.Bad(print.Clip(h.failure, room))
	case h.task == "":
		return left
	case h.finished:
		return left + r.paint.Faint(print.Clip(h.task, room))
	}

	return left + print.Clip(h.task, room)
}
