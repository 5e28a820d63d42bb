// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// SharedOptions are the options that rollouts have as well as jobs. A rollout hands them on to its jobs.
type SharedOptions struct {
	// apply, maintenance: run only the tasks with one of these tags (`ansible-playbook --tags`), which must be
	// among the tags of the group. The applied configuration is unknown afterwards. A node without a selected
	// task has failed.
	Tags []string `json:"tags,omitempty" maxItems:"50" type:"array,null"`
	// apply, maintenance: leave out the tasks with one of these tags (`ansible-playbook --skip-tags`). The
	// applied configuration is unknown afterwards.
	SkipTags []string `json:"skip_tags,omitempty" maxItems:"50" type:"array,null"`
	// Begin outside of maintenance windows, and during a freeze; requires a reason. Refused for a job that
	// changes no host, which no window holds.
	OverrideWindow bool   `json:"override_window,omitempty"`
	Reason         string `json:"reason,omitempty"` // the operator's reason, kept in the history
}

// JobOptions are the options of a job: all that a request chooses besides the verb, the targets, the group and the
// variables. Whatever has them embeds this type: the request, the job, the action of a remedy, and their forms in the
// API and in the store, under the names below. Options has a row for each field.
//
// The type is in this package, below all others, because the action of a remedy has the options too.
//
// The time limit is not among them: the API writes it as text, and the store in nanoseconds.
type JobOptions struct {
	// commission: the nodes to clean up after a failure, all nodes of the batch or only the failed ones.
	OnFailure string `json:"on_failure,omitempty" enum:"batch,failed"`
	// update, apply, reapply, maintenance, verify, decommission: the size of a batch, a number of nodes or their
	// share. The nodes are taken in batches, in order; without it, all at once.
	Serial string `json:"serial,omitempty" pattern:"^([1-9][0-9]*|[1-9][0-9]?%|100%)$" example:"25%"`
	// update, apply, reapply, maintenance, verify, decommission: the number of failed nodes with which the next
	// batch still begins; verify counts nodes without a verdict, not those that drifted. Needs serial.
	MaxFailures int `json:"max_failures,omitempty"`
	// inspect, install: the number of nodes at a time.
	Concurrency int `json:"concurrency,omitempty" maximum:"200"`
	// inspect: `network` boots the machines from the network into an environment that tells their facts. They need no
	// system; one that runs there is stopped.
	Boot string `json:"boot,omitempty" enum:"network"`
	// install: the name of the image of the kind `disk` that is written. Without it, each node gets the image of its
	// registration.
	Image string `json:"image,omitempty" example:"debian-12"`
	// Verbs that clean or verify nodes: `current` takes the configured folder. Without it, each node is cleaned
	// or verified with the playbooks that configured it.
	Playbooks string `json:"playbooks,omitempty" enum:"current"`
	// verify: a node with tasks that check mode cannot judge is unknown, not clean.
	Strict bool `json:"strict,omitempty"`
	// apply, maintenance: run `ansible-playbook --check`. It changes nothing, the nodes stay as they are, and
	// the job counts the changes that a run would make. Tasks with `check_mode: false` are executed all the
	// same.
	Check bool `json:"check,omitempty"`
	// Run `ansible-playbook --diff`: the output shows the differences in files.
	Diff bool `json:"diff,omitempty"`
	// The verbosity of ansible-playbook: the number of `v` in `-v`.
	Verbosity int `json:"verbosity,omitempty" maximum:"4"`
	// provide: erase the disks that the running system of the node does not use. `metadata`: the partition tables and
	// the signatures of file systems, RAID and LVM; `full`: every block.
	Erase string `json:"erase,omitempty" enum:"metadata,full"`
	// clear: skip the cleanup. power: switch nodes in service too. manage: ask BMCs again that have refused the login
	// before. Requires a reason.
	Force bool `json:"force,omitempty"`
	// discover: also take hosts that belong to another manager, and stop a manager that runs on them; requires a
	// reason.
	TakeOver bool `json:"take_over,omitempty"`

	SharedOptions
}

// PlaybooksCurrent is JobOptions.Playbooks for the configured folder.
const PlaybooksCurrent = "current"

// The values of JobOptions.OnFailure.
const (
	OnFailureBatch  = "batch"  // clean up all nodes of the batch; the default
	OnFailureFailed = "failed" // clean up only the nodes that failed
)

