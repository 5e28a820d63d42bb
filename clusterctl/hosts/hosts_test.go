// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/localfile"
	"github.com/contiv/cluster/management/api"
)

const (
	keyA = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKX0Cq0cJ6v5wF0b9a5C7Yw5Sg0T0Gk3o0G8o5oVb1n2"
	keyB = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTY="
)

// TestMarks: text from the API is unsafe at any depth, that of the configuration file
// and everything that is no text stay as they are.
func TestMarks(t *testing.T) {
	t.Parallel()

	var h api.InventoryHost
	if err := json.Unmarshal([]byte(`{"name": "a-1", "vars": {
		"x": ["{{ a }}", {"k {{ b }}": "{% c %}", "n": null}], "big": 12345678901234567890, "e": 1.10, "t": true
	}, "templates": {"x2": ["{{ d }}"]}}`), &h); err != nil {
		t.Fatal(err)
	}

	got, omitted, err := Host(h, "")

	want := `{"big":12345678901234567890,"e":1.10,"t":true,` +
		`"x":[{"__ansible_unsafe":"{{ a }}"},{"k {{ b }}":{"__ansible_unsafe":"{% c %}"},"n":null}],` +
		`"x2":["{{ d }}"]}` + "\n"
	if err != nil || string(got) != want || len(omitted) > 0 {
		t.Errorf("got %s, %v, %v; want %s", got, omitted, err, want)
	}

	for _, part := range []string{"vars", "templates"} {
		for _, key := range []string{"__ansible_unsafe", "__ansible_vault", "__ansible_other"} {
			var bad api.InventoryHost

			text := fmt.Sprintf(`{"name": "bad-1", %q: {"x": [{%q: "y"}], "kept": 1}}`, part, key)
			errtest.None(t, json.Unmarshal([]byte(text), &bad))

			// A hostile or broken value of one host takes the inventory from no other.
			got, omitted, err := List([]api.InventoryHost{bad, h}, "")

			var answer struct {
				Meta struct {
					Hostvars map[string]map[string]any `json:"hostvars"`
				} `json:"_meta"`
			}
			if err != nil || json.Unmarshal(got, &answer) != nil {
				t.Fatalf("%s in %s: %s, %v", key, part, got, err)
			}

			vars := answer.Meta.Hostvars
			if fmt.Sprint(vars[bad.Name]) != "map[kept:1]" || len(vars[h.Name]) != 5 {
				t.Errorf("%s in %s: %s", key, part, got)
			}

			if len(omitted) != 1 || inventory.KindOf(omitted[0]) != inventory.KindInvalid ||
				!strings.Contains(omitted[0].Error(), "the variable x of bad-1 is left out") {
				t.Errorf("%s in %s: left out %v", key, part, omitted)
			}
		}
	}
}

func TestKnownHosts(t *testing.T) {
	t.Parallel()

	file := filepath.Join(t.TempDir(), "known")
	expect := func(want string, all ...api.InventoryHost) {
		t.Helper()

		errtest.None(t, KnownHosts(t.Context(), file, all))

		got, err := os.ReadFile(file)
		if err != nil || string(got) != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}

	web := api.InventoryHost{Name: "Web-1", HostKeys: []string{keyA, keyB}}
	expect("Web-1 "+keyA+"\nWeb-1 "+keyB+"\n", web)

	// A first contact by ssh, in lower case and without a line break at the end.
	added := "web-10 " + keyB
	errtest.None(t, os.WriteFile(file, []byte("web-1 "+keyB+"\n"+added), 0o600))
	expect(added+"\nWeb-1 "+keyA+"\nWeb-1 "+keyB+"\n", web, api.InventoryHost{Name: "web-10"})

	// Another selection of nodes keeps the lines of these.
	spare := api.InventoryHost{Name: "spare-1", HostKeys: []string{keyA}}
	expect(added+"\nWeb-1 "+keyA+"\nWeb-1 "+keyB+"\nspare-1 "+keyA+"\n", spare)
}

// TestKnownHostsTogether: processes with different nodes do not lose lines of each other.
func TestKnownHostsTogether(t *testing.T) {
	t.Parallel()

	file := filepath.Join(t.TempDir(), "known")

	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			h := api.InventoryHost{Name: fmt.Sprintf("web-%d", i), HostKeys: []string{keyA}}
			if err := KnownHosts(t.Context(), file, []api.InventoryHost{h}); err != nil {
				t.Error(err)
			}
		})
	}

	all.Wait()

	text, err := os.ReadFile(file)
	if err != nil || strings.Count(string(text), "\n") != 20 {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestKnownHostsLocked: the wait for another process ends with the context, and
// changes nothing.
func TestKnownHostsLocked(t *testing.T) {
	t.Parallel()

	file := filepath.Join(t.TempDir(), "known")

	l, err := localfile.TryLock(file + ".lock")
	errtest.None(t, err)
	defer l.Close()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	err = KnownHosts(ctx, file, []api.InventoryHost{{Name: "a-1", HostKeys: []string{keyA}}})
	if err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("got %v", err)
	}

	if _, err := os.Stat(file); err == nil {
		t.Error("the file was written")
	}
}

func TestCheckFile(t *testing.T) {
	t.Parallel()

	for file, ok := range map[string]bool{
		"/srv/play/known_hosts": true, "known": true, "/a b": false, "/a%h": false, "/a'b": false, "/${HOME}": false,
		"/a\nb": false,
	} {
		got, err := CheckFile(file)
		if (err == nil) != ok || ok && !filepath.IsAbs(got) {
			t.Errorf("%q: %q, %v", file, got, err)
		}
	}
}
