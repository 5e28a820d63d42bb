// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Limits of operators' labels.
const (
	MaxLabels      = 64  // labels on one node
	MaxLabelPrefix = 253 // bytes of the domain before the slash of a key
	MaxLabelWord   = 63  // bytes of a value, and of a key without its domain
)

// CheckLabelKey validates the key of an operator's label: a word (see CheckLabel),
// optionally after a domain name in lower case and a slash. It rejects the
// field names of a node, because a selector reads those as the field.
func CheckLabelKey(key string) error {
	prefix, name, prefixed := strings.Cut(key, "/")
	if !prefixed {
		prefix, name = "", key
	}

	switch {
	case !isWord(name, MaxLabelWord), prefixed && !isLabelPrefix(prefix):
		return Errorf(KindInvalid, "%q cannot be the key of a label", key).
			Do("write it like rack or example.com/rack: "+wordGrammar, MaxLabelWord)
	case slices.Contains(nodeFields, key):
		return Errorf(KindInvalid, "%q is a field of every node, so it cannot be the key of a label", key).
			Do("choose another key, e.g. example.com/%s", key)
	}

	return nil
}

// CheckLabelValue validates the value of an operator's label: empty or a word.
func CheckLabelValue(value string) error {
	if value == "" || isWord(value, MaxLabelWord) {
		return nil
	}
	return Errorf(KindInvalid, "%q cannot be the value of a label", value).Do("use "+wordGrammar, MaxLabelWord)
}

// wordGrammar describes a word to an operator; its argument is the limit in bytes.
const wordGrammar = "letters, digits, '.', '_' and '-', at most %d bytes, with a letter or a digit at both ends"

func isWord(s string, limit int) bool { return len(s) <= limit && word.MatchString(s) }

func isLabelPrefix(s string) bool {
	return len(s) <= MaxLabelPrefix && hostname.MatchString(s) && s == strings.ToLower(s)
}

// nodeFields lists the names of a node's fields in selectors and in the API,
// including the connection and the rivals, which the API adds to the record.
var nodeFields = []string{
	"name",
	"label",
	"serial",
	"addr",
	"status",
	"prev_status",
	"state",
	"prev_state",
	"group",
	"residue",
	"uncleaned",
	"cleaned",
	"playbooks",
	"applied",
	"last_error",
	"verification",
	"job",
	"verb",
	"before",
	"labels",
	"seen",
	"sightings",
	"duplicates",
	"set_aside",
	"alert",
	"alerts",
	"host_keys",
	"entries",
	"created",
	"updated",
	"actor",
	"revision",
	"connection",
	"addr_rivals",
	"announced_from",
	"configured",
	"desired",
	"outdated",
	"differs",
	"presence",
	"power",
	"hardware",
	"installed",
}

// Rule returns a copy of the node with a label that a rule of the site sets after an inspection, and the entry that
// names the rule. changed is false, and there is no entry, if the node has the label already.
func (n Node) Rule(rule, key, value string, t Trigger) (m Node, entry HistoryEntry, changed bool, err error) {
	if now, has := n.Labels[key]; has && now == value {
		return n, entry, false, nil
	}

	if m, err = n.Relabel(map[string]*string{key: &value}); err != nil {
		return n, entry, false, err
	}

	t.Reason = fmt.Sprintf("the rule %s set the label %s=%s", rule, key, value)

	return m, m.log(VerbInspect, n.Status, t), true, nil
}

// Relabel returns a copy of the node with the patch applied to its labels: a value
// sets a label, nil removes it. It returns an error of KindInvalid for a key or
// value outside the grammar, and for more than MaxLabels labels.
func (n Node) Relabel(patch map[string]*string) (Node, error) {
	m := n.Clone()
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}

	// The order decides which of several errors is reported.
	for _, key := range slices.Sorted(maps.Keys(patch)) {
		value := patch[key]
		if value == nil {
			// Removal works for any key, so that a label survives no change of the grammar.
			delete(m.Labels, key)
			continue
		}

		if err := CheckLabelKey(key); err != nil {
			return Node{}, err
		}

		if err := CheckLabelValue(*value); err != nil {
			return Node{}, err
		}

		m.Labels[key] = *value
	}

	if len(m.Labels) > MaxLabels {
		return Node{}, Errorf(KindInvalid, "%s would have %d labels, the limit is %d",
			n.Name, len(m.Labels), MaxLabels).
			Do("remove labels: set them to null").
			About(n.Name)
	}

	if len(m.Labels) == 0 {
		m.Labels = nil
	}

	return m, nil
}
