// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"reflect"
	"slices"
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
		"users":       []any{map[string]any{"name": "n", "password_hash": "h"}, "plain"},
		"env":         map[string]any{"proxy": "p", "auth": map[string]any{"Token": nil}},
	}

	want := Vars{
		"db_password": Hidden,
		"DB_PASSWORD": Hidden,
		"motd":        "hello",
		"api_key":     Hidden,
		"passwords":   Hidden,
		"users":       []any{map[string]any{"name": "n", "password_hash": Hidden}, "plain"},
		"env":         map[string]any{"proxy": "p", "auth": map[string]any{"Token": Hidden}},
	}
	if got := secrets.HideVars(given); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}

	if given["env"].(map[string]any)["auth"].(map[string]any)["Token"] != nil {
		t.Error("HideVars changed its argument")
	}

	back, err := secrets.Restore(want, given)
	if err != nil || !reflect.DeepEqual(back, given) {
		t.Errorf("restored: %v, %v", back, err)
	}

	if got := Secrets(nil).HideVars(given); !reflect.DeepEqual(got, given) {
		t.Errorf("without patterns: %v", got)
	}

	merged := secrets.HideMerged(map[string]Var{
		"token": {Value: "t", Origin: OriginNode},
		"m":     {Value: map[string]any{"secret": 1, "n": 2}, Origin: OriginGlobal},
	})
	if merged["token"] != (Var{Value: Hidden, Origin: OriginNode}) ||
		!reflect.DeepEqual(merged["m"].Value, map[string]any{"secret": Hidden, "n": 2}) {
		t.Errorf("%v", merged)
	}
}

func TestSecretsRestore(t *testing.T) {
	secrets := Secrets{"*_password"}

	password := func(value string) map[string]any { return map[string]any{"a_password": value} }
	user := func(name, value string) map[string]any { return map[string]any{"name": name, "a_password": value} }

	set := Vars{
		"db_password": "old",
		"users":       []any{user("a", "1"), user("b", "2")},
		"list":        []any{password("1"), password("2")},
	}
	for _, c := range []struct {
		name        string
		given, want Vars
		refused     string
	}{
		{"a new value", Vars{"db_password": "new"}, Vars{"db_password": "new"}, ""},
		{"an unrelated variable", Vars{"x": "y"}, Vars{"x": "y"}, ""},
		{"Hidden under another name is text", Vars{"motd": Hidden}, Vars{"motd": Hidden}, ""},
		{"no current value", Vars{"web_password": Hidden}, nil, "web_password"},
		{"no current value, nested", Vars{"env": map[string]any{"x_password": Hidden}}, nil, "env.x_password"},
		{
			"a list of the same length",
			Vars{"list": []any{password(Hidden), password("3")}},
			Vars{"list": []any{password("1"), password("3")}}, "",
		},
		{
			"a list in another order",
			Vars{"users": []any{user("b", Hidden), user("a", Hidden)}}, nil, "users[0].a_password",
		},
		{
			"a list with a changed element",
			Vars{"users": []any{user("a", Hidden), user("c", "3")}},
			Vars{"users": []any{user("a", "1"), user("c", "3")}}, "",
		},
		{"a list of another length", Vars{"list": []any{password(Hidden)}}, nil, "list[0].a_password"},
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

func TestOmitMerged(t *testing.T) {
	vars := map[string]Var{
		"db_password": {Value: "s3cret", Origin: OriginNode},
		"pin":         {Value: NewSecret("1234"), Origin: OriginNode}, // marked
		"db": {Value: map[string]any{"host": "h", "Password": "s3cret", "users": []any{
			map[string]any{"name": "n", "token": "s3cret"}, "plain",
		}}, Origin: OriginGlobal, Trusted: true},
		"motd": {Value: "hello", Origin: OriginConfig},
	}

	kept, omitted := DefaultSecrets().OmitMerged(vars)

	want := map[string]Var{
		"db": {Value: map[string]any{"host": "h", "users": []any{map[string]any{"name": "n"}, "plain"}},
			Origin: OriginGlobal, Trusted: true},
		"motd": {Value: "hello", Origin: OriginConfig},
	}
	if !reflect.DeepEqual(kept, want) {
		t.Errorf("kept %v, want %v", kept, want)
	}

	if paths := []string{"db.Password", "db.users[0].token", "db_password", "pin"}; !slices.Equal(omitted, paths) {
		t.Errorf("omitted %v, want %v", omitted, paths)
	}

	if inner := vars["db"].Value.(map[string]any); inner["Password"] != "s3cret" {
		t.Error("the variables themselves changed")
	}
}

// TestDefaultSecretNames: names that shops use for secrets, and names like them.
func TestDefaultSecretNames(t *testing.T) {
	t.Parallel()

	for name, want := range map[string]bool{
		"db_pass": true, "PGPASS": true, "root_pw": true, "smb_pwd": true, "stripe_apikey": true, "apikey_id": true,
		"psk": true, "wpa_psk": true, "dsn": true, "sentry_dsn": true, "snmp_community": true, "community": true,
		"tls_key": true, "tsig_KEY": true, "ssh_public_key": false, "public_key": false, "keyboard": false,
		"passive": false, "keys": false, "community_url": false, "node_label": false,
	} {
		hidden := DefaultSecrets().HideVars(Vars{name: "x"})[name] == any(Hidden)
		if hidden != want {
			t.Errorf("%s is secret: %t", name, hidden)
		}
	}

	for _, pattern := range []string{"!", "![", "!a/b"} {
		if err := (Secrets{pattern}).Check(); err == nil {
			t.Errorf("%q is accepted", pattern)
		}
	}
}
