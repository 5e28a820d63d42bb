// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding"
	"reflect"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// field is a key of a mapping in a fleet file.
type field struct {
	name string
	typ  reflect.Type
}

// fieldsOf returns the keys of a struct of the grammar, in order. Those of
// inventory.Group, whose name is a key itself, are the rules of a group: a rule that is
// added there is a key here.
func fieldsOf(t reflect.Type) []field {
	var all []field

	for i := range t.NumField() {
		f := t.Field(i)

		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if options == "inline" {
			all = append(all, fieldsOf(f.Type)...)
			continue
		}

		if name == "-" || t == reflect.TypeFor[inventory.Group]() && name == "name" {
			continue
		}

		all = append(all, field{name, f.Type})
	}

	return all
}

// namesOf returns the names of the fields.
func namesOf(fields []field) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}

	return names
}

// deref returns the type that a pointer leads to. A type with a form as text, such as a
// duration, is text.
func deref(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}

	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return reflect.TypeFor[string]()
	}
	return t
}

// kindName returns the kind of value that a type takes, for people.
func kindName(t reflect.Type) string {
	if t == reflect.TypeFor[inventory.Amount]() {
		return "a whole number, or a share such as 25%,"
	}

	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Slice:
		return "a list"
	default:
		return "a mapping"
	}
}
