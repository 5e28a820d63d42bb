// SPDX-License-Identifier: Apache-2.0

package print

import "github.com/contiv/cluster/inventory"

// optionFields returns the fields for the chosen options of a job, in the order of their table.
func optionFields(of inventory.JobOptions, chosen func(inventory.JobOption) bool) []Field {
	var fields []Field

	for _, o := range inventory.Options {
		if o.Label == "" || !chosen(o) {
			continue
		}

		text := ""

		switch value := o.In(&of).(type) {
		case *bool:
			if text = yesIf(*value); text != "" && o.Note != "" {
				text += ": " + o.Note
			}
		case *int:
			text = positive(*value)
		case *string:
			text = Line(*value)
		case *[]string:
			text = List(*value)
		}

		fields = append(fields, Field{o.Label, text})
	}

	return fields
}
