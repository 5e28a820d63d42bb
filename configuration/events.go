// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"bytes"
	"encoding/json"
	"math"
	"time"

	"github.com/contiv/cluster/inventory"
)

// EventKind is the kind of an event of a run.
type EventKind string

// The kinds of event that the callback plugin writes.
const (
	EventPlaybook    EventKind = "playbook"    // a playbook begins
	EventPlay        EventKind = "play"        // a play begins on Hosts
	EventTask        EventKind = "task"        // a task begins
	EventOK          EventKind = "ok"          // a task succeeded on Host
	EventFailed      EventKind = "failed"      // a task failed on Host
	EventUnreachable EventKind = "unreachable" // Host could not be reached
	EventSkipped     EventKind = "skipped"     // a task was skipped on Host
	EventRetry       EventKind = "retry"       // a task failed on Host and is retried
	EventStats       EventKind = "stats"       // Ansible's counts at the end of the run
)

// Event is an event of a playbook run. Fields that do not apply are empty.
type Event struct {
	Time    time.Time `json:"time,omitzero"`
	Event   EventKind `json:"event"`
	Play    string    `json:"play,omitempty"`
	Task    string    `json:"task,omitempty"`
	Role    string    `json:"role,omitempty"`
	Action  string    `json:"action,omitempty"` // the module
	Host    string    `json:"host,omitempty"`
	Changed bool      `json:"changed,omitempty"`
	// Unselected: none of the chosen tags selects the task. It runs all the same, as one with the tag always does.
	Unselected bool `json:"unselected,omitempty"`
	// Executed: the task runs in spite of a check, because it has check_mode: false.
	Executed bool `json:"executed,omitempty"`
	// Foreseen: in check mode, the task would change Host. Diff is the difference, in the format of diff -u, if the
	// module reports one.
	Foreseen bool   `json:"foreseen,omitempty"`
	Diff     string `json:"diff,omitempty"`
	// Unjudged: check mode kept the task from being judged, at least in part: the module or a condition skipped it, or
	// the playbook ignores its failure in check mode.
	Unjudged bool             `json:"unjudged,omitempty"`
	Path     string           `json:"path,omitempty"`    // FILE:LINE of a task worth a look, in the playbooks
	Ignored  bool             `json:"ignored,omitempty"` // the playbook ignores the failure
	Item     string           `json:"item,omitempty"`    // of a loop; JSON unless it is a string
	Message  string           `json:"message,omitempty"`
	Seconds  float64          `json:"seconds,omitempty"` // duration of the task on Host
	Hosts    []string         `json:"hosts,omitempty"`
	Stats    map[string]Stats `json:"stats,omitempty"` // by host
	// Unfinished hosts have not failed, but have not had all their plays: the run
	// stopped early because of other hosts.
	Unfinished []string `json:"unfinished,omitempty"`
	// Lost is the number of events that could not be written.
	Lost int `json:"lost,omitempty"`
}

// EventTruncated marks the place where the events of a run reached their limit. The
// runner writes it.
const EventTruncated EventKind = "truncated"

// Stats are Ansible's counts of task results on a host.
type Stats struct {
	OK          int `json:"ok,omitempty"`
	Changed     int `json:"changed,omitempty"`
	Failures    int `json:"failures,omitempty"`
	Unreachable int `json:"unreachable,omitempty"`
	Skipped     int `json:"skipped,omitempty"`
	Rescued     int `json:"rescued,omitempty"`
	Ignored     int `json:"ignored,omitempty"`
	// The counts of the callback plugin, which do not depend on other events: see HostResult.
	Judged   int    `json:"judged,omitempty"`
	Foreseen int    `json:"foreseen,omitempty"`
	Unjudged int    `json:"unjudged,omitempty"`
	Executed int    `json:"executed,omitempty"`
	Doubt    string `json:"doubt,omitempty"`
}

