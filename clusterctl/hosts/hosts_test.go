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

	got, err := Host(h, "")

	want := `{"big":12345678901234567890,"e":1.10,"t":true,` +
		`"x":[{"__ansible_unsafe":"{{ a }}"},{"k {{ b }}":{"__ansible_unsafe":"{% c %}"},"n":null}],` +
		`"x2":["{{ d }}"]}` + "\n"
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}

	for _, part := range []string{"vars", "templates"} {
		for _, key := range []string{"__ansible_unsafe", "__ansible_vault", "__ansible_other"} {
			var bad api.InventoryHost

			text := fmt.Sprintf(`{"name": "a-1", %q: {"x": [{%q: "y"}]}}`, part, key)
			if err := json.Unmarshal([]byte(text), &bad); err != nil {
				t.Fatal(err)
			}

			got, err := List([]api.InventoryHost{bad}, "")
			if inventory.KindOf(err) != inventory.KindInvalid || got != nil {
				t.Errorf("%s was accepted in %s: %s, %v", key, part, got, err)
			}
		}
	}
}

func TestKnownHosts(t *testing.T) {
	t.Parallel()

	file := filepath.Join(t.TempDir(), "known")
	expect := func(want string, all ...api.InventoryHost) {
		t.Helper()

		if err := KnownHosts(t.Context(), file, all); err != nil {
			t.Fatal(err)
		}

		got, err := os.ReadFile(file)
		if err != nil || string(got) != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}

	web := api.InventoryHost{Name: "Web-1", HostKeys: []string{keyA, keyB}}
	expect("Web-1 "+keyA+"\nWeb-1 "+keyB+"\n", web)

	// A first contact by ssh, in lower case and without a line break at the end.
	added := "web-10 " + keyB
	if err := os.WriteFile(file, []byte("web-1 "+keyB+"\n"+added), 0o600); err != nil {
		t.Fatal(err)
	}

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
	if err != nil {
		t.Fatal(err)
	}
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
