// SPDX-License-Identifier: Apache-2.0

// Package selector selects nodes by fields and labels, in the syntax of the label
// selectors of Kubernetes and with its parser:
//
//	group=service-worker,status!=Allocated,rack in (r1,r2),!old
//
// A nonexistent status, state, verb or group is an error, not an empty selection.
package selector

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/contiv/cluster/inventory"
)

// MaxBytes is the maximum length of a selector.
const MaxBytes = 8 << 10

// field is a selectable field of a node. An empty value counts as absent: "!job"
// selects nodes without a job.
type field struct {
	name string
	// value returns the value in the record; nil: it depends on more, see Judging.
	value func(*inventory.Node) string
	// parse normalizes or refuses a value; nil accepts any value.
	parse func(string) (string, error)
}

var fields = append([]field{
	{"name", func(n *inventory.Node) string { return n.Name }, nil},
	{"label", func(n *inventory.Node) string { return n.Label }, nil},
	{"serial", func(n *inventory.Node) string { return n.Serial }, nil},
	{"addr", func(n *inventory.Node) string { return n.Addr }, nil},
	{"status", func(n *inventory.Node) string { return string(n.Status) }, func(s string) (string, error) {
		status, err := inventory.ParseStatus(s)
		return string(status), err
	}},
	{"state", func(n *inventory.Node) string { return string(n.State) }, func(s string) (string, error) {
		state, err := inventory.ParseState(s)
		return string(state), err
	}},
	{"group", func(n *inventory.Node) string { return n.Group }, nil}, // see Parse
	{"job", func(n *inventory.Node) string { return n.Job }, func(s string) (string, error) {
		_, err := strconv.ParseUint(s, 10, 64)
		return s, err
	}},
	{"verb", func(n *inventory.Node) string { return string(n.Verb) }, func(s string) (string, error) {
		t, _ := inventory.TransitionOf(inventory.Verb(s))
		if !t.ChangesStatus() {
			return "", fmt.Errorf("%q is not a verb of a job", s)
		}
		return s, nil
	}},
	{"verification", func(n *inventory.Node) string {
		if n.Verification == nil {
			return ""
		}
		return string(n.Verification.Result)
	}, func(s string) (string, error) {
		switch r := inventory.VerdictResult(s); r {
		case inventory.Clean, inventory.Drifted, inventory.Unverified:
			return s, nil
		}

		return "", fmt.Errorf("%q is not a verdict: clean, drifted or unknown", s)
	}},
	{"last_error", func(n *inventory.Node) string { return n.LastError }, func(string) (string, error) {
		return "", errors.New("last_error has no value to compare")
	}},
	{"alert", func(n *inventory.Node) string {
		if len(n.Alerts) == 0 {
			return ""
		}
		return n.Alerts[0].ID
	}, func(string) (string, error) {
		return "", errors.New("a node can have several alerts, so alert has no value to compare")
	}},
	{"outdated", nil, func(s string) (string, error) {
		if s != "true" && s != "false" {
			return "", fmt.Errorf("outdated is true or false, or absent where that is not known, and not %q", s)
		}
		return s, nil
	}},
	{"power", nil, func(s string) (string, error) {
		if s != "on" && s != "off" && s != "changing" {
			return "", fmt.Errorf("power is on, off or changing, or absent where no BMC ever said it, and not %q", s)
		}
		return s, nil
	}},
}, hardwareFields()...)

// hardwarePrefix begins the fields about hardware.
const hardwarePrefix = "facts."

// numbers are the fields that < and > compare.
var numbers = map[string]bool{}

func hardwareFields() []field {
	var all []field

	for _, h := range inventory.HardwareFields {
		f := field{name: hardwarePrefix + h.Name, value: h.Of}
		if h.Number {
			numbers[f.name] = true
			f.parse = func(s string) (string, error) {
				n, err := strconv.ParseUint(s, 10, 63)
				if err != nil {
					return "", fmt.Errorf("%s is a number, and not %q", f.name, s)
				}
				return strconv.FormatUint(n, 10), nil
			}
		}

		all = append(all, f)
	}

	return all
}

// Fields returns the names of the selectable fields.
func Fields() []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}

	return names
}

// hardwareNames returns the names of the fields about hardware.
func hardwareNames() []string {
	return slices.DeleteFunc(Fields(), func(name string) bool { return !strings.HasPrefix(name, hardwarePrefix) })
}

