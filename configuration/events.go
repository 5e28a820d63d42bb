// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"bytes"
	"encoding/json"
	"math"
	"time"
)

// EventKind says what an event of a run is about.
type EventKind string

// The kinds of event that the callback plugin writes.
const (
	EventPlaybook    EventKind = "playbook"    // a playbook begins
	EventPlay        EventKind = "play"        // a play begins, on Hosts
	EventTask        EventKind = "task"        // a task begins
	EventOK          EventKind = "ok"          // a task succeeded on Host
	EventFailed      EventKind = "failed"      // a task failed on Host
	EventUnreachable EventKind = "unreachable" // Host could not be reached
	EventSkipped     EventKind = "skipped"     // a task was skipped on Host
	EventRetry       EventKind = "retry"       // a task is tried again on Host
	EventStats       EventKind = "stats"       // the run's own counts, at its end
)

// Event is one thing a playbook run reports. Fields that do not apply are
// empty.
type Event struct {
	Time    time.Time        `json:"time,omitzero"`
	Event   EventKind        `json:"event"`
	Play    string           `json:"play,omitempty"`
	Task    string           `json:"task,omitempty"`
	Role    string           `json:"role,omitempty"`
	Action  string           `json:"action,omitempty"` // the module
	Host    string           `json:"host,omitempty"`
	Changed bool             `json:"changed,omitempty"`
	Ignored bool             `json:"ignored,omitempty"` // the failure does not count
	Item    string           `json:"item,omitempty"`    // of a loop; JSON where it is not a string
	Message string           `json:"message,omitempty"`
	Seconds float64          `json:"seconds,omitempty"` // how long the task took on Host
	Hosts   []string         `json:"hosts,omitempty"`
	Stats   map[string]Stats `json:"stats,omitempty"` // by host
	// Unfinished hosts have not failed, but the run broke off before they had
	// all their plays, because others failed.
	Unfinished []string `json:"unfinished,omitempty"`
}

// Stats are Ansible's counts of task results on a host.
type Stats struct {
	OK          int `json:"ok,omitempty"`
	Changed     int `json:"changed,omitempty"`
	Failures    int `json:"failures,omitempty"`
	Unreachable int `json:"unreachable,omitempty"`
	Skipped     int `json:"skipped,omitempty"`
	Rescued     int `json:"rescued,omitempty"`
	Ignored     int `json:"ignored,omitempty"`
}

// UnmarshalJSON takes the time as RFC 3339 or as seconds since the epoch, and
// items and messages of any type. Unknown fields are ignored.
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

	var seconds float64
	if json.Unmarshal(raw.Time, &seconds) == nil && seconds > 0 && seconds < 1e11 {
		whole, part := math.Modf(seconds)
		e.Time = time.Unix(int64(whole), int64(part*1e9)).UTC()
	} else if t, err := time.Parse(time.RFC3339Nano, text(raw.Time)); err == nil {
		e.Time = t
	}

	return nil
}

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

// ParseEvent reads one line of an events file. It is false for a line that is
// not an event.
func ParseEvent(line []byte) (Event, bool) {
	var e Event

	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] != '{' || json.Unmarshal(line, &e) != nil || e.Event == "" {
		return Event{}, false
	}

	return e, true
}

// maxEventLine bounds what an EventStream keeps of a line that does not end.
const maxEventLine = 1 << 20

// EventStream turns the bytes of an events file, in pieces of any size, into
// events. Lines that are none are skipped. The zero value is ready to use; it
// is not safe for concurrent use.
type EventStream struct {
	rest []byte
	skip bool // in a line that is too long
}

// Write takes the next bytes and returns the events that they complete.
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

	if s.skip = s.skip || len(s.rest)+len(p) > maxEventLine; s.skip {
		s.rest = s.rest[:0]
	} else {
		s.rest = append(s.rest, p...)
	}

	return events
}

// HostResult is what a run did on one host.
type HostResult struct {
	Host string `json:"host"`
	// Begun is true once a task may have acted on the host: a result came from
	// it, or a task began in a play that it is part of.
	Begun       bool   `json:"begun,omitempty"`
	OK          int    `json:"ok,omitempty"` // task results that were successes, changed ones included
	Changed     int    `json:"changed,omitempty"`
	Failed      int    `json:"failed,omitempty"` // neither ignored nor rescued
	Unreachable int    `json:"unreachable,omitempty"`
	Skipped     int    `json:"skipped,omitempty"`
	Ignored     int    `json:"ignored,omitempty"`
	Unfinished  bool   `json:"unfinished,omitempty"` // the run broke off before the host had all its plays
	Final       bool   `json:"final,omitempty"`      // the counts are the run's own; else the run has not ended by itself
	Task        string `json:"task,omitempty"`       // the last that failed and was not ignored
	Item        string `json:"item,omitempty"`       // of a loop in that task
	Message     string `json:"message,omitempty"`    // why it failed
}

// Good is true where the run's own counts say that the host had everything and
// nothing failed on it.
func (r HostResult) Good() bool {
	return r.Final && !r.Unfinished && r.Failed == 0 && r.Unreachable == 0
}

// Summary adds events up. The zero value is ready to use; it is not safe for
// concurrent use.
type Summary struct {
	hosts   map[string]*HostResult
	playing []string // hosts of the current play
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

// Add takes the next event.
func (s *Summary) Add(e Event) {
	switch e.Event {
	case EventPlaybook:
		s.playing = nil
	case EventPlay:
		s.playing = e.Hosts
	case EventTask:
		for _, h := range s.playing {
			s.host(h).Begun = true
		}
	case EventStats:
		for _, name := range e.Unfinished {
			s.host(name).Unfinished = true
		}

		for name, st := range e.Stats {
			h := s.host(name)
			h.OK, h.Changed, h.Skipped, h.Ignored = st.OK, st.Changed, st.Skipped, st.Ignored
			h.Failed, h.Unreachable = st.Failures, st.Unreachable
			h.Begun = h.Begun || st != Stats{}

			h.Final = true
			if h.Failed == 0 && h.Unreachable == 0 { // it was rescued
				h.Task, h.Item, h.Message = "", "", ""
			}
		}
	}

	if e.Host == "" {
		return
	}

	h := s.host(e.Host)

	h.Begun = true
	switch e.Event {
	case EventOK:
		h.OK++
		if e.Changed {
			h.Changed++
		}
	case EventSkipped:
		h.Skipped++
	case EventFailed, EventUnreachable:
		switch {
		case e.Ignored:
			h.Ignored++
			return
		case e.Event == EventUnreachable:
			h.Unreachable++
		case e.Item == "": // a loop's items are followed by its whole
			h.Failed++
		}

		if e.Item == "" && h.Item != "" && h.Task == e.Task {
			return // the item's message says more than the loop's
		}

		h.Task, h.Item, h.Message = e.Task, e.Item, e.Message
	}
}

// Results returns what was added up so far, by host.
func (s *Summary) Results() map[string]HostResult {
	results := make(map[string]HostResult, len(s.hosts))
	for name, h := range s.hosts {
		results[name] = *h
	}

	return results
}

// Summarize adds events up, by host.
func Summarize(events []Event) map[string]HostResult {
	var s Summary
	for _, e := range events {
		s.Add(e)
	}

	return s.Results()
}
