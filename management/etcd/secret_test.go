// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/secret"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// canary is in the secrets of these tests, and nowhere else.
const canary = "canary-7f3a9c"

// openWith opens another store on the same records.
func openWith(t *testing.T, s *Store, secrets *Secrets) *Store {
	t.Helper()

	again, err := Open(within(t, patience), s.client, testKinds, secrets, silent(), StaleAfter)
	must(t, err)
	t.Cleanup(again.Close)
	return again
}

// values returns every value below the prefix of the store, expanded where it is
// compressed.
func values(t *testing.T, s *Store) []byte {
	t.Helper()

	resp, err := s.client.Get(within(t, patience), s.key("/"), clientv3.WithPrefix())
	must(t, err)

	var all []byte
	for _, kv := range resp.Kvs {
		all = append(all, kv.Value...)

		if plain, err := record.Expand(kv.Value); err == nil {
			all = append(all, plain...)
		}
	}

	return all
}

// secretVars are variables of every kind: secret by mark, by name, by the name of a
// part, from outside, not at all, and plain ones that look like a stored form.
func secretVars() configuration.Vars {
	return configuration.Vars{
		"db":          configuration.NewSecret(map[string]any{"user": "u", "pin": json.Number("1.50"), "x": canary}),
		"db_password": canary + "<&>",
		"env":         map[string]any{"a": []any{map[string]any{"api_token": canary}}},
		"outside":     configuration.SourcedSecret(),
		"plain":       "plain",
		"looks":       map[string]any{"$sealed": "v1.a.b"},
		"nested":      map[string]any{"$plain": map[string]any{"$lost": true}},
		"dollar":      map[string]any{"$sealed": "x", "b": int64(1)},
	}
}

// storeSecrets stores secret variables in records of every kind.
func storeSecrets(t *testing.T, s *Store) {
	t.Helper()

	ctx := within(t, patience)
	_, err := putVars(ctx, s, s.View(), state.ScopeGlobal, secretVars(), variable.Change{
		Time: noon, Actor: "root", Action: variable.ActionSet, Before: configuration.Vars{"old_token": canary},
		After: secretVars(),
	})
	must(t, err)

	overlay := configuration.Vars{"log_level": "debug", "vars": map[string]any(secretVars())}
	must(t, putOverlay(ctx, s, s.View(), overlay))

	_, err = accept(ctx, s, job.Job{Verb: inventory.VerbCommission, Status: job.Queued}, secretInputs())
	must(t, err)
}

func secretInputs() job.Inputs {
	host := map[string]configuration.Var{}
	for name, value := range secretVars() {
		host[name] = configuration.Var{Value: value, Origin: configuration.OriginGlobal}
	}

	return job.Inputs{
		Vars:        map[string]map[string]configuration.Var{"a-1": host, "b-2": host},
		Connections: map[string]configuration.Connection{},
		CleanupVars: map[string]map[string]map[string]configuration.Var{"former": {"a-1": host}},
		Extra:       secretVars(),
	}
}

// checkSecrets reads the records of storeSecrets.
func checkSecrets(t *testing.T, s *Store) {
	t.Helper()

	ctx := within(t, patience)
	if got := state.VarsOf(s.View(), state.ScopeGlobal); !reflect.DeepEqual(got, secretVars()) {
		t.Errorf("variables: %#v", map[string]any(got))
	}
	history, err := s.VarsHistory(ctx, state.ScopeGlobal)
	must(t, err)

	if len(history) != 1 || !reflect.DeepEqual(history[0].After, secretVars()) ||
		history[0].Before["old_token"] != canary {
		t.Errorf("history: %+v", history)
	}

	if got := state.OverlayOf(s.View())["vars"]; !reflect.DeepEqual(got, map[string]any(secretVars())) {
		t.Errorf("overlay: %+v", state.OverlayOf(s.View()))
	}

	in, err := s.Inputs(ctx, "1")
	must(t, err)

	if !reflect.DeepEqual(in, secretInputs()) {
		t.Errorf("inputs: %+v", in)
	}
}

