// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/yamlfile"
)

// overlaid returns the configuration of the file with the keys of the overlay
// over it, checked. It does not change file. It skips keys that only the file sets:
// an overlay of an older version may contain them, see misplaced.
func overlaid(file Config, overlay map[string]any) (Config, error) {
	if len(overlay) == 0 {
		return file, nil
	}

	// A snapshot of the file stays valid: its readers hold no lock.
	c := copyForWrite(file)

	// In order, so that the same overlay always gets the same error.
	for _, key := range slices.Sorted(maps.Keys(overlay)) {
		if isFileKey(key) {
			continue
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

// With returns the configuration with the keys of an overlay over the file.
func (f File) With(overlay map[string]any) (Config, error) { return overlaid(f.Config, overlay) }

// Fits returns an error that names the keys of an overlay that do not fit the file, or nil.
func (f File) Fits(overlay map[string]any) error {
	_, err := overlaid(f.Config, overlay)
	if err != nil {
		return misfit(err, f.Config, overlay)
	}
	return nil
}

// CheckReload refuses the file if a manager with this overlay, and with nodes in these groups by name, would refuse
// to reload it. NeedsRestart is apart, because a restart takes such a file.
func (f File) CheckReload(ctx context.Context, overlay map[string]any, groups map[string]string, a Adapters) error {
	c, err := overlaid(f.Config, overlay)
	if err != nil {
		refused := inventory.Errorf(inventory.KindRefused,
			"the file does not fit the settings that were set at run time: %s", message(err)).
			Do("correct the file, or remove what does not fit")

		if e, ok := errors.AsType[*inventory.Error](misfit(err, f.Config, overlay)); ok {
			refused = refused.With(e.Actions...)
		}
		return refused
	}

	if err := c.CheckHost(ctx, Default(), a); err != nil {
		return err
	}

	return c.keepsGroups(groups)
}

// misplaced returns the keys of the overlay that only the file sets. They have no
// effect.
func misplaced(overlay map[string]any) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(overlay)), func(key string) bool { return !isFileKey(key) })
}

// misfit returns the error for a stored overlay that does not fit the file. It names
// the keys to remove.
func misfit(err error, file Config, overlay map[string]any) error {
	return inventory.Errorf(inventory.KindRefused,
		"the settings that were set at run time do not fit the configuration file, so none of them is in force: %s",
		message(err)).
		Do("correct the file and reload it (systemctl reload clusterm), or remove what does not fit").
		With(inventory.UnsetSetting(unfit(file, overlay)...))
}

// unfit returns the keys without which an overlay fits the file, and no key more.
func unfit(file Config, overlay map[string]any) []string {
	fit, left := map[string]any{}, slices.Sorted(maps.Keys(overlay))

	// A key may need another one, as the policies need the groups that they name.
	for tried := -1; tried != len(left); {
		tried = len(left)
		left = slices.DeleteFunc(left, func(key string) bool {
			fit[key] = overlay[key]

			_, err := overlaid(file, fit)
			if err != nil {
				delete(fit, key)
			}
			return err == nil
		})
	}

	return left
}

// message returns an error without its remedy.
func message(err error) string {
	if e, ok := errors.AsType[*inventory.Error](err); ok {
		return e.Message
	}
	return err.Error()
}

// copyForWrite copies the parts of a configuration that a decoder would
// otherwise write through. Maps are not copied: set replaces them.
func copyForWrite(c Config) Config {
	if c.SSH.Become != nil {
		become := *c.SSH.Become
		c.SSH.Become = &become
	}

	c.SSH.HostCA = slices.Clone(c.SSH.HostCA)
	c.Groups = slices.Clone(c.Groups)
	c.SecretVars = slices.Clone(c.SecretVars)

	return c
}

// set decodes the value of one dotted key into c.
func (c *Config) set(key string, value any) error {
	// A secret that cannot be read has no form in YAML.
	value, secrets := takeSecrets(key, value)

	// The decoder would merge a map into the present one.
	switch key {
	case "vars":
		c.Vars = nil
	case "secret_vars":
		c.SecretVars = nil
	case "ssh.host_ca":
		c.SSH.HostCA = nil
	case "group_ssh":
		c.GroupSSH = nil
	case "policies.commission":
		c.Policies.Commission = nil
	case "policies.upgrade":
		c.Policies.Upgrade = nil
	case "policies.verify":
		c.Policies.Verify = nil
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

	err = dec.Decode(c)
	if err == nil {
		err = checkValues(data)
	}

	if err != nil {
		reason := lineNumber.ReplaceAllString(yamlfile.Plain(err), "")

		return inventory.Errorf(inventory.KindInvalid, "the value of %s does not fit: %s", key, reason).
			Do("see its value, and 'clusterm example'").With(inventory.ShowSettings(key))
	}

	if len(secrets) > 0 {
		vars := configuration.Vars{}
		maps.Copy(vars, c.Vars)
		maps.Copy(vars, secrets)
		c.Vars = vars
	}

	return nil
}

// checkValues refuses values that the decoder takes for others.
func checkValues(document []byte) error {
	var top yaml.Node
	if err := yaml.Unmarshal(document, &top); err != nil || len(top.Content) == 0 {
		return err
	}
	return yamlfile.CheckValues(top.Content[0], reflect.TypeFor[Config]())
}

// takeSecrets splits the values of the key vars into those that a decoder reads and
// configuration.Secret. It returns values of other keys as they are.
func takeSecrets(key string, value any) (rest any, secrets configuration.Vars) {
	vars, ok := value.(map[string]any)
	if key != "vars" || !ok {
		return value, nil
	}

	plain := map[string]any{}
	secrets = configuration.Vars{}

	for name, v := range vars {
		if _, secret := v.(configuration.Secret); secret {
			secrets[name] = v
		} else {
			plain[name] = v
		}
	}

	return plain, secrets
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
