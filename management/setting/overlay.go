// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/yamlfile"
)

// overlaid returns the configuration of the file with the keys of the overlay
// over it, checked. It does not change file.
func overlaid(file Config, overlay map[string]any) (Config, error) {
	if len(overlay) == 0 {
		return file, nil
	}

	// A snapshot of the file stays valid: its readers hold no lock.
	c := copyForWrite(file)

	// In order, so that the same overlay always gets the same error.
	for _, key := range slices.Sorted(maps.Keys(overlay)) {
		if isFileKey(key) {
			return Config{}, errFileKey(key)
		}

		if !exists(file, key) {
			return Config{}, errUnknown(key)
		}

		if err := c.set(key, overlay[key]); err != nil {
			return Config{}, err
		}
	}

	return c, c.Check()
}

// copyForWrite copies the parts of a configuration that a decoder would
// otherwise write through. Maps are not copied: set replaces them.
func copyForWrite(c Config) Config {
	if c.SSH.Become != nil {
		become := *c.SSH.Become
		c.SSH.Become = &become
	}

	c.Groups = slices.Clone(c.Groups)
	c.SecretVars = slices.Clone(c.SecretVars)

	return c
}

// set decodes the value of one dotted key into c.
func (c *Config) set(key string, value any) error {
	// The decoder would merge a map into the present one.
	switch key {
	case "vars":
		c.Vars = nil
	case "secret_vars":
		c.SecretVars = nil
	case "group_ssh":
		c.GroupSSH = nil
	}

	// The decoder of the file checks the value: types and keys have one definition.
	document := yamlValue(value)
	for _, part := range slices.Backward(strings.Split(key, ".")) {
		document = map[string]any{part: document}
	}

	data, err := yaml.Marshal(document)
	if err != nil {
		return err
	}

	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)

	if err := dec.Decode(c); err != nil {
		reason := lineNumber.ReplaceAllString(yamlfile.Plain(err), "")

		return inventory.Errorf(inventory.KindInvalid, "the value of %s does not fit: %s", key, reason).
			Do("see its value, and 'clusterm example'").With(inventory.ShowSettings(key))
	}

	return nil
}

// lineNumber matches the position in errors of the YAML library. It would refer
// to a document that the operator did not write.
var lineNumber = regexp.MustCompile(`\bline \d+: `)

// yamlValue returns v with each json.Number as a YAML scalar, so that numbers
// keep their type and every digit.
func yamlValue(v any) any {
	switch v := v.(type) {
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String()}
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, element := range v {
			out[key] = yamlValue(element)
		}

		return out
	case []any:
		out := make([]any, len(v))
		for i, element := range v {
			out[i] = yamlValue(element)
		}

		return out
	}

	return v
}
