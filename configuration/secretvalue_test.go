// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

// TestSecretIsNotShown writes secrets with every encoder and formatter, alone and inside
// other values: none shows the value.
func TestSecretIsNotShown(t *testing.T) {
	t.Parallel()

	const canary = "canary-2b7f"
	for name, s := range map[string]Secret{
		"known":  NewSecret(map[string]any{"k": []any{canary}}),
		"locked": LockedSecret("place", canary, "no key"),
		"source": SourcedSecret(),
	} {
		var texts []string

		for _, value := range []any{
			s, &s, []any{s}, Vars{"x": s}, map[string]Var{"x": {Value: s}}, struct{ S any }{s},
		} {
			j, err := json.Marshal(value)
			y, yerr := yaml.Marshal(value)

			errtest.None(t, errors.Join(err, yerr))

			texts = append(texts, string(j), string(y))
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
				texts = append(texts, fmt.Sprintf(verb, value))
			}
		}

		texts = append(texts, fmt.Sprint(DefaultSecrets().HideVars(Vars{"x": s})),
			fmt.Sprint(DefaultSecrets().HideMerged(map[string]Var{"x": {Value: s}})), s.Problem())

		for _, text := range texts {
			if strings.Contains(text, canary) || strings.Contains(text, fmt.Sprintf("%x", canary)) {
				t.Errorf("%s: %s", name, text)
			}
		}
	}
}

// TestSecretReachesAnsible: the inventory and the extra variables have the value, the
// output hides it, and a value that is not known is an error with the name.
func TestSecretReachesAnsible(t *testing.T) {
	t.Parallel()

	const canary = "canary-8e01"
	host := func(s Secret) []Host {
		return []Host{{
			Name: "a-1", Addr: "127.0.0.1", Role: RoleTarget,
			Vars: map[string]Var{"pin": {Value: s, Origin: OriginGlobal}},
		}}
	}

	inventory, err := Inventory(host(NewSecret([]any{canary})))
	extra, eerr := ExtraVars(Vars{"pin": NewSecret(canary)})

	errtest.None(t, errors.Join(err, eerr))

	for _, text := range []string{string(inventory), string(extra)} {
		if !strings.Contains(text, `!unsafe "`+canary+`"`) {
			t.Errorf("Ansible gets %s", text)
		}
	}

	hidden := DefaultSecrets().Values(Vars{"pin": NewSecret([]any{canary})})
	if !reflect.DeepEqual(hidden, []string{canary}) {
		t.Errorf("the output hides %v", hidden)
	}

	for _, s := range []Secret{LockedSecret("place", "box", "its key is missing"), SourcedSecret()} {
		if _, err := Inventory(host(s)); err == nil || !strings.Contains(err.Error(), `"pin"`) {
			t.Errorf("%q: %v", s.Problem(), err)
		}
	}
}

// TestMergedSecret: a variable that is secret at a level is secret above it.
func TestMergedSecret(t *testing.T) {
	t.Parallel()

	merged := Merge(
		Layer{Origin: OriginConfig, Vars: Vars{"a": "0", "b": "0"}, Trusted: true},
		Layer{Origin: OriginGlobal, Vars: Vars{"a": NewSecret("1"), "b": "1"}},
		Layer{Origin: OriginNode, Vars: Vars{"a": "2", "b": "2"}},
	)
	want := map[string]Var{
		"a": {Value: NewSecret("2"), Origin: OriginNode}, "b": {Value: "2", Origin: OriginNode},
	}

	if !reflect.DeepEqual(merged, want) {
		t.Errorf("%#v", merged)
	}

	merged["locked"] = Var{Value: LockedSecret("", "", "no key"), Origin: OriginGroup}
	if err := CheckReadable(merged); inventory.KindOf(err) != inventory.KindRefused ||
		!strings.Contains(err.Error(), `"locked" (group) cannot be read: no key`) {
		t.Errorf("a locked secret: %v", err)
	}
}

// TestCheckSecrets: the rules for variables hold for the values of secrets.
func TestCheckSecrets(t *testing.T) {
	t.Parallel()

	var deep any = "x"
	for range MaxVarsDepth {
		deep = []any{deep}
	}

	for name, value := range map[string]any{
		"too large":  strings.Repeat("x", MaxVarsBytes),
		"too deep":   deep,
		"not a text": "\xff",
	} {
		if err := CheckVars(Vars{"pin": NewSecret(value)}); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}

	if err := CheckVars(Vars{"a": NewSecret("x"), "b": LockedSecret("", "", ""), "c": SourcedSecret()}); err != nil {
		t.Error(err)
	}
}

// TestRestoreMarked writes back what was shown of secrets that no pattern matches.
func TestRestoreMarked(t *testing.T) {
	t.Parallel()

	set := Vars{"pin": NewSecret("old"), "note": "plain", "locked": LockedSecret("p", "b", "no key")}

	got, err := Secrets(nil).Restore(Vars{
		"pin": Hidden, "note": NewSecret(Hidden), "locked": Hidden, "new": NewSecret("n"), "text": Hidden,
	}, set)
	errtest.None(t, err)

	want := Vars{
		"pin": set["pin"], "note": NewSecret("plain"), "locked": set["locked"], "new": NewSecret("n"), "text": Hidden,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%#v", got)
	}

	_, err = Secrets(nil).Restore(Vars{"x": NewSecret(Hidden)}, set)
	if inventory.KindOf(err) != inventory.KindInvalid {
		t.Errorf("a mark of nothing: %v", err)
	}
}
