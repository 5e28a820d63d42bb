// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"reflect"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// fieldFlags builds the option for each field of a request that is no option of its job, from the
// field's meaning in the lifecycle table.
var fieldFlags = map[inventory.Field]func(meaning string) cli.Flag{
	inventory.FieldGroup: func(meaning string) cli.Flag {
		return valueFlag("host-group", valueName(meaning, "group"), "g")
	},
	inventory.FieldHostKeys:  hostKeyFlag,
	inventory.FieldExtraVars: extraVarsFlag,
}

// flagsOf returns the options for the fields of a request that the row of a verb names.
func flagsOf(row inventory.Transition) []cli.Flag {
	var flags []cli.Flag

	for _, named := range row.Options {
		if field, ok := fieldFlags[named.Field]; ok {
			flags = append(flags, field(named.Meaning))
		}

		for _, o := range inventory.Options {
			if o.Field == named.Field {
				flags = append(flags, optionFlag(o, named.Meaning))
			}
		}
	}

	return flags
}

// optionFlags returns those options of jobs that are chosen and have one meaning everywhere.
func optionFlags(chosen func(inventory.JobOption) bool) []cli.Flag {
	var flags []cli.Flag

	for _, o := range inventory.Options {
		if o.Meaning != "" && chosen(o) {
			flags = append(flags, optionFlag(o, o.Meaning))
		}
	}

	return flags
}

// everyTaken chooses the options that the verb takes without naming them in its row.
func everyTaken(row inventory.Transition) func(inventory.JobOption) bool {
	return func(o inventory.JobOption) bool { return o.Takes != nil && o.Takes(row) }
}

func optionFlag(o inventory.JobOption, meaning string) cli.Flag {
	usage := meaning
	if o.Value != "" {
		usage = valueName(meaning, o.Value)
	}
	if o.Reason != "" {
		usage += " (--reason)"
	}

	switch o.In(&inventory.JobOptions{}).(type) {
	case *bool:
		return switchFlag(o.Name(), usage)
	case *[]string:
		return listFlag(o.Name(), usage)
	}

	return valueFlag(o.Name(), usage) // number explains a bad number better than the library
}

// valueName marks the word in a usage as the name of the option's value.
func valueName(usage, word string) string {
	return strings.Replace(usage, word, "`"+strings.ToUpper(word)+"`", 1)
}

// fill sets the fields of a request for which the command line has an option: that with the name of the field in JSON,
// with - for _. An option for each text of a list may lack the s at the end. The options in but are left out.
func (c *call) fill(request any, but ...string) (err error) {
	v := reflect.ValueOf(request).Elem()

	for _, f := range reflect.VisibleFields(v.Type()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		name = strings.ReplaceAll(name, "_", "-")
		field := v.FieldByIndex(f.Index).Addr().Interface()

		if _, isList := field.(*[]string); isList && !c.IsSet(name) {
			name = strings.TrimSuffix(name, "s")
		}

		if !c.IsSet(name) || slices.Contains(but, name) {
			continue
		}

		switch field := field.(type) {
		case *bool:
			*field = c.Bool(name)
		case **bool: // yes, no, and inherited
			*field = new(c.Bool(name))
		case *string:
			*field = c.String(name)
		case *[]string:
			*field = values(c, name)
		case *api.Duration:
			*field, err = c.duration(name)
		case *int:
			*field, err = number(c, name, 0)
		}

		if err != nil {
			return err
		}
	}

	return nil
}

// jobOptions returns the options of a job that the command line has.
func (c *call) jobOptions() (options inventory.JobOptions, err error) {
	if err = c.fill(&options); err != nil {
		return options, err
	}

	for _, o := range inventory.Options {
		if o.Reason != "" && o.IsSet(options) && options.Reason == "" {
			return options, exit.Usagef("%s --%s needs a reason for the history", short(c.FullName()), o.Name()).
				Try("add --reason TEXT")
		}
	}

	if c.IsSet("serial") && options.Serial == "" {
		return options, exit.Usagef("--serial is empty").Try("give the size of a batch, such as 2 or 25%%")
	}

	return options, nil
}

// choicesOf returns the possible values of an option of a job that has few of them.
func choicesOf(flag string) []candidate {
	var out []candidate

	for _, o := range inventory.Options {
		for _, choice := range o.Choices {
			if o.Name() == flag {
				out = append(out, candidate{choice.Value, choice.Meaning})
			}
		}
	}

	return out
}
