// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"fmt"
	"io"
	"strings"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
)

// ExitInterrupted is the exit code after Ctrl-C.
const ExitInterrupted = exit.Interrupted

// ErrInterrupted is the cause with which the caller of Run cancels its context
// when the operator presses Ctrl-C.
var ErrInterrupted = exit.ErrInterrupted

// report prints a problem and its remedy, and returns the exit code. Every error
// of every command ends here. program is the prefix of the commands in the remedy.
func report(w io.Writer, program string, err error) int {
	if err == nil {
		return exit.Done
	}

	message, remedy := exit.Explain(program, err)
	if message != "" {
		fmt.Fprintf(w, "clusterctl: %s\n", strings.TrimSpace(print.Text(print.LocalTimes(message))))

		if remedy != "" {
			fmt.Fprintf(w, "  %s\n", strings.ReplaceAll(print.Text(remedy), "\n", "\n  "))
		}

		if id := exit.Request(err); id != "" {
			fmt.Fprintf(w, "  (request %s)\n", print.Text(id))
		}
	}

	return exit.Code(err)
}
