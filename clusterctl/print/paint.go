// SPDX-License-Identifier: Apache-2.0

package print

import (
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// Paint colours text for a terminal. The zero value leaves text unchanged.
type Paint bool

func (on Paint) code(code, s string) string {
	if !on || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// Good marks success.
func (on Paint) Good(s string) string { return on.code("32", s) }

// Bad marks failure.
func (on Paint) Bad(s string) string { return on.code("31", s) }

// Busy marks work in progress, and commands to run.
func (on Paint) Busy(s string) string { return on.code("36", s) }

// Changed marks a change.
func (on Paint) Changed(s string) string { return on.code("33", s) }

// Faint marks text of little importance.
func (on Paint) Faint(s string) string { return on.code("2", s) }

// goodIf marks text as success or failure.
func (on Paint) goodIf(good bool, text string) string {
	if good {
		return on.Good(Line(text))
	}
	return on.Bad(Line(text))
}

// Status colours the status of a node.
func (on Paint) Status(s inventory.Status) string {
	switch {
	case s == inventory.Allocated:
		return on.Good(string(s))
	case s == inventory.Quarantined:
		return on.Bad(string(s))
	case s.InProgress():
		return on.Busy(string(s))
	}

	return Line(string(s))
}

// State colours the state of a node.
func (on Paint) State(s inventory.State) string {
	switch s {
	case inventory.Discovered:
		return on.Good(string(s))
	case inventory.Disappeared:
		return on.Bad(string(s))
	}

	return Line(string(s))
}

// Job colours the status of a job.
func (on Paint) Job(s api.JobStatus) string {
	switch s {
	case api.Complete:
		return on.Good(string(s))
	case api.Errored:
		return on.Bad(string(s))
	case api.Cancelled:
		return on.Changed(string(s))
	case api.Running:
		return on.Busy(string(s))
	}

	return Line(string(s))
}
