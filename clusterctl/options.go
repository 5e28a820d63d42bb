// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/inventory"
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

// jobOptions returns the options of a job that the command line has.
func (c *call) jobOptions() (options inventory.JobOptions, err error) {
	for _, o := range inventory.Options {
		switch value := o.In(&options).(type) {
		case *bool:
			*value = c.Bool(o.Name())
		case *string:
			*value = c.String(o.Name())
		case *[]string:
			*value = values(c, o.Name())
		case *int:
			if *value, err = number(c, o.Name(), 0); err != nil {
				return options, err
			}
		}
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
