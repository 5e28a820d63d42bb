// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/management/api"
)

// normal returns a value of JSON in the normal form of configuration.Vars.
func normal(v any) (any, error) {
	data, err := json.Marshal(map[string]any{"value": v})
	if err != nil {
		return nil, err
	}
	vars, err := configuration.ParseJSONVars(data)

	return vars["value"], err
}

// connectionOf returns the connection with the settings in values. nil values are not set.
func connectionOf(values map[string]any) (configuration.Connection, error) {
	var c configuration.Connection

	data, err := json.Marshal(values)
	if err != nil {
		return c, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()

	return c, dec.Decode(&c)
}

// same reports whether two values of a cell mean the same.
func same(c Cell, a, b any) bool {
	if c.Part == api.PartSettings || c.Part == api.PartRules {
		return sameSetting(a, b)
	}
	return reflect.DeepEqual(a, b)
}

// sameSetting reports whether two values of a setting mean the same: the manager writes
// 60m as 1h, 8.0 as 8, the size 2 as "2", and an empty list as null, also within lists
// and mappings.
func sameSetting(a, b any) bool {
	if sameAsRead(a, b) || isZero(a) && isZero(b) {
		return true
	}

	switch a := a.(type) {
	case map[string]any:
		b, isMap := b.(map[string]any)
		return isMap && sameEntries(a, b)
	case []any:
		b, isList := b.([]any)
		return isList && slices.EqualFunc(a, b, sameSetting)
	}

	d, isDuration := durationOf(a)
	e, isDuration2 := durationOf(b)

	return isDuration && isDuration2 && d == e || sizeOf(a) != "" && sizeOf(a) == sizeOf(b)
}

// sameEntries reports whether two mappings mean the same. A zero is a value of some keys,
// and no value of others, so a key that only one of them has makes a difference.
func sameEntries(a, b map[string]any) bool {
	if len(a) != len(b) {
		return false
	}

	for key, value := range a {
		if other, has := b[key]; !has || !sameSetting(value, other) {
			return false
		}
	}

	return true
}

// sizeOf returns the text of a number of nodes, or "" for any other value.
func sizeOf(v any) string {
	switch v.(type) {
	case string, int64:
		return fmt.Sprint(v)
	}

	return ""
}

// durationOf returns the duration that a value stands for, as the manager reads it: 0
// needs no unit.
func durationOf(v any) (time.Duration, bool) {
	switch v.(type) {
	case string, int64:
		d, err := time.ParseDuration(fmt.Sprint(v))
		return d, err == nil
	}

	return 0, false
}

// isZero reports whether a value is the same as none: nil, "", 0 or an empty list or
// mapping.
func isZero(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case int64:
		return v == 0
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}

	return false
}

// absent reports whether the value of a cell stands for none. An empty text is a value of
// a variable and of a label, and not set anywhere else.
func absent(c Cell, v any) bool {
	if c.Part == api.PartVars || c.Part == api.PartSecrets || c.Part == api.PartLabels {
		return v == nil
	}
	return isZero(v)
}

// sameAsRead reports whether a value that was read twice, perhaps by different ways, is
// the same: 1.50 and 1.5 are.
func sameAsRead(a, b any) bool { return reflect.DeepEqual(exact(a), exact(b)) }

// exact replaces the numbers in a value by one spelling.
func exact(v any) any {
	switch v := v.(type) {
	case int64, float64, json.Number:
		text := fmt.Sprint(v)
		if f, _, err := big.ParseFloat(text, 10, 256, big.ToNearestEven); err == nil {
			return json.Number(f.Text('g', 60))
		}
		return json.Number(text)
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, e := range v {
			out[key] = exact(e)
		}

		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = exact(e)
		}

		return out
	}

	return v
}

// hidesWithin returns the path of a secret in the manager's value for which the file has a value
// of its own, or "". The two cannot be compared.
func hidesWithin(path string, has, want any) string {
	return findWithin(path, has, want, func(has, want any) bool {
		return has == configuration.Hidden && want != configuration.Hidden
	})
}

// keepsHidden returns the path at which a file keeps a secret that the manager does not
// have, or "".
func keepsHidden(path string, has, want any) string {
	return findWithin(path, has, want, func(has, want any) bool {
		return want == configuration.Hidden && has != configuration.Hidden
	})
}

// findWithin returns the path of a part of the wanted value for which found is true, or "".
// It is given that part of the manager's value as well; nil for none.
func findWithin(path string, has, want any, found func(has, want any) bool) string {
	if found(has, want) {
		return path
	}

	switch want := want.(type) {
	case map[string]any:
		set, _ := has.(map[string]any)
		for key, w := range want {
			if at := findWithin(path+"."+key, set[key], w, found); at != "" {
				return at
			}
		}
	case []any:
		set, _ := has.([]any)
		for i, w := range want {
			var h any
			if i < len(set) {
				h = set[i]
			}

			if at := findWithin(fmt.Sprintf("%s[%d]", path, i), h, w, found); at != "" {
				return at
			}
		}
	}

	return ""
}
