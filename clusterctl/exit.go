// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// The exit codes, as `clusterctl --help` documents them.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitJobFailed   = 3
	ExitNotFound    = 4
	ExitRefused     = 5
	ExitUnreachable = 6
	ExitInterrupted = 130
)

// exitCodes is the table of the help.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{ExitDone, "done"},
	{ExitFailed, "failed"},
	{ExitUsage, "the command line or the request is wrong"},
	{ExitJobFailed, "the job failed or was cancelled"},
	{ExitNotFound, "something it names does not exist, or nothing meets the selector"},
	{ExitRefused, "refused by a rule, a status, a state or a missing permission; nothing was changed"},
	{ExitUnreachable, "the manager, or its store, does not answer"},
	{ExitInterrupted, "interrupted by Ctrl-C; a job that was being waited for goes on"},
}

// ErrInterrupted is the cause with which the caller of Run cancels its context
// when the operator presses Ctrl-C.
var ErrInterrupted = errors.New("interrupted")

// failure is an error of the command line's own: an exit code, what is wrong
// and what to do about it.
type failure struct {
	code    int
	message string // empty: everything was said already
	remedy  string
}

func (f *failure) Error() string { return f.message }

func failf(code int, format string, args ...any) *failure {
	return &failure{code: code, message: fmt.Sprintf(format, args...)}
}

func usagef(format string, args ...any) *failure { return failf(ExitUsage, format, args...) }

// do adds the remedy and returns the same failure.
func (f *failure) do(format string, args ...any) *failure {
	f.remedy = fmt.Sprintf(format, args...)
	return f
}

// exitCode is the code that says what kind of failure err is.
func exitCode(err error) int {
	if err == nil {
		return ExitDone
	}

	if f, ok := errors.AsType[*failure](err); ok {
		return f.code
	}

	if errors.Is(err, ErrInterrupted) || errors.Is(err, context.Canceled) {
		return ExitInterrupted
	}

	switch inventory.KindOf(err) {
	case inventory.KindInvalid, inventory.KindTooLarge:
		return ExitUsage
	case inventory.KindNotFound:
		return ExitNotFound
	case inventory.KindRefused,
		inventory.KindUnauthenticated,
		inventory.KindForbidden,
		inventory.KindPrecondition,
		inventory.KindKeyReused:
		return ExitRefused
	case inventory.KindUnavailable:
		return ExitUnreachable
	}

	return ExitFailed
}

// explain splits err into what went wrong and what to do about it.
func explain(err error) (message, remedy string) {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.message, f.remedy
	}

	if errors.Is(err, ErrInterrupted) || errors.Is(err, context.Canceled) {
		return ErrInterrupted.Error(), ""
	}

	if e, ok := errors.AsType[*inventory.Error](err); ok {
		return e.Message, e.Remedy
	}

	return err.Error(), ""
}

// report prints err in the one form that errors have here, and returns its code.
func report(w io.Writer, err error) int {
	if err == nil {
		return ExitDone
	}

	message, remedy := explain(err)
	if message != "" {
		fmt.Fprintf(w, "clusterctl: %s\n", strings.TrimSpace(printable(message, true)))

		if remedy != "" {
			fmt.Fprintf(w, "  %s\n", strings.ReplaceAll(printable(remedy, true), "\n", "\n  "))
		}
	}

	return exitCode(err)
}
