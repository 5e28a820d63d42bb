// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Limits of the labels that operators give to nodes.
const (
	MaxLabels      = 64  // on one node
	MaxLabelPrefix = 253 // bytes of what is before the slash of a key
	MaxLabelWord   = 63  // bytes of a value, and of the rest of a key
)

// CheckLabelKey refuses what cannot be the key of an operator's label: a word
// (see CheckLabel), perhaps after the name of a domain in lower case and a
// slash. Names of fields of a node are refused: a selector means the field.
func CheckLabelKey(key string) error {
	prefix, name, slash := strings.Cut(key, "/")
	if !slash {
		prefix, name = "", key
	}

	switch {
	case !isWord(name, MaxLabelWord),
		slash && (len(prefix) > MaxLabelPrefix || !hostname.MatchString(prefix) || prefix != strings.ToLower(prefix)):
		return Errorf(KindInvalid, "%q cannot be the key of a label", key).
			Do("write it like rack or example.com/rack: letters, digits, '.', '_' and '-', at most %d bytes, with a letter or a digit at both ends", MaxLabelWord)
	case slices.Contains(nodeFields, key):
		return Errorf(KindInvalid, "%q is a field of every node, so it cannot be the key of a label", key).
			Do("choose another key, e.g. example.com/%s", key)
	}

	return nil
}

// CheckLabelValue refuses what cannot be the value of an operator's label: it
// is empty or a word.
func CheckLabelValue(value string) error {
	if value == "" || isWord(value, MaxLabelWord) {
		return nil
	}

	return Errorf(KindInvalid, "%q cannot be the value of a label", value).
		Do("use letters, digits, '.', '_' and '-', at most %d bytes, with a letter or a digit at both ends", MaxLabelWord)
}

func isWord(s string, limit int) bool { return len(s) <= limit && word.MatchString(s) }

// nodeFields are the names of a node's fields, as JSON knows them, also of
// those that the API adds to the record.
var nodeFields = func() []string {
	names := []string{"connection", "revision"}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Node]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" {
			names = append(names, name)
		}
	}

	return names
}()

// Relabel returns the node with the labels of the patch set; nil takes one
// away. A key or a value outside the grammar is refused, and so is one label
// too many.
func (n Node) Relabel(patch map[string]*string) (Node, error) {
	m := n.Clone()
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}

	for _, key := range slices.Sorted(maps.Keys(patch)) {
		value := patch[key]
		if value == nil {
			delete(m.Labels, key) // whatever it looks like, it is gone afterwards
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
		return Node{}, Errorf(
			KindInvalid,
			"%s would have %d labels, the limit is %d",
			n.Name,
			len(m.Labels),
			MaxLabels,
		).
			Do("take labels away: give them as null").
			About(n.Name)
	}

	if len(m.Labels) == 0 {
		m.Labels = nil
	}

	return m, nil
}