// UnmarshalJSON accepts a time in RFC 3339 or in seconds since the epoch, and
// items and messages of any type. It ignores unknown fields.
func (e *Event) UnmarshalJSON(data []byte) error {
	type plain Event

	raw := struct {
		*plain
		Time    json.RawMessage `json:"time"`
		Item    json.RawMessage `json:"item"`
		Message json.RawMessage `json:"message"`
	}{plain: (*plain)(e)}
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	e.Item, e.Message = text(raw.Item), text(raw.Message)
	e.Time = time.Time{}

	// A time that is not valid does not invalidate the event.
	var seconds float64
	if json.Unmarshal(raw.Time, &seconds) == nil && seconds > 0 && seconds < 1e11 {
		whole, part := math.Modf(seconds)
		e.Time = time.Unix(int64(whole), int64(part*1e9)).UTC()
	} else if t, err := time.Parse(time.RFC3339Nano, text(raw.Time)); err == nil {
		e.Time = t
	}

	return nil
}

// text returns a JSON string without its quotes, and any other value as JSON.
func text(raw json.RawMessage) string {
	var s string
	switch {
	case len(raw) == 0, string(raw) == "null":
		return ""
	case json.Unmarshal(raw, &s) == nil:
		return s
	default:
		return string(raw)
	}
}

// ParseEvent parses one line of an events file. ok is false for a line that is
// not an event.
func ParseEvent(line []byte) (e Event, ok bool) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] != '{' || json.Unmarshal(line, &e) != nil || e.Event == "" {
		return Event{}, false
	}
	return e, true
}

// maxEventLine is the longest line that an EventStream buffers, in bytes.
const maxEventLine = 1 << 20

// EventStream parses an events file in chunks of any size. It skips lines that
// are not events. The zero value is ready to use; it is not safe for concurrent
// use.
type EventStream struct {
	rest []byte
	skip bool // the current line is too long
}

// Write adds the next chunk and returns the events that it completes.
func (s *EventStream) Write(p []byte) []Event {
	var events []Event
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			break
		}

		if !s.skip {
			if e, ok := ParseEvent(append(s.rest, p[:i]...)); ok {
				events = append(events, e)
			}
		}

		s.rest, s.skip, p = s.rest[:0], false, p[i+1:]
	}

	// A line that is too long is dropped, which bounds the memory for a stream
	// without newlines.
	if s.skip = s.skip || len(s.rest)+len(p) > maxEventLine; s.skip {
		s.rest = s.rest[:0]
	} else {
		s.rest = append(s.rest, p...)
	}

	return events
}

// HostResult is the result of a run on one host.
type HostResult struct {
	Host string `json:"host"`
	// Begun is true once a task may have acted on the host: the host returned a
	// result, or a task began in one of its plays.
	Begun       bool `json:"begun,omitempty"`
	OK          int  `json:"ok,omitempty"` // successful task results, including changed ones
	Changed     int  `json:"changed,omitempty"`
	Failed      int  `json:"failed,omitempty"` // neither ignored nor rescued
	Unreachable int  `json:"unreachable,omitempty"`
	Skipped     int  `json:"skipped,omitempty"`
	Ignored     int  `json:"ignored,omitempty"`
	// Selected: there is a result of a task that the chosen tags select.
	Selected bool `json:"selected,omitempty"`
	// Executed counts the tasks that a check executed, and that changed the host or failed.
	Executed int `json:"executed,omitempty"`
	// Foreseen counts the tasks that would change the host, and Unjudged those that a check cannot judge.
	Foreseen int `json:"foreseen,omitempty"`
	Unjudged int `json:"unjudged,omitempty"`
	// Judged counts the tasks that compared the host with their aim. It is known at the end only.
	Judged int `json:"judged,omitempty"`
	// Doubt is why the host may differ although nothing failed on it; mostly empty.
	Doubt      string `json:"doubt,omitempty"`
	Unfinished bool   `json:"unfinished,omitempty"` // the run stopped before the host had all its plays
	Final      bool   `json:"final,omitempty"`      // the counts are Ansible's, at the end of the run
	Task       string `json:"task,omitempty"`       // the last one with a failure that is not ignored
	Item       string `json:"item,omitempty"`       // of a loop in that task
	Message    string `json:"message,omitempty"`    // of that failure
}

// Good reports whether the run ended, the host had all its plays and nothing
// failed on it.
func (r HostResult) Good() bool {
	return r.Final && !r.Unfinished && r.Failed == 0 && r.Unreachable == 0
}