// shownFields lists the fields for a remedy, those of hardware in short.
func shownFields() string {
	own := slices.DeleteFunc(Fields(), func(name string) bool { return strings.HasPrefix(name, hardwarePrefix) })
	return strings.Join(own, ", ") + ", and those of hardware, such as " + hardwarePrefix + "memory_mb"
}

// Selector selects nodes. The zero value selects all.
type Selector struct {
	all   []requirement
	judge Judge
}

// Judge returns the value of a field that is not in the record of a node, or "" where that is not known.
type Judge func(field string, n *inventory.Node) string

type requirement struct {
	key    string
	field  *field // nil: a label
	op     selection.Operator
	values []string
}

// notLabel matches values of fields that are invalid as labels: IPv6 addresses,
// and names longer than 63 bytes.
var notLabel = regexp.MustCompile(`[^\s=!(),<>]*:[^\s=!(),<>]*|[^\s=!(),<>]{64,}`)

// Parse parses a selector. An empty text selects all nodes; a blank one, a likely
// mistake of a script with unset variables, is refused. checkGroup refuses
// nonexistent groups. Errors are KindInvalid.
func Parse(text string, checkGroup func(string) error) (Selector, error) {
	if len(text) > MaxBytes {
		return Selector{}, inventory.Errorf(
			inventory.KindInvalid,
			"the selector has %d bytes; the limit is %d",
			len(text),
			MaxBytes,
		)
	}

	if text != "" && strings.TrimSpace(text) == "" {
		return Selector{}, inventory.
			Errorf(inventory.KindInvalid, "the selector %q is blank and would select all nodes", text).
			Do("write a condition, or omit the selector")
	}

	// The parser ends at a zero byte, and would ignore the conditions after it.
	if i := strings.IndexByte(text, 0); i >= 0 {
		return Selector{}, malformed(text, fault{i, "a zero byte belongs to no field, label or value"})
	}

	// The parser accepts only labels, so it gets placeholders for other values.
	placeholder := "x"
	for strings.Contains(text, placeholder) {
		placeholder += "x"
	}

	var words []string
	parsed, err := labels.ParseToRequirements(notLabel.ReplaceAllStringFunc(text, func(word string) string {
		words = append(words, word)
		return placeholder + strconv.Itoa(len(words)-1)
	}))
	original := func(word string) string {
		if number, ok := strings.CutPrefix(word, placeholder); ok {
			if i, err := strconv.Atoi(number); err == nil && i < len(words) {
				return words[i]
			}
		}

		return word
	}

	if err != nil {
		return Selector{}, malformed(text, faultOf(text, err))
	}

	// Restore the placeholders before any value is checked.
	var s Selector
	for _, p := range parsed {
		r := requirement{key: original(p.Key()), op: p.Operator(), values: p.ValuesUnsorted()}
		for i, value := range r.values {
			r.values[i] = original(value)
		}

		if err := r.check(checkGroup); err != nil {
			return Selector{}, err
		}

		s.all = append(s.all, r)
	}

	return s, nil
}

// malformed returns the error for a malformed selector.
func malformed(text string, f fault) error {
	return inventory.Errorf(inventory.KindInvalid, "the selector %q is malformed at character %d: %s",
		text, f.character(text), f.problem).
		Do("write it like group=service-worker,status!=Allocated,rack in (r1,r2),!old")
}

