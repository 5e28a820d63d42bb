// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"strings"

	"github.com/contiv/cluster/management/api"
)

// ImportColumns are the columns of the result of an import.
var ImportColumns = ColumnsOf(Cells[api.ImportedMachine]{
	"detail": func(_ Paint, m *api.ImportedMachine) string { return importDetail(m) },
}, "node", "action", "detail")

// ImportedNodeColumns are the columns of the nodes of an import.
var ImportedNodeColumns = ColumnsOf(Cells[api.ImportedNode]{
	"result": func(_ Paint, n *api.ImportedNode) string { return importResult(n) },
}, "node", "action", "status", "step", "job", "result")

// importResult returns how far a node came, in words.
func importResult(n *api.ImportedNode) string {
	switch {
	case n.Error != "":
		return n.Error
	case n.Job != "":
		return "goes on"
	case n.Step != "":
		return "waits"
	}

	return "done"
}

// ImportRunColumns are the columns of the list of imports.
var ImportRunColumns = ColumnsOf(Cells[api.ImportRun]{
	"then": func(_ Paint, i *api.ImportRun) string {
		verbs := make([]string, len(i.Verbs))
		for at, v := range i.Verbs {
			verbs[at] = string(v)
		}

		return strings.Join(verbs, ", ")
	},
}, "id", "started", "actor", "then", "total", "failed", "done")

// importDetail returns the reason or the changes of a machine.
func importDetail(m *api.ImportedMachine) string {
	if m.Reason != "" {
		return m.Reason
	}

	texts := make([]string, len(m.Changes))

	for i, c := range m.Changes {
		texts[i] = c.Field + " changed"
		if c.Before != nil || c.After != nil {
			texts[i] = fmt.Sprintf("%s %s → %s", c.Field, importValue(c.Before), importValue(c.After))
		}
	}

	if len(m.Checks) > 0 {
		texts = append(texts, "credentials: "+strings.Join(m.Checks, ", "))
	}

	return strings.Join(texts, ", ")
}

func importValue(value any) string {
	switch value := value.(type) {
	case nil:
		return "none"
	case string:
		return value
	}

	return Scalar(value)
}