// TestSecretsAtRest stores secrets in records of every kind: no value in etcd contains
// one, and all are read back as they were.
func TestSecretsAtRest(t *testing.T) {
	t.Parallel()

	s := store(t)
	storeSecrets(t, s)
	checkSecrets(t, s)
	checkSecrets(t, openWith(t, s, testSecrets()))

	if stored := values(t, s); bytes.Contains(stored, []byte(canary)) || !bytes.Contains(stored, []byte("plain")) {
		t.Errorf("in etcd: %s", stored)
	}

	found, err := s.CountSecrets(within(t, patience))
	must(t, err)

	if found.Boxes[testKey.ID()] != 3+4+3+1 || found.Plain != 0 || found.Unreadable != nil {
		t.Errorf("%+v", found)
	}
}

// TestSharedSecretIsStoredOnce accepts a job with many hosts: the size of its inputs
// does not grow with the number of hosts that share a secret.
func TestSharedSecretIsStoredOnce(t *testing.T) {
	t.Parallel()

	s := store(t)
	size := func(hosts int) int {
		in := job.Inputs{Vars: map[string]map[string]configuration.Var{}}
		for i := range hosts {
			in.Vars[fmt.Sprint("h-", i)] = map[string]configuration.Var{
				"db_password": {Value: strings.Repeat(canary, 10), Origin: configuration.OriginGlobal},
			}
		}

		op, err := s.putInputs("1", in)
		must(t, err)

		return len(op.ValueBytes())
	}

	if one, many := size(1), size(1000); many > one+12_000 {
		t.Errorf("one host: %d bytes, 1000 hosts: %d", one, many)
	}
}

// TestMissingKey opens a store without the key of its secrets: other variables stay
// readable and writable, also beside secrets, and with the key everything is back.
func TestMissingKey(t *testing.T) {
	t.Parallel()

	s := store(t)
	storeSecrets(t, s)

	missing := inventory.Errorf(inventory.KindRefused, "the key file is missing").Do("restore it")
	without := openWith(t, s, NewSecrets(secret.Ring{}, missing))
	ctx := within(t, patience)

	vars := state.VarsOf(without.View(), state.ScopeGlobal)
	if vars["plain"] != "plain" {
		t.Errorf("a plain variable is %v", vars["plain"])
	}

	for _, name := range []string{"db", "db_password", "env"} {
		hidden, ok := vars[name].(configuration.Secret)
		if !ok || !strings.Contains(hidden.Problem(), testKey.ID()) {
			t.Errorf("%s is %v: %q", name, vars[name], hidden.Problem())
		}
	}

	// A change of another variable keeps the secrets.
	vars["more"] = "1"
	_, err := putVars(
		ctx,
		without,
		without.View(),
		state.ScopeGlobal,
		vars,
		variable.Change{After: configuration.Vars{"more": "1"}},
	)
	must(t, err)

	// A locked value cannot move to another place.
	_, err = putVars(ctx, without, without.View(), state.ScopeNode("a-1"), vars, variable.Change{})
	if inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), testKey.ID()) {
		t.Errorf("a locked value was moved: %v", err)
	}

	_, err = putVars(
		ctx,
		without,
		without.View(),
		state.ScopeGlobal,
		configuration.Vars{"new_token": canary},
		variable.Change{},
	)
	if err == nil || !strings.Contains(err.Error(), `"new_token" cannot be stored: the key file is missing`) {
		t.Errorf("a secret was stored without a key: %v", err)
	}

	in, err := without.Inputs(ctx, "1")
	must(t, err)

	if err := configuration.CheckReadable(in.Vars["a-1"]); inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("the inputs of a job without their key: %v", err)
	}

	found, err := without.CountSecrets(ctx)
	must(t, err)

	want := []string{
		"db (config)", "db (global)", "db (history of global)", "db_password (config)", "db_password (global)",
		"db_password (history of global)", "env (config)", "env (global)", "env (history of global)", "job 1",
		"old_token (history of global)",
	}
	if !reflect.DeepEqual(found.Unreadable, want) || len(found.Boxes) != 0 {
		t.Errorf("%+v", found)
	}

	again := state.VarsOf(openWith(t, s, testSecrets()).View(), state.ScopeGlobal)
	if again["db_password"] != canary+"<&>" || again["more"] != "1" {
		t.Errorf("with the key again: %v", again["db_password"])
	}
}

