// SPDX-License-Identifier: Apache-2.0

package print

import (
	"reflect"

	"github.com/contiv/cluster/inventory"
)

// optionColumns are the chosen options of a job, in the order of their table.
func optionColumns[T any](
	of func(*T) inventory.JobOptions, chosen func(inventory.JobOption) bool,
) (all Columns[T]) {
	for _, o := range inventory.Options {
		if o.Label == "" || !chosen(o) {
			continue
		}

		all = append(all, Column[T]{Title: o.Label, Cell: func(p Paint, v *T) string {
			options := of(v)

			text := valueText(p, reflect.ValueOf(o.In(&options)).Elem().Interface(), true)
			if text != "" && o.Note != "" {
				text += ": " + o.Note
			}
			return text
		}})
	}

	return all
}