// The values of JobOptions.Erase.
const (
	EraseMetadata = "metadata"
	EraseFull     = "full"
)

// BootNetwork is JobOptions.Boot for machines that boot from the network.
const BootNetwork = "network"

// MaxVerbosity is the highest verbosity of ansible-playbook that a request may ask for.
const MaxVerbosity = 4

// MaxConcurrency is the largest number of nodes at a time that a request may ask for.
const MaxConcurrency = 200

// imageName is the form of the names of images.
var imageName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,59}$`)

// maxReason bounds the reason of an operator, in bytes.
const maxReason = 1024

// The optional fields of a request that are options of its job.
const (
	FieldPlaybooks      Field = "playbooks"
	FieldForce          Field = "force"
	FieldErase          Field = "erase"
	FieldOnFailure      Field = "on_failure"
	FieldSerial         Field = "serial"
	FieldMaxFailures    Field = "max_failures"
	FieldConcurrency    Field = "concurrency"
	FieldBoot           Field = "boot"
	FieldImage          Field = "image"
	FieldStrict         Field = "strict"
	FieldTakeOver       Field = "take_over"
	FieldOverrideWindow Field = "override_window"
	FieldCheck          Field = "check"
	FieldDiff           Field = "diff"
	FieldTags           Field = "tags"
	FieldSkipTags       Field = "skip_tags"
	FieldVerbosity      Field = "verbosity"
	FieldReason         Field = "reason"
)

// JobOption describes one option of a job to everything that is the same for all options: the acceptance, the
// options of clusterctl with their help and completion, what is printed, remedies and the audit trail.
type JobOption struct {
	Field Field
	// In returns a pointer to the field: *bool, *int, *string or *[]string.
	In func(*JobOptions) any
	// Takes reports whether a verb takes the option. nil: if its row of the lifecycle table names it, which has the
	// meaning then.
	Takes func(Transition) bool
	// Shared: rollouts have the option, which is one of SharedOptions.
	Shared bool

	Meaning string // for help, where the lifecycle table has none
	Value   string // the word in the meaning that stands for the value; empty: a switch
	Flag    string // of clusterctl; empty: the name of the field with hyphens
	Choices []Choice

	// Reason is what the option is set for, if it needs a reason: "to ... a reason is needed".
	Reason string
	// Refusal is why a verb does not take the option, if that wants an explanation.
	Refusal string
	// Audit is what the audit trail says before the reason.
	Audit string
	// Danger is what the option destroys. clusterctl asks about it once more.
	Danger string
	// Check refuses a value that no verb takes. nil: all values are good.
	Check func(JobOptions) error

	Label string // in the details of a job, a plan and a rollout; empty: they print it in their own way
	Long  bool   // a job shows it in its long form only
	Note  string // is printed after the yes of a switch
}

// Choice is a value of an option with few of them.
type Choice struct{ Value, Meaning string }

// Options lists the options of a job, in the order in which they are printed. A new option is a field of JobOptions
// and a row here; unless its row says what takes it, the verbs that do name it in the lifecycle table.
var Options = []JobOption{
	{
		Field: FieldPlaybooks, In: func(o *JobOptions) any { return &o.Playbooks },
		Value: "playbooks", Label: "Playbooks",
		Choices: []Choice{{PlaybooksCurrent, "those of the configured folder"}},
		Check: func(o JobOptions) error {
			if o.Playbooks == PlaybooksCurrent {
				return nil
			}

			return Errorf(KindInvalid, "playbooks is %q", o.Playbooks).
				Do("use %q, or leave it out for the playbooks that configured each node", PlaybooksCurrent)
		},
	},
	{
		Field: FieldForce, In: func(o *JobOptions) any { return &o.Force },
		Label: "Force", Long: true, Reason: "force it",
	},
	{
		Field: FieldErase, In: func(o *JobOptions) any { return &o.Erase },
		Value: "how", Label: "Erase",
		Choices: []Choice{
			{EraseMetadata, "partition tables and signatures"}, {EraseFull, "every block"},
		},
		Danger: "the data on every disk that the running system does not use",
		Check: func(o JobOptions) error {
			if o.Erase == EraseMetadata || o.Erase == EraseFull {
				return nil
			}

			return Errorf(KindInvalid, "erase is %q", o.Erase).
				Do("use %q or %q, or leave it out to keep the disks as they are", EraseMetadata, EraseFull)
		},
	},
	{
		Field: FieldOnFailure, In: func(o *JobOptions) any { return &o.OnFailure },
		Value: "scope", Label: "On failure", Long: true,
		Choices: []Choice{
			{OnFailureBatch, "clean up all nodes of the request"}, {OnFailureFailed, "clean up the failed nodes"},
		},
		Check: func(o JobOptions) error {
			if o.OnFailure == OnFailureBatch || o.OnFailure == OnFailureFailed {
				return nil
			}

			return Errorf(KindInvalid, "on_failure is %q", o.OnFailure).
				Do("use %q or %q", OnFailureBatch, OnFailureFailed)
		},
	},
	{
		Field: FieldSerial, In: func(o *JobOptions) any { return &o.Serial },
		Value: "size", Label: "Serial", Long: true,
		Check: func(o JobOptions) error {
			if _, err := Amount(o.Serial).Of(1); err == nil {
				return nil
			}

			return Errorf(KindInvalid, "serial is %q", o.Serial).
				Do("write the number of nodes in a batch, such as 2, or their share from 1%% to 100%%, such as 25%%")
		},
	},
	{
		Field: FieldMaxFailures, In: func(o *JobOptions) any { return &o.MaxFailures },
		Value: "number", Label: "Max failures", Long: true,
		Check: func(o JobOptions) error {
			switch {
			case o.MaxFailures < 0:
				return Errorf(KindInvalid, "max_failures is %d", o.MaxFailures).
					Do("write the number of failed nodes with which the next batch still begins: 0 or more")
			case o.Serial == "":
				return Errorf(KindInvalid, "max_failures is set, but all nodes are one batch").
					Do("set serial to the size of a batch as well")
			}

			return nil
		},
	},
	{
		Field: FieldConcurrency, In: func(o *JobOptions) any { return &o.Concurrency },
		Value: "number", Label: "Concurrency", Long: true,
		Check: func(o JobOptions) error {
			if o.Concurrency >= 1 && o.Concurrency <= MaxConcurrency {
				return nil
			}

			return Errorf(KindInvalid, "concurrency is %d", o.Concurrency).
				Do("write a number of nodes from 1 to %d", MaxConcurrency)
		},
	},
	{
		Field: FieldBoot, In: func(o *JobOptions) any { return &o.Boot },
		Value: "from", Label: "Boot", Choices: []Choice{{BootNetwork, "from the network"}},
		Check: func(o JobOptions) error {
			if o.Boot == BootNetwork {
				return nil
			}

			return Errorf(KindInvalid, "boot is %q", o.Boot).
				Do("use %q, or leave it out to ask the systems that run there", BootNetwork)
		},
	},
	{
		Field: FieldImage, In: func(o *JobOptions) any { return &o.Image },
		Value: "name", Label: "Image",
		Check: func(o JobOptions) error {
			if imageName.MatchString(o.Image) {
				return nil
			}

			return Errorf(KindInvalid, "image is %q", Shorten(o.Image, 60)).
				Do("write the name of an image: lower-case letters, digits, dots and dashes")
		},
	},
	{Field: FieldStrict, In: func(o *JobOptions) any { return &o.Strict }, Label: "Strict"},
	{
		Field: FieldTakeOver, In: func(o *JobOptions) any { return &o.TakeOver },
		Label: "Take over", Long: true, Reason: "take hosts over from another manager",
	},
	{
		Field: FieldOverrideWindow, In: func(o *JobOptions) any { return &o.OverrideWindow },
		Shared: true, Takes: func(row Transition) bool { return !row.Looks },
		Meaning: "begin outside of maintenance windows, and during a freeze",
		Label:   "Override window", Long: true,
		Reason: "begin outside of a maintenance window", Audit: "override of the maintenance window",
	},
	{
		Field: FieldCheck, In: func(o *JobOptions) any { return &o.Check },
		Label: "Check", Note: "its counts of changes are those that a run would make", Refusal: partial,
	},
	{
		Field: FieldDiff, In: func(o *JobOptions) any { return &o.Diff }, Takes: everyVerb,
		Meaning: "show the differences in files, in the output of the job", Label: "Diff",
	},
	{
		Field: FieldTags, In: func(o *JobOptions) any { return &o.Tags },
		Shared: true, Meaning: "run only the tasks with one of these tags", Value: "tags",
		Label: "Tags", Refusal: partial,
		Check: func(o JobOptions) error { return checkTags(string(FieldTags), o.Tags) },
	},
	{
		Field: FieldSkipTags, In: func(o *JobOptions) any { return &o.SkipTags },
		Shared: true, Meaning: "leave out the tasks with one of these tags", Value: "tags",
		Label: "Skip tags", Refusal: partial,
		Check: func(o JobOptions) error { return checkTags(string(FieldSkipTags), o.SkipTags) },
	},
	{
		Field: FieldVerbosity, In: func(o *JobOptions) any { return &o.Verbosity }, Takes: everyVerb,
		Meaning: fmt.Sprintf("the verbosity level of ansible-playbook, from 0 to %d: the number of v in its -v",
			MaxVerbosity),
		Value: "level", Flag: "ansible-verbosity", Label: "Ansible verbosity",
		Check: func(o JobOptions) error {
			if o.Verbosity >= 0 && o.Verbosity <= MaxVerbosity {
				return nil
			}

			return Errorf(KindInvalid, "verbosity is %d", o.Verbosity).
				Do("write a number from 0 to %d", MaxVerbosity)
		},
	},
	{
		Field: FieldReason, In: func(o *JobOptions) any { return &o.Reason }, Takes: everyVerb, Shared: true,
		Meaning: "the reason, for the history and the audit trail", Value: "reason",
		Check: func(o JobOptions) error { return CheckReason(o.Reason) },
	},
}

// partial is why a verb has to have all of its tasks.
const partial = "a host without all of its tasks would count as if it had had them"

func everyVerb(Transition) bool { return true }

// Name returns the name of the option in clusterctl, without hyphens before it.
func (o JobOption) Name() string {
	if o.Flag != "" {
		return o.Flag
	}
	return strings.ReplaceAll(string(o.Field), "_", "-")
}

// Text returns the value of the option as a word of a command line, and whether the option is set.
func (o JobOption) Text(of JobOptions) (text string, set bool) {
	switch value := o.In(&of).(type) {
	case *bool:
		return strconv.FormatBool(*value), *value
	case *int:
		return strconv.Itoa(*value), *value != 0
	case *string:
		return *value, *value != ""
	case *[]string:
		return strings.Join(*value, ","), len(*value) > 0
	}

	return "", false
}

// IsSet reports whether the option is set.
func (o JobOption) IsSet(of JobOptions) bool {
	_, set := o.Text(of)
	return set
}

// CheckOptions refuses values that no verb takes, and options without the reason that they need.
func (o JobOptions) CheckOptions() error {
	for _, option := range Options {
		switch {
		case !option.IsSet(o):
		case option.Reason != "" && strings.TrimSpace(o.Reason) == "":
			return Errorf(KindInvalid, "to %s a reason is needed", option.Reason).Do("give a reason")
		case option.Check != nil:
			if err := option.Check(o); err != nil {
				return err
			}
		}
	}

	return nil
}

// CheckReason refuses a reason that is too long to keep with the records.
func CheckReason(reason string) error {
	if len(reason) > maxReason {
		return Errorf(KindTooLarge, "the reason has %d bytes, the limit is %d", len(reason), maxReason).
			Do("shorten it")
	}

	return nil
}

// For returns the options that the verb of the row takes.
func (o JobOptions) For(row Transition) JobOptions {
	for _, option := range Options {
		if !row.Accepts(option.Field) {
			reflect.ValueOf(option.In(&o)).Elem().SetZero()
		}
	}

	return o
}

// AuditReason returns the reason for the audit trail, after the options that it names.
func (o JobOptions) AuditReason() string {
	reason := o.Reason

	for _, option := range Options {
		if option.Audit != "" && option.IsSet(o) {
			reason = option.Audit + ": " + reason
		}
	}

	return reason
}

// Selection returns the choice of tasks.
func (o SharedOptions) Selection() Selection { return Selection{Tags: o.Tags, SkipTags: o.SkipTags} }

// Partial reports whether a run with the options may leave out tasks.
func (o SharedOptions) Partial() bool { return !o.Selection().Empty() }