// TestSecretsDoNotMove copies encrypted values to other variables, scopes and jobs: they
// do not open there.
func TestSecretsDoNotMove(t *testing.T) {
	t.Parallel()

	s := store(t)
	storeSecrets(t, s)

	ctx := within(t, patience)
	raw, err := s.client.Get(ctx, varsKey(s, state.ScopeGlobal))
	must(t, err)

	record, err := decode[state.ScopeVars](raw.Kvs[0].Value)
	must(t, err)

	record.Vars["plain"] = record.Vars["db_password"]

	for key, record := range map[string]state.ScopeVars{
		varsKey(s, state.ScopeGlobal): record, varsKey(s, state.ScopeNode("a-1")): record,
	} {
		op, err := put(key, record)
		must(t, err)
		_, err = s.client.Do(ctx, op)
		must(t, err)
	}

	inputs, err := s.client.Get(ctx, s.inputsKey("1"))
	must(t, err)
	_, err = s.client.Put(ctx, s.inputsKey("2"), string(inputs.Kvs[0].Value))
	must(t, err)

	again := openWith(t, s, testSecrets())
	in, err := again.Inputs(ctx, "2")
	must(t, err)

	for place, value := range map[string]any{
		"another variable": state.VarsOf(again.View(), state.ScopeGlobal)["plain"],
		"another scope":    state.VarsOf(again.View(), state.ScopeNode("a-1"))["db_password"],
		"another job":      in.Extra["db_password"],
	} {
		hidden, ok := value.(configuration.Secret)
		if !ok || !strings.Contains(hidden.Problem(), "moved") {
			t.Errorf("%s: it is %v %q", place, value, hidden.Problem())
		}
	}

	if state.VarsOf(again.View(), state.ScopeGlobal)["db_password"] != canary+"<&>" {
		t.Error("the value at its own place is gone")
	}
}

// TestEncryptSecrets stores secrets under patterns that do not match, in the clear. With
// the patterns they are encrypted; a second time there is nothing left to do.
func TestEncryptSecrets(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)

	s.secrets.UsePatterns(func() configuration.Secrets { return nil })
	storeSecrets(t, s)

	if !bytes.Contains(values(t, s), []byte(canary)) {
		t.Fatal("nothing was stored in the clear")
	}

	s.secrets.UsePatterns(configuration.DefaultSecrets)

	if written, err := s.EncryptSecrets(ctx); err != nil || written != 4 {
		t.Errorf("%d records, %v", written, err)
	}

	checkSecrets(t, s)

	if stored := values(t, s); bytes.Contains(stored, []byte(canary)) {
		t.Errorf("in etcd: %s", stored)
	}

	if written, err := s.EncryptSecrets(ctx); err != nil || written != 0 {
		t.Errorf("again: %d records, %v", written, err)
	}
}

// TestEncryptOnce encrypts what is stored in the clear when the key or the patterns have
// changed, and reads no record otherwise.
func TestEncryptOnce(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)
	storeSecrets(t, s)
	must(t, s.NoteSecretsKey(ctx, "", testKey.ID(), false))

	_, err := putVars(ctx, s, s.View(), state.ScopeNode("a-1"), configuration.Vars{"pin": canary}, variable.Change{})
	must(t, err)

	encrypt := func(what string, want int) {
		t.Helper()

		if written, err := s.EncryptOnce(ctx); err != nil || written != want {
			t.Errorf("%s: %d records, %v", what, written, err)
		}
	}
	encrypt("the first time", 0)

	s.secrets.UsePatterns(func() configuration.Secrets { return append(configuration.DefaultSecrets(), "pin") })
	encrypt("with another pattern", 1)
	checkSecrets(t, s)

	// What is stored in the clear by somebody else is not looked for again.
	op, err := put(varsKey(s, state.ScopeNode("b-2")), state.ScopeVars{Vars: configuration.Vars{"pin": canary}})
	must(t, err)
	_, err = s.client.Do(ctx, op)
	must(t, err)
	encrypt("again", 0)

	now := secret.NewKey()
	s.secrets.Use(secret.NewRing(testKey).With(now), nil)
	must(t, s.NoteSecretsKey(ctx, testKey.ID(), now.ID(), true))
	encrypt("with another key", 6)
}