// check resolves the key to a field or a label and normalizes the values.
func (r *requirement) check(checkGroup func(string) error) error {
	i := slices.IndexFunc(fields, func(f field) bool { return f.name == r.key })
	if i < 0 {
		// A label may have dots, but a misspelled fact would match no node without a word.
		if name, fact := strings.CutPrefix(strings.ToLower(r.key), hardwarePrefix); fact {
			return inventory.Errorf(inventory.KindInvalid, "there is no fact %q", name).
				Do("write one of %s", strings.Join(hardwareNames(), ", "))
		}

		if err := inventory.CheckLabelKey(r.key); err != nil {
			return inventory.Errorf(inventory.KindInvalid, "%q is neither a field nor a valid label", r.key).
				Do("use a label, or one of the fields %s", shownFields())
		}

		for _, value := range r.values {
			if err := inventory.CheckLabelValue(value); err != nil {
				return err
			}
		}

		return nil
	}

	r.field = &fields[i]

	// Groups are configuration, so only the caller can check them.
	parse := r.field.parse
	if r.key == "group" {
		parse = func(s string) (string, error) { return s, checkGroup(s) }
	}

	if (r.op == selection.GreaterThan || r.op == selection.LessThan) && !numbers[r.key] {
		return inventory.Errorf(inventory.KindInvalid, "%s is not a number, so < and > do not apply", r.key).
			Do("use =, !=, in or notin")
	}

	for i, value := range r.values {
		if value == "" {
			return inventory.Errorf(inventory.KindInvalid, "the selector compares %s with an empty value", r.key).
				Do("to test for presence, write %s or !%s", r.key, r.key)
		}

		if parse == nil {
			continue
		}

		var err error
		if r.values[i], err = parse(value); err != nil {
			problem, remedy := err.Error(), remedies[r.key]
			// A more specific remedy replaces the general one.
			if e, ok := errors.AsType[*inventory.Error](err); ok && e.Remedy != "" {
				problem, remedy = e.Message, e.Remedy
			}
			return inventory.Errorf(inventory.KindInvalid, "in the selector: %s", problem).Do("%s", remedy)
		}
	}

	return nil
}

var remedies = func() map[string]string {
	statuses, states, verbs := []string{}, []string{}, []string{}
	for _, row := range inventory.Statuses {
		statuses = append(statuses, string(row.Status))
	}

	for _, row := range inventory.States {
		states = append(states, string(row.State))
	}

	for _, row := range inventory.Lifecycle {
		if row.ChangesStatus() {
			verbs = append(verbs, string(row.Verb))
		}
	}

	return map[string]string{
		"status": "the statuses are " + strings.Join(statuses, ", "),
		"state":  "the states are " + strings.Join(states, ", "),
		"verb":   "the verbs are " + strings.Join(verbs, ", "),
		"job":    "give the number of a job",

		"alert":      "to test for presence, write alert or !alert",
		"last_error": "to test for presence, write last_error or !last_error",
	}
}()

// Keys returns the fields and labels that the selector compares, in its order.
func (s Selector) Keys() []string {
	keys := make([]string, len(s.all))
	for i, r := range s.all {
		keys[i] = r.key
	}

	return keys
}

// Judged returns the first field that the selection depends on and that is not in the record of a node; "": there is
// none.
func (s Selector) Judged() string {
	for _, r := range s.all {
		if r.field != nil && r.field.value == nil {
			return r.key
		}
	}

	return ""
}

// OfHardware reports whether the selection depends on facts, which hosts say of themselves.
func (s Selector) OfHardware() bool {
	return slices.ContainsFunc(s.all, func(r requirement) bool { return strings.HasPrefix(r.key, hardwarePrefix) })
}

// Judging returns a selector that asks judge for the fields that are not in the record of a node.
func (s Selector) Judging(judge Judge) Selector {
	s.judge = judge
	return s
}

// Matches reports whether the selector selects the node. One with a field that is Judged selects none before Judging.
func (s Selector) Matches(n *inventory.Node) bool {
	if s.judge == nil && s.Judged() != "" {
		return false
	}

	for i := range s.all {
		if !s.all[i].matches(n, s.judge) {
			return false
		}
	}

	return true
}

// matches follows Kubernetes: an absent value differs from every value.
func (r *requirement) matches(n *inventory.Node, judge Judge) bool {
	value, has := "", false

	switch {
	case r.field == nil:
		value, has = n.Labels[r.key]
	case r.field.value == nil:
		value = judge(r.key, n)
		has = value != ""
	default:
		value = r.field.value(n)
		has = value != ""
	}

	switch r.op {
	case selection.Exists:
		return has
	case selection.DoesNotExist:
		return !has
	case selection.Equals, selection.DoubleEquals, selection.In:
		return has && slices.Contains(r.values, value)
	case selection.NotEquals, selection.NotIn:
		return !has || !slices.Contains(r.values, value)
	case selection.GreaterThan, selection.LessThan:
		// The parser guarantees exactly one value, and that it is a number.
		a, err1 := strconv.ParseInt(value, 10, 64)
		b, err2 := strconv.ParseInt(r.values[0], 10, 64)
		return has && err1 == nil && err2 == nil && (r.op == selection.GreaterThan) == (a > b) && a != b
	}

	return false
}
