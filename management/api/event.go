// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"math"
	"time"
)

// Event is one event of a run of ansible-playbook: one line of PathEvents.
// Fields without a value are absent.
type Event struct {
	Time time.Time `json:"time,omitzero"`
	// Event is the kind: playbook, play, task, ok, failed, unreachable, skipped,
	// retry, stats. Clients should ignore unknown kinds.
	Event   string `json:"event"`
	Play    string `json:"play,omitempty"`
	Task    string `json:"task,omitempty"`
	Role    string `json:"role,omitempty"`
	Action  string `json:"action,omitempty"` // the module
	Host    string `json:"host,omitempty"`
	Changed bool   `json:"changed,omitempty"`
	// In check mode: the task would change Host, with the difference if the module reports
	// one; check mode kept it from being judged; or it was executed all the same.
	Foreseen bool   `json:"foreseen,omitempty"`
	Diff     string `json:"diff,omitempty"`
	Unjudged bool   `json:"unjudged,omitempty"`
	Executed bool   `json:"executed,omitempty"`
	Path     string `json:"path,omitempty"` // FILE:LINE of a task worth a look, in the playbooks

	Ignored bool   `json:"ignored,omitempty"` // the failure is ignored
	Item    string `json:"item,omitempty"`    // of a loop; JSON unless it is a string
	Message string `json:"message,omitempty"`
	// Seconds is the duration of the task on Host.
	Seconds float64             `json:"seconds,omitempty"`
	Hosts   []string            `json:"hosts,omitempty"` // of a play
	Stats   map[string]HostStat `json:"stats,omitempty"` // by host, at the end of a run
}

// HostStat holds Ansible's counts of task results on one host, and those of HostResult.
type HostStat struct {
	OK          int `json:"ok,omitempty"`
	Changed     int `json:"changed,omitempty"`
	Failures    int `json:"failures,omitempty"`
	Unreachable int `json:"unreachable,omitempty"`
	Skipped     int `json:"skipped,omitempty"`
	Rescued     int `json:"rescued,omitempty"`
	Ignored     int `json:"ignored,omitempty"`

	Judged   int    `json:"judged,omitempty"`
	Foreseen int    `json:"foreseen,omitempty"`
	Unjudged int    `json:"unjudged,omitempty"`
	Executed int    `json:"executed,omitempty"`
	Doubt    string `json:"doubt,omitempty"`
}

// EventUnreadable is the Event for a malformed line; Message holds the line.
const EventUnreadable = "unreadable"

// UnmarshalJSON accepts the time as RFC 3339 or as seconds since the epoch, and
// an item and a message of any type. It ignores unknown fields.
func (e *Event) UnmarshalJSON(data []byte) error {
	type plain Event
	var p plain

	raw := struct {
		*plain
		Time    json.RawMessage `json:"time"`
		Item    json.RawMessage `json:"item"`
		Message json.RawMessage `json:"message"`
	}{plain: &p}
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}

	// Plugins differ in the types of these fields.
	p.Item, p.Message, p.Time = asText(raw.Item), asText(raw.Message), asTime(raw.Time)
	*e = Event(p)

	return nil
}

// asText returns the text of a JSON string; any other value stays JSON.
func asText(raw json.RawMessage) string {
	var s string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return ""
	case json.Unmarshal(raw, &s) == nil:
		return s
	}

	return string(raw)
}

// asTime returns the zero time for a value in neither form.
func asTime(raw json.RawMessage) time.Time {
	var seconds float64
	if json.Unmarshal(raw, &seconds) == nil {
		// Beyond these bounds a number is not a time of this millennium.
		if seconds <= 0 || seconds > 1e11 {
			return time.Time{}
		}

		whole, part := math.Modf(seconds)
		return time.Unix(int64(whole), int64(part*1e9)).UTC()
	}

	t, _ := time.Parse(time.RFC3339Nano, asText(raw))

	return t
}
