// SPDX-License-Identifier: Apache-2.0

// Package optiontest sets the options of a job for tests that walk their table: each room that has options of jobs
// shows with it that none of them is left out there.
package optiontest

import "github.com/contiv/cluster/inventory"

// Set sets one option to a good value.
func Set(to *inventory.JobOptions, o inventory.JobOption) {
	switch value := o.In(to).(type) {
	case *bool:
		*value = true
	case *int:
		*value = 1
	case *string:
		if *value = "1"; len(o.Choices) > 0 {
			*value = o.Choices[len(o.Choices)-1].Value
		}
	case *[]string:
		*value = []string{"web"}
	}
}

// All returns every option, set.
func All() inventory.JobOptions {
	var options inventory.JobOptions
	for _, o := range inventory.Options {
		Set(&options, o)
	}

	return options
}
