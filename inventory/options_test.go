// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/optiontest"
)

// TestOptionsAreWhole: each field of JobOptions has a row under its JSON name, and each row is complete.
func TestOptionsAreWhole(t *testing.T) {
	t.Parallel()

	var fields []string

	shared := map[string]bool{}
	for field := range reflect.TypeFor[inventory.SharedOptions]().Fields() {
		shared[jsonName(field)] = true
	}

	for _, field := range reflect.VisibleFields(reflect.TypeFor[inventory.JobOptions]()) {
		if field.Anonymous {
			continue
		}

		name := jsonName(field)
		fields = append(fields, name)

		i := slices.IndexFunc(inventory.Options, func(o inventory.JobOption) bool { return string(o.Field) == name })
		if i < 0 {
			t.Errorf("%s has no row in Options", name)
			continue
		}

		var options inventory.JobOptions
		optiontest.Set(&options, inventory.Options[i])

		if reflect.ValueOf(options).FieldByIndex(field.Index).IsZero() || !inventory.Options[i].IsSet(options) {
			t.Errorf("the row of %s has another field", name)
		}

		if inventory.Options[i].Shared != shared[name] {
			t.Errorf(
				"Shared of %s is %t; it is one of SharedOptions: %t",
				name,
				inventory.Options[i].Shared,
				shared[name],
			)
		}
	}

	for _, o := range inventory.Options {
		if !slices.Contains(fields, string(o.Field)) {
			t.Errorf("%s has a row, but no field", o.Field)
		}

		if (o.Takes != nil || o.Shared) && o.Meaning == "" {
			t.Errorf("%s has no meaning", o.Field)
		}

		if !slices.ContainsFunc(
			inventory.Lifecycle,
			func(row inventory.Transition) bool { return row.Accepts(o.Field) },
		) {
			t.Errorf("no verb takes %s", o.Field)
		}
	}
}

func jsonName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}

// TestOptionsFor: a verb gets the options that it takes, and no other.
func TestOptionsFor(t *testing.T) {
	t.Parallel()

	for _, row := range inventory.Lifecycle {
		taken := optiontest.All().For(row)
		for _, o := range inventory.Options {
			if o.IsSet(taken) != row.Accepts(o.Field) {
				t.Errorf("%s: %s is set: %t", row.Verb, o.Field, o.IsSet(taken))
			}
		}

		if err := taken.CheckOptions(); err != nil {
			t.Errorf("%s: %v", row.Verb, err)
		}
	}
}

// TestOptionsThatNeedAReason: they are refused without one.
func TestOptionsThatNeedAReason(t *testing.T) {
	t.Parallel()

	for _, o := range inventory.Options {
		var options inventory.JobOptions

		optiontest.Set(&options, o)
		options.Serial = "1"

		if err := options.CheckOptions(); (err != nil) != (o.Reason != "") {
			t.Errorf("%s without a reason: %v", o.Field, err)
		}
	}
}
