// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"reflect"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
)

func TestSecretsHide(t *testing.T) {
	secrets := DefaultSecrets()
	given := Vars{
		"db_password": "a",
		"DB_PASSWORD": "b",
		"motd":        "hello",
		"api_key":     int64(7),
		"passwords":   map[string]any{"x": "y"},
		"users": []any{
			map[string]any{"name": "n", "password_hash": "h"},
			"plain",
		},
		"env": map[string]any{"proxy": "p", "auth": map[string]any{"Token": nil}},
	}

	want := Vars{
		"db_password": Hidden,
		"DB_PASSWORD": Hidden,
		"motd":        "hello",
		"api_key":     Hidden,
		"passwords":   Hidden,
		"users": []any{
			map[string]any{"name": "n", "password_hash": Hidden},
			"plain",
		},
		"env": map[string]any{"proxy": "p", "auth": map[string]any{"Token": Hidden}},
	}
	if got := secrets.HideVars(given); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}

	if given["env"].(map[string]any)["auth"].(map[string]any)["Token"] != nil {
		t.Error("what was given was written to")
	}

	back, err := secrets.Restore(want, given)
	if err != nil || !reflect.DeepEqual(back, given) {
		t.Errorf("put back: %v, %v", back, err)
	}

	if got := Secrets(nil).HideVars(given); !reflect.DeepEqual(got, given) {
		t.Errorf("without patterns: %v", got)
	}

	merged := secrets.HideMerged(
		map[string]Var{
			"token": {Value: "t", Origin: OriginNode},
			"m":     {Value: map[string]any{"secret": 1, "n": 2}, Origin: OriginGlobal},
		},
	)
	if merged["token"] != (Var{Value: Hidden, Origin: OriginNode}) ||
		!reflect.DeepEqual(merged["m"].Value, map[string]any{"secret": Hidden, "n": 2}) {
		t.Errorf("%v", merged)
	}
}

func TestSecretsRestore(t *testing.T) {
	secrets := Secrets{"*_password"}

	set := Vars{
		"db_password": "old",
		"users": []any{
			map[string]any{"name": "a", "a_password": "1"},
			map[string]any{"name": "b", "a_password": "2"},
		},
		"list": []any{map[string]any{"a_password": "1"}, map[string]any{"a_password": "2"}},
	}
	for _, c := range []struct {
		name        string
		given, want Vars
		refused     string
	}{
		{"a new value", Vars{"db_password": "new"}, Vars{"db_password": "new"}, ""},
		{"only what is given", Vars{"x": "y"}, Vars{"x": "y"}, ""},
		{"the mark under another name is text", Vars{"motd": Hidden}, Vars{"motd": Hidden}, ""},
		{"nothing to stand for", Vars{"web_password": Hidden}, nil, "web_password"},
		{"nothing to stand for, below", Vars{"env": map[string]any{"x_password": Hidden}}, nil, "env.x_password"},
		{"a list of the same length", Vars{"list": []any{map[string]any{"a_password": Hidden}, map[string]any{"a_password": "3"}}},
			Vars{"list": []any{map[string]any{"a_password": "1"}, map[string]any{"a_password": "3"}}}, ""},
		{"a list in another order", Vars{"users": []any{map[string]any{"name": "b", "a_password": Hidden}, map[string]any{"name": "a", "a_password": Hidden}}}, nil, "users[0].a_password"},
		{"an element of a list with more in it", Vars{"users": []any{map[string]any{"name": "a", "a_password": Hidden}, map[string]any{"name": "c", "a_password": "3"}}},
			Vars{"users": []any{map[string]any{"name": "a", "a_password": "1"}, map[string]any{"name": "c", "a_password": "3"}}}, ""},
		{"a list of another length", Vars{"list": []any{map[string]any{"a_password": Hidden}}}, nil, "list[0].a_password"},
	} {
		got, err := secrets.Restore(c.given, set)
		if c.refused != "" {
			if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v, %v", c.name, got, err)
			}

			continue
		}

		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}

func TestSecretsCheck(t *testing.T) {
	if err := DefaultSecrets().Check(); err != nil {
		t.Error(err)
	}

	for _, bad := range []string{"", "[", "a/b"} {
		if err := (Secrets{"ok", bad}).Check(); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
