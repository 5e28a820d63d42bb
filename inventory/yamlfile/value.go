// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// CheckValues refuses values that the decoder takes for others: an element of a list and an entry
// of a mapping by name that is null, anything within them that is null, and a fraction for a whole
// number. A key of a section without a value has its default, and variables may be anything. t is
// the type that was decoded.
func CheckValues(n *yaml.Node, t reflect.Type) error { return checkValue(n, t, "", false) }

// unmarshalers are the types that check their values themselves.
var unmarshalers = []reflect.Type{reflect.TypeFor[yaml.Unmarshaler](), reflect.TypeFor[encoding.TextUnmarshaler]()}

// checkValue checks the value of a path. entry: it belongs to an element or an entry.
func checkValue(n *yaml.Node, t reflect.Type, path string, entry bool) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}

	scalar := n.Kind == yaml.ScalarNode

	switch {
	case t.Kind() == reflect.Interface:
		return nil
	case scalar && n.Tag == "!!null" && entry:
		return fmt.Errorf("line %d: %s is null; write a value, or leave it out", n.Line, path)
	case scalar && n.Tag == "!!float" && isWhole(t) && isFraction(n.Value):
		return fmt.Errorf("line %d: %s: %s is not a whole number", n.Line, path, n.Value)
	case slices.ContainsFunc(unmarshalers, reflect.PointerTo(t).Implements):
		return nil
	}

	return checkWithin(n, t, path, entry)
}

// checkWithin checks the parts of a value.
func checkWithin(n *yaml.Node, t reflect.Type, path string, entry bool) error {
	if n.Kind == yaml.SequenceNode && t.Kind() == reflect.Slice {
		for i, element := range n.Content {
			if err := checkValue(element, t.Elem(), fmt.Sprintf("%s[%d]", path, i), true); err != nil {
				return err
			}
		}
	}

	if n.Kind != yaml.MappingNode {
		return nil
	}

	// A mapping node holds keys and values in turn.
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i].Value

		name := key
		if path != "" {
			name = path + "." + key
		}

		var err error

		switch t.Kind() {
		case reflect.Map:
			err = checkValue(n.Content[i+1], t.Elem(), name, true)
		case reflect.Struct:
			// A merge key has no field.
			if f := fieldOf(t, key); f != nil {
				err = checkValue(n.Content[i+1], f, name, entry)
			}
		}

		if err != nil {
			return err
		}
	}

	return nil
}

// fieldOf returns the type of the field for the key, or nil.
func fieldOf(t reflect.Type, key string) reflect.Type {
	fields := Fields(t)
	if i := slices.IndexFunc(fields, func(f reflect.StructField) bool { return Key(f) == key }); i >= 0 {
		return fields[i].Type
	}
	return nil
}

// isFraction reports whether a number is none that a whole number can be: 16.0 is one.
func isFraction(text string) bool {
	f, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
	return err != nil || f != math.Trunc(f)
}

// isWhole reports whether values of the type are whole numbers.
func isWhole(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return true
	}

	return false
}