// Summary accumulates the events of a run into results by host. The zero value
// is ready to use; it is not safe for concurrent use.
type Summary struct {
	hosts     map[string]*HostResult
	playing   []string // hosts of the current play
	truncated bool     // events are missing
	lost      int      // events that could not be written
}

func (s *Summary) host(name string) *HostResult {
	if s.hosts == nil {
		s.hosts = map[string]*HostResult{}
	}

	if s.hosts[name] == nil {
		s.hosts[name] = &HostResult{Host: name}
	}
	return s.hosts[name]
}

// Add adds the next event.
func (s *Summary) Add(e Event) {
	switch e.Event {
	case EventPlaybook:
		s.playing = nil
	case EventPlay:
		s.playing = e.Hosts

		// A play may have no task for its hosts.
		for _, h := range e.Hosts {
			s.host(h)
		}
	case EventTask:
		for _, h := range s.playing {
			s.host(h).Begun = true
		}
	case EventStats:
		s.addStats(e)
	case EventTruncated:
		s.truncated = true
	}

	if e.Host != "" {
		s.host(e.Host).add(e)
	}
}

// addStats replaces the counts by Ansible's.
func (s *Summary) addStats(e Event) {
	s.lost += e.Lost

	for _, name := range e.Unfinished {
		s.host(name).Unfinished = true
	}

	for name, st := range e.Stats {
		h := s.host(name)
		h.OK, h.Changed, h.Skipped, h.Ignored = st.OK, st.Changed, st.Skipped, st.Ignored
		h.Failed, h.Unreachable = st.Failures, st.Unreachable

		// The events may have been cut, and the counts at the end are whole.
		h.Foreseen, h.Unjudged, h.Executed = st.Foreseen, st.Unjudged, st.Executed
		h.Judged, h.Doubt = st.Judged, st.Doubt
		h.Begun = h.Begun || st != Stats{}
		h.Final = true

		// No failure counts any more: the playbook has rescued them.
		if h.Failed == 0 && h.Unreachable == 0 {
			h.Task, h.Item, h.Message = "", "", ""
		}
	}
}

// add adds an event of this host.
func (r *HostResult) add(e Event) {
	r.Begun = true
	r.Selected = r.Selected || !e.Unselected

	if e.Executed && (e.Changed || e.Event == EventFailed && e.Item == "") {
		r.Executed++
	}

	if e.Foreseen {
		r.Foreseen++
	}

	if e.Unjudged {
		r.Unjudged++
	}

	switch e.Event {
	case EventOK:
		r.OK++
		if e.Changed {
			r.Changed++
		}
	case EventSkipped:
		r.Skipped++
	case EventFailed, EventUnreachable:
		r.addFailure(e)
	}
}

func (r *HostResult) addFailure(e Event) {
	if e.Ignored {
		r.Ignored++
		return
	}

	// The result of the whole loop follows those of its items, and only it counts.
	if e.Event == EventUnreachable {
		r.Unreachable++
	} else if e.Item == "" {
		r.Failed++
	}

	// The message of an item is more specific than the one of its loop.
	if e.Item == "" && r.Item != "" && r.Task == e.Task {
		return
	}

	r.Task, r.Item, r.Message = e.Task, e.Item, e.Message
}

// Results returns the results so far, by host.
func (s *Summary) Results() map[string]HostResult {
	results := make(map[string]HostResult, len(s.hosts))
	for name, h := range s.hosts {
		result := *h
		result.Doubt = s.doubt(result)
		results[name] = result
	}

	return results
}

// doubt returns why a host may differ although nothing failed on it.
func (s *Summary) doubt(r HostResult) string {
	switch {
	case r.Doubt != "":
		return r.Doubt
	case s.lost > 0:
		return inventory.Count(s.lost, "event", "events") + " of the run could not be written"
	case !r.Final && s.truncated:
		return "the events of the run exceeded their limit, and its end is not among those that were kept"
	}

	return ""
}

// Summarize returns the results of events, by host.
func Summarize(events []Event) map[string]HostResult {
	var s Summary
	for _, e := range events {
		s.Add(e)
	}

	return s.Results()
}
