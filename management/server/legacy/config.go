// SPDX-License-Identifier: Apache-2.0

package legacy

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// formerKey is a key of the first generation with an equivalent, or with a value that
// did not change.
type formerKey api.FormerKey

// formerKeys are the keys that GET /config shows and POST /config takes.
var formerKeys = func() []formerKey {
	var keys []formerKey
	for _, k := range api.FormerKeys {
		if k.Instead == "" {
			keys = append(keys, formerKey(k))
		}
	}

	return keys
}()

// formerSections are the sections of the first generation. None of them is a key
// of today.
var formerSections = []string{"ansible", "inventory", "manager", "serf"}

// withFormer adds the sections of the first generation to a nested configuration.
func withFormer(nested map[string]any, now api.Config) (map[string]any, error) {
	for _, k := range formerKeys {
		section, ok := nested[k.Section].(map[string]any)
		if !ok {
			section = map[string]any{}
			nested[k.Section] = section
		}

		value, err := k.show(now)
		if err != nil {
			return nil, err
		}
		section[k.Name] = value
	}

	return nested, nil
}

// show returns the value of the key in the form of the first generation.
func (k formerKey) show(now api.Config) (string, error) {
	if k.Fixed != "" {
		return k.Fixed, nil
	}

	value := now[k.Now].Value
	if text, ok := value.(string); ok || value == nil || !k.Encoded {
		return text, nil
	}
	text, err := json.Marshal(value)

	return string(text), err
}

// cutFormer removes the sections of the first generation from a posted
// configuration and returns them.
func cutFormer(posted map[string]any) map[string]any {
	former := map[string]any{}
	for _, name := range formerSections {
		if section, given := posted[name]; given {
			former[name] = section
			delete(posted, name)
		}
	}

	return former
}

// isEmpty reports whether a value is that of a key that the file of the first generation's client
// left out: the client sends every key.
func isEmpty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case int64:
		return v == 0
	case map[string]any:
		return len(v) == 0
	}

	return false
}

// translate adds the values of the first generation's sections to a patch of
// today's keys. A value that is empty, or in force already, is left out. A key without an
// equivalent is refused by its name.
func translate(former map[string]any, now api.Config, patch map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(former)) {
		section, ok := former[name].(map[string]any)
		if isEmpty(former[name]) {
			continue
		}

		if !ok {
			return inventory.Errorf(inventory.KindInvalid, "%s is not an object", name).
				Do("leave it out, or send an object")
		}

		for _, key := range slices.Sorted(maps.Keys(section)) {
			if isEmpty(section[key]) {
				continue
			}

			if err := translateKey(name, key, section[key], now, patch); err != nil {
				return err
			}
		}
	}

	return nil
}

func translateKey(section, key string, value any, now api.Config, patch map[string]any) error {
	// The spelling of the names changed within the first generation.
	name := strings.ReplaceAll(key, "-", "_")
	i := slices.IndexFunc(formerKeys, func(k formerKey) bool { return k.Section == section && k.Name == name })

	if i < 0 {
		return inventory.Errorf(inventory.KindRefused, "%s.%s has no equivalent in this manager", section, key).
			Do("leave it out; docs/compatibility.md lists the keys")
	}

	k := formerKeys[i]

	shown, err := k.show(now)
	if err != nil {
		return err
	}
	if value == shown {
		return nil
	}

	if k.Fixed != "" {
		return inventory.
			Errorf(inventory.KindRefused, "%s.%s cannot change: the playbook is named %s", section, key, k.Fixed).
			Do("give the playbook that name in its folder")
	}

	text, ok := value.(string)
	if !ok {
		return inventory.Errorf(inventory.KindInvalid, "%s.%s is not a string", section, key).
			Do("send it as the first generation did")
	}

	if _, both := patch[k.Now]; both {
		return inventory.
			Errorf(inventory.KindInvalid, "%s.%s and %s are given with different values", section, key, k.Now).
			Do("give one of them")
	}

	if !k.Encoded {
		patch[k.Now] = text
		return nil
	}

	vars, err := configuration.ParseJSONVars([]byte(text))
	if err != nil {
		return inventory.Errorf(inventory.KindInvalid, "%s.%s: %w", section, key, err).
			Do(`send an object in a string: "{\"name\": \"value\"}"`)
	}

	if !sameJSON(now[k.Now].Value, vars) {
		patch[k.Now] = map[string]any(vars)
	}

	return nil
}