// TestMarkedPast marks a variable that was in the clear: the transaction encrypts the
// history of its scope, and the next EncryptOnce all other records.
func TestMarkedPast(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)
	must(t, s.NoteSecretsKey(ctx, "", testKey.ID(), false))

	plain, marked := configuration.Vars{"pin": canary}, configuration.Vars{"pin": configuration.NewSecret(canary)}
	write := func(scope state.Scope, vars configuration.Vars) {
		t.Helper()
		_, err := putVars(ctx, s, s.View(), scope, vars, variable.Change{Action: variable.ActionSet, After: vars})
		must(t, err)
	}

	write(state.ScopeGlobal, plain)
	write(state.ScopeNode("a-1"), plain)

	must(t, putOverlay(ctx, s, s.View(), configuration.Vars{"vars": map[string]any(plain)}))

	in := job.Inputs{
		Vars: map[string]map[string]configuration.Var{
			"a-1": {"pin": {Value: canary, Origin: configuration.OriginNode}},
		},
		CleanupVars: map[string]map[string]map[string]configuration.Var{
			"former": {"a-1": {"pin": {Value: canary, Origin: configuration.OriginGroup}}},
		},
		Extra: plain,
	}
	_, err := accept(ctx, s, job.Job{Verb: inventory.VerbCommission, Status: job.Queued}, in)
	must(t, err)

	if written, err := s.EncryptOnce(ctx); err != nil || written != 0 {
		t.Errorf("before the mark: %d records, %v", written, err)
	}

	write(state.ScopeGlobal, marked)

	for _, key := range []string{varsKey(s, state.ScopeGlobal), s.variablesHistoryPrefix(state.ScopeGlobal)} {
		resp, err := s.client.Get(ctx, key, clientv3.WithPrefix())
		must(t, err)

		for _, kv := range resp.Kvs {
			if bytes.Contains(kv.Value, []byte(canary)) {
				t.Errorf("at once: %s is %s", kv.Key, kv.Value)
			}
		}
	}

	if written, err := s.EncryptOnce(ctx); err != nil || written != 4 {
		t.Errorf("after the mark: %d records, %v", written, err)
	}

	if stored := values(t, s); bytes.Contains(stored, []byte(canary)) {
		t.Errorf("in etcd: %s", stored)
	}

	kept, err := s.Inputs(ctx, "1")
	must(t, err)

	if !reflect.DeepEqual(kept.Extra, marked) ||
		!reflect.DeepEqual(state.VarsOf(s.View(), state.ScopeNode("a-1")), marked) {
		t.Errorf("the values have changed: %v, %v", kept.Extra, state.VarsOf(s.View(), state.ScopeNode("a-1")))
	}
}

// TestNewKey encrypts all secrets with a new key. They are readable at any time, and the
// former key is needed no more.
func TestNewKey(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)
	storeSecrets(t, s)

	before, err := s.VarsHistory(ctx, state.ScopeGlobal)
	must(t, err)

	now := secret.NewKey()
	s.secrets.Use(secret.NewRing(testKey).With(now), nil)
	checkSecrets(t, s)

	if written, err := s.EncryptSecrets(ctx); err != nil || written != 4 {
		t.Errorf("%d records, %v", written, err)
	}

	found, err := s.CountSecrets(ctx)
	must(t, err)

	if found.Boxes[testKey.ID()] != 0 || found.Boxes[now.ID()] != 11 {
		t.Errorf("%+v", found)
	}

	// An undo goes back to the revision of a change.
	after, err := s.VarsHistory(ctx, state.ScopeGlobal)
	if err != nil || len(after) != 1 || after[0].Revision != before[0].Revision {
		t.Errorf("%+v, before %+v, %v", after, before, err)
	}

	checkSecrets(t, openWith(t, s, NewSecrets(secret.NewRing(now), nil)))
}

// TestSecretsKey names the key of a store: of two instances that begin at once, one is
// refused.
func TestSecretsKey(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)

	if id, _, err := s.SecretsKey(ctx); id != "" || err != nil {
		t.Errorf("an empty store names %q, %v", id, err)
	}

	must(t, s.NoteSecretsKey(ctx, "", "one", false))
	conflict(t, s.NoteSecretsKey(ctx, "", "two", false))
	must(t, s.NoteSecretsKey(ctx, "one", "three", true))

	if id, rotating, err := s.SecretsKey(ctx); id != "three" || !rotating || err != nil {
		t.Errorf("%q, %v, %v", id, rotating, err)
	}
}
