// SPDX-License-Identifier: Apache-2.0

// Package yamlfile reads configuration files strictly: an unknown or repeated
// key, a second document and a value of the wrong type are errors. They name the
// file and the line in an operator's words, and the action that helps.
package yamlfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory"
)

// maxSize bounds a configuration file, in bytes.
const maxSize = 1 << 20

// Load decodes the file over v, which holds the defaults, and returns the
// document as nodes: nil for an empty file. remedy completes the errors, which
// are of inventory.KindInvalid.
func Load(path string, v any, remedy string) (*yaml.Node, error) {
	data, err := read(path)
	if err != nil {
		e := inventory.Errorf(inventory.KindInvalid, "the configuration cannot be read: %w", err)
		if errors.Is(err, fs.ErrPermission) {
			return nil, e.Do("run this as root, or as a user with read access to the file")
		}
		return nil, e.Do("write the file; %s", remedy)
	}

	if len(data) > maxSize {
		return nil, Invalid(path, errors.New("it is larger than 1 MiB"), remedy)
	}

	var top yaml.Node
	if err := yaml.Unmarshal(data, &top); err != nil {
		return nil, Invalid(path, err, remedy)
	}

	// Unmarshal has no strict mode, and reads the first document only.
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)

	if err := dec.Decode(v); err != nil && !errors.Is(err, io.EOF) {
		return nil, Invalid(path, err, remedy)
	}

	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, Invalid(path, errors.New("it holds more than one document"), remedy)
	}

	// A file of comments has no root.
	if len(top.Content) == 0 {
		return nil, nil
	}

	if err := CheckValues(top.Content[0], reflect.TypeOf(v).Elem()); err != nil {
		return nil, Invalid(path, err, remedy)
	}

	return top.Content[0], nil
}

// read returns at most one byte more than maxSize, so that a device or a log
// given by mistake does not fill the memory.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxSize+1))
}

// Invalid is the error for a file with a wrong value.
func Invalid(path string, err error, remedy string) error {
	return inventory.Errorf(inventory.KindInvalid, "the configuration %s is wrong: %s", path, Plain(err)).
		Do("%s", remedy)
}

// CheckKeys refuses keys that the struct type does not have. A decoder inside an
// Unmarshaler needs it: it does not inherit KnownFields.
func CheckKeys(n *yaml.Node, t reflect.Type, path string) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: %s is not a mapping", n.Line, path)
	}

	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i].Value
		if !slices.ContainsFunc(Fields(t), func(f reflect.StructField) bool { return Key(f) == key }) {
			return fmt.Errorf("line %d: field %s not found in %s", n.Content[i].Line, key, path)
		}
	}

	return nil
}

// DecodeOrOff strictly decodes the mapping of a key into v, a pointer to a struct. It
// reports instead whether the key is the word off.
func DecodeOrOff(n *yaml.Node, key string, v any) (off bool, err error) {
	if n.Kind == yaml.ScalarNode {
		if n.Value == "off" || n.Tag == "!!bool" && n.Value == "false" {
			return true, nil
		}
		return false, fmt.Errorf("line %d: %s is %q; write off, or a mapping", n.Line, key, n.Value)
	}

	// Decode of a node is not strict, so unknown keys are refused here.
	if err := CheckKeys(n, reflect.TypeOf(v).Elem(), key); err != nil {
		return false, err
	}

	return false, n.Decode(v)
}

// Fields lists the fields of a struct type that are keys of the file, with those of
// its inlined structs.
func Fields(t reflect.Type) []reflect.StructField {
	var all []reflect.StructField
	for i := range t.NumField() {
		f := t.Field(i)

		switch {
		case isInline(f):
			for _, inner := range Fields(f.Type) {
				inner.Index = slices.Concat(f.Index, inner.Index)
				all = append(all, inner)
			}
		case Key(f) != "-":
			all = append(all, f)
		}
	}

	return all
}

func isInline(f reflect.StructField) bool {
	_, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return options == "inline"
}

// Key is the key of a field in the file.
func Key(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return name
}

// Messages of the YAML library.
var (
	goType   = regexp.MustCompile(` in type [\w.*\[\]]+| into [a-z]+\.[A-Z]\w*`)
	mismatch = regexp.MustCompile("cannot unmarshal !!(\\w+)(?: (`[^`]*`))? into ([^\\s;]+)")
)

// tabError is the library's message for a tab, among other causes, in a place
// where only spaces indent.
const tabError = "found character that cannot start any token"

// Plain rewrites an error of the YAML library without Go types, on one line.
func Plain(err error) string {
	msg := strings.NewReplacer("yaml: unmarshal errors:\n", "", "yaml: ", "", "\n", ";").Replace(err.Error())

	// First the mismatches, since they need the Go type that goType removes.
	msg = mismatch.ReplaceAllStringFunc(msg, func(text string) string {
		m := mismatch.FindStringSubmatch(text)
		kinds := map[string]string{"seq": "a list", "map": "a mapping"}
		value := cmp.Or(m[2], kinds[m[1]], "this")
		return value + " is not " + describe(m[3])
	})

	msg = goType.ReplaceAllString(msg, "")
	msg = strings.Replace(msg, tabError, tabError+" (indent with spaces, not with tabs)", 1)

	return strings.Join(strings.Fields(strings.ReplaceAll(msg, "field ", "key ")), " ")
}

// describe names the kind of value that a Go type takes.
func describe(goType string) string {
	switch {
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case strings.Contains(goType, "int"):
		return "a whole number"
	case goType == "bool":
		return "true or false"
	case goType == "string":
		return "text"
	default:
		return "a value of the right kind"
	}
}
