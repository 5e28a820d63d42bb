// SPDX-License-Identifier: Apache-2.0

// Package exit defines the exit codes of clusterctl, and errors that carry one
// together with a remedy.
package exit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// The exit codes. Scripts depend on them: a code never changes its meaning.
const (
	Done        = 0
	Failed      = 1
	Usage       = 2
	JobFailed   = 3
	NotFound    = 4
	Refused     = 5
	Unreachable = 6
	Differs     = 7
	Residue     = 8
	Interrupted = 130
)

// Codes lists every exit code with the meaning that the help and the reference show.
var Codes = []struct {
	Code    int
	Meaning string
}{
	{Done, "success"},
	{Failed, "failure"},
	{Usage, "invalid command line or invalid request"},
	{JobFailed, "the job failed or was cancelled"},
	{NotFound, "a named object does not exist, or no node matches the selector"},
	{Refused, "refused by a rule, a status, a state or a missing permission; nothing was changed"},
	{Unreachable, "the manager or its store is unreachable"},
	{Differs, "fleet diff: the manager differs from the file"},
	{Residue, "the job is complete, but configuration is left on nodes that it took out of service (residue)"},
	{Interrupted, "interrupted by Ctrl-C; a job that was being followed continues"},
}

// ErrInterrupted is the cancellation cause of a command line that the operator
// interrupted with Ctrl-C.
var ErrInterrupted = errors.New("interrupted")

// Error is an error of clusterctl itself, as opposed to one that the manager
// returned. An empty Message is not printed.
type Error struct {
	Code    int
	Message string
	Remedy  string
}

func (e *Error) Error() string { return e.Message }

// Errorf returns an error with an exit code.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Usagef returns an error about the command line.
func Usagef(format string, args ...any) *Error { return Errorf(Usage, format, args...) }

// Try sets the remedy, and returns e.
func (e *Error) Try(format string, args ...any) *Error {
	e.Remedy = fmt.Sprintf(format, args...)
	return e
}

// Code returns the exit code for err.
func Code(err error) int {
	if err == nil {
		return Done
	}

	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}

	if interrupted(err) {
		return Interrupted
	}

	// Kinds without a line here, such as a conflict, are plain failures.
	switch inventory.KindOf(err) {
	case inventory.KindInvalid, inventory.KindTooLarge:
		return Usage
	case inventory.KindNotFound:
		return NotFound
	case inventory.KindRefused,
		inventory.KindUnauthenticated,
		inventory.KindForbidden,
		inventory.KindPrecondition,
		inventory.KindKeyReused,
		inventory.KindBusy:
		return Refused
	case inventory.KindUnavailable:
		return Unreachable
	}

	return Failed
}

// Message returns the message of err without its remedy.
func Message(err error) string {
	message, _ := Explain("", err)
	return message
}

// Explain splits err into a message and a remedy, which has the command of each
// action on a line of its own and may be empty. program is the command that
// reaches the manager, with its options. Every error that clusterctl prints passes
// through here, the manager's included.
func Explain(program string, err error) (message, remedy string) {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Message, e.Remedy
	}

	if interrupted(err) {
		return ErrInterrupted.Error(), ""
	}

	if e, ok := errors.AsType[*inventory.Error](err); ok {
		return e.Message, Remedy(program, e.Remedy, e.Actions)
	}

	return err.Error(), ""
}

// Request returns the id of the request that failed with err, or "".
func Request(err error) string {
	if e, ok := errors.AsType[*inventory.Error](err); ok {
		return e.Request
	}
	return ""
}

// Remedy returns a remedy in words, followed by the command of each action, one
// line each.
func Remedy(program, words string, actions []inventory.Action) string {
	var lines []string
	for _, a := range actions {
		for _, line := range api.CommandsOf(program, []inventory.Action{a}) {
			lines = append(lines, purpose(a)+line)
		}
	}

	if words != "" {
		lines = append([]string{words}, lines...)
	}

	return strings.Join(lines, "\n")
}

// purpose introduces a command that only shows what the operator chooses from, or is
// to change; empty for one that carries the remedy out itself.
func purpose(a inventory.Action) string {
	switch a.Name {
	case inventory.ActionListNodes:
		return "to list the nodes: "
	case inventory.ActionSetConnection:
		return "to see its settings: "
	case inventory.ActionSubmit, inventory.ActionForgetNodes:
		if len(a.Nodes) == 0 && len(a.Addrs) == 0 {
			return "to choose from the nodes: "
		}
	}

	return ""
}

func interrupted(err error) bool {
	return errors.Is(err, ErrInterrupted) || errors.Is(err, context.Canceled)
}
