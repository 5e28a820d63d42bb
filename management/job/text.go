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

// OrSomebody returns the actor, or "somebody" for an unknown one.
func OrSomebody(actor string) string { return cmp.Or(actor, "somebody") }
