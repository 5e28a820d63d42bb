// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/repository"
)

// anyAdapters accept every section and read no file.
type anyAdapters struct{ Adapters }

func (anyAdapters) CheckSections(Gossip, Etcd, repository.Config) error { return nil }

// FuzzFile expects a configuration file to be refused as invalid with its name, or to
// pass the checks, whatever it contains.
func FuzzFile(f *testing.F) {
	example, err := os.ReadFile("clusterm.yaml")
	errtest.None(f, err)
	f.Add(example)

	for _, s := range []string{
		"", "data_dir: /x\n", "data_dir: x", "jobs: {limit: 0}", "jobs:\n  timeout: 1h\n  timeout: 2h", "a: b",
		"--- {}\n--- {}", "ssh: {port: 70000}",
		"vars: {a: &x [*x]}", "groups: [{name: all}]", "gossip: off", "max_body: 1e9", "? {a: b}\n: c",
		"vars: {ansible_host: x}", "node: {label: \"{{ x }}\"}",
		"secret_vars: ['[']", "\xff", "log_level: 7", "plain_http: 0.0.0.0:9007", "group_ssh: {g: {user: -x}}",
	} {
		f.Add([]byte(s))
	}

	path := filepath.Join(f.TempDir(), "clusterm.yaml")

	f.Fuzz(func(t *testing.T, text []byte) {
		errtest.None(t, os.WriteFile(path, text, 0o600))

		c, err := Load(path, anyAdapters{})
		if err != nil {
			if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), path) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}

		if err := c.Check(); err != nil {
			t.Fatalf("%q is loaded, and fails its checks: %v", text, err)
		}

		if !strings.HasPrefix(c.DataDir, "/") || !strings.HasPrefix(c.Socket, "/") {
			t.Fatalf("%q sets the paths %q and %q", text, c.DataDir, c.Socket)
		}
	})
}

// FuzzOverlay expects a value of `config set` to be refused without a change of the
// file's configuration, or to pass the checks together with it.
func FuzzOverlay(f *testing.F) {
	for i, key := range slices.Sorted(maps.Keys(settable)) {
		value, err := json.Marshal(settable[key])
		errtest.None(f, err)
		f.Add(uint8(i), string(value))
	}

	for _, s := range []string{
		`{"a":{"b":[1]}}`, `null`, `-1`, `1e999`, `"{{ x }}"`, `"x\ny: z"`, `[[]]`, `"!unsafe x"`, `{"name":"all"}`,
	} {
		f.Add(uint8(3), s)
		f.Add(uint8(9), s)
	}

	keys := slices.Sorted(maps.Keys(settable))
	// A key of the file, and one that does not exist.
	keys = append(keys, "socket", "nosuch")

	f.Fuzz(func(t *testing.T, n uint8, text string) {
		dec := json.NewDecoder(strings.NewReader(text))
		dec.UseNumber()

		var value any
		if dec.Decode(&value) != nil {
			return
		}

		file, key := Default(), keys[int(n)%len(keys)]

		c, err := overlaid(file, map[string]any{key: value})
		if !reflect.DeepEqual(file, Default()) {
			t.Fatalf("%s=%s changed the configuration of the file", key, text)
		}

		if err != nil {
			if inventory.KindOf(err) != inventory.KindInvalid {
				t.Fatalf("%s=%s: %v", key, text, err)
			}
			return
		}

		if err := c.Check(); err != nil || key == "nosuch" || key == "socket" && c.Socket != file.Socket {
			t.Fatalf("%s=%s is accepted: %v", key, text, err)
		}

		// No value reaches another key.
		for _, other := range entries(c) {
			if !strings.HasPrefix(other.key, key) && !reflect.DeepEqual(other.value, valueOf(file, other.key)) {
				t.Fatalf("%s=%s set %s", key, text, other.key)
			}
		}
	})
}

func valueOf(c Config, key string) any {
	for _, e := range entries(c) {
		if e.key == key {
			return e.value
		}
	}

	return nil
}
