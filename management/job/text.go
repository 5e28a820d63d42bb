// SPDX-License-Identifier: Apache-2.0

package job

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/contiv/cluster/inventory"
)

func join(names []string) string { return strings.Join(names, ", ") }

// ShortList joins names with commas and counts those after the eighth.
func ShortList(names []string) string {
	const most = 8
	if len(names) > most {
		return join(names[:most]) + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return join(names)
}

// Jobs returns "job 5" or "jobs 5, 7".
func Jobs(ids []string) string {
	if len(ids) == 1 {
		return "job " + ids[0]
	}
	return "jobs " + join(ids)
}

// Message returns the message of an error without its remedy.
func Message(err error) string {
	if e, ok := errors.AsType[*inventory.Error](err); ok {
		return e.Message
	}
	return err.Error()
}

// cancelledBy is the message about a cancellation.
func cancelledBy(actor string) string { return "cancelled by " + OrSomebody(actor) }

// CancelledWhileQueued is the message of a job that was cancelled before its start.
func CancelledWhileQueued(actor string) string { return cancelledBy(actor) + " while it was queued" }

// For returns a message about the job as its reader, a principal, understands it: who
// cancelled it is told so.
func (j Job) For(reader, message string) string {
	if !j.CancelledBy(reader) {
		return message
	}
	return strings.Replace(message, cancelledBy(reader), "you cancelled it", 1)
}

// CancelledBy reports whether the principal was the first to cancel the job.
func (j Job) CancelledBy(principal string) bool {
	return j.Cancel > 0 && principal != "" && j.CancelBy == principal
}

// PlainHTTP begins the principal of everybody who uses the listener without credentials.
const PlainHTTP = "http:"

// Anonymous reports whether a principal stands for several persons.
func Anonymous(principal string) bool { return strings.HasPrefix(principal, PlainHTTP) }

// OrSomebody returns the actor, or "somebody" for an unknown one.
func OrSomebody(actor string) string { return cmp.Or(actor, "somebody") }

// TakenBack says that the next verb takes back variables that only the request of the applied job had set; "": none.
func TakenBack(n *inventory.Node, names []string) string {
	if len(names) == 0 {
		return ""
	}

	return fmt.Sprintf("%s: it takes back %s, which only the request of job %s had set",
		n.Name, ShortList(names), n.Applied)
}
