// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/monitor"
	"github.com/contiv/cluster/monitor/serf/serftest"
)

func TestParseKeys(t *testing.T) {
	t.Parallel()

	first, second := GenerateKey(), GenerateKey()

	keys, err := ParseKeys("\n " + first + " \r\n" + second + "\n" + first)
	if err != nil || !slices.Equal(keys, []string{first, second}) {
		t.Errorf("%v, %v", keys, err)
	}

	many := ""
	for range maxKeys + 1 {
		many += GenerateKey() + "\n"
	}

	for _, bad := range []string{"", "\n", first + "\nx", first[:10], many} {
		if keys, err := ParseKeys(bad); err == nil {
			t.Errorf("%q: %v", bad, keys)
		}
	}
}

func asked(t *testing.T, a *Agent, op monitor.KeyOp, key string) map[string]string {
	t.Helper()

	answers, err := a.AskKeys(t.Context(), op, key)
	errtest.None(t, err)

	problems := map[string]string{}
	for _, answer := range answers {
		problems[answer.Node] = answer.Problem
	}

	return problems
}

func wantKeys(t *testing.T, a *Agent, want ...string) {
	t.Helper()

	if keys, err := a.Keys(t.Context()); err != nil || !slices.Equal(keys, want) {
		t.Errorf("%s has the keys %v, want %v; %v", a.Name(), keys, want, err)
	}
}

// TestRotateKeys replaces the gossip key of a running gossip. The keyring survives a
// restart, and only a key file that was changed since replaces it.
func TestRotateKeys(t *testing.T) {
	t.Parallel()

	next := GenerateKey()

	hub := options(t, 90)
	hub.DataDir = t.TempDir()
	a := start(t, hub)

	other := options(t, 91)
	other.DataDir, other.Join = t.TempDir(), []string{a.Addr()}

	b, err := Start(t.Context(), other)
	errtest.None(t, err)
	eventually(t, "both are members", func() bool { return a.Stats().Alive == 2 && b.Stats().Alive == 2 })

	// A key that nobody has cannot be used, nor the used one removed.
	for node, problem := range asked(t, a, monitor.KeyUse, next) {
		if problem == "" {
			t.Errorf("%s uses a key that it does not have: %q", node, problem)
		}
	}

	for node, problem := range asked(t, a, monitor.KeyRemove, testKey) {
		if problem == "" {
			t.Errorf("%s has removed the key in use", node)
		}
	}

	// An answer may be lost, and every operation may be repeated.
	confirmed := func(op monitor.KeyOp, key string) {
		t.Helper()
		eventually(t, string(op), func() bool {
			problems := asked(t, a, op, key)
			return problems["node-90"] == "" && problems["node-91"] == "" && len(problems) == 2
		})
	}

	for _, op := range []monitor.KeyOp{monitor.KeyInstall, monitor.KeyInstall, monitor.KeyUse, monitor.KeyUse} {
		confirmed(op, next)
	}

	wantKeys(t, a, next, testKey)
	wantKeys(t, b, next, testKey)

	confirmed(monitor.KeyRemove, testKey)

	wantKeys(t, b, next)

	// The key file still has the old key.
	errtest.None(t, b.Close())

	b = start(t, other)
	wantKeys(t, b, next)
	eventually(t, "it is back with its keyring", func() bool { return b.Stats().Alive == 2 })

	// A member with the old key alone stays outside.
	late := options(t, 92)
	late.Join = []string{a.Addr()}
	outside := start(t, late)

	if outside.Stats().Alive != 1 {
		t.Error("a member with the removed key has joined")
	}

	errtest.None(t, os.WriteFile(late.KeyFile, []byte(next+"\n"), 0o600))

	late.Node = node(93)
	inside := start(t, late)
	eventually(t, "a member with the new key joins", func() bool { return inside.Stats().Alive == 3 })
}

// TestKeyringDamage: what the agent starts with, after each kind of damage.
func TestKeyringDamage(t *testing.T) {
	t.Parallel()

	file, rotated := GenerateKey(), GenerateKey()
	changed := GenerateKey()

	writing := func(text string) func(string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, keyringFile), []byte(text), 0o600) }
	}
	removing := func(file string) func(string) error {
		return func(dir string) error { return os.Remove(filepath.Join(dir, file)) }
	}

	for name, c := range map[string]struct {
		damage func(dir string) error
		file   string
		want   []string
		warns  bool
	}{
		"none": {want: []string{rotated}},
		"torn": {
			damage: writing(`["a`),
			want:   []string{rotated}, warns: true,
		},
		"empty": {
			damage: writing(""),
			want:   []string{rotated}, warns: true,
		},
		"removed":   {damage: removing(keyringFile), want: []string{file}},
		"new file":  {file: changed, want: []string{changed}},
		"both keys": {file: changed + "\n" + rotated, want: []string{changed, rotated}},
		"no state": {
			damage: removing(stateFile),
			want:   []string{rotated, file},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			dir := t.TempDir()

			s, _, err := openStore(dir)
			errtest.None(t, err)
			ring, _, err := s.openKeyring([]string{file})
			errtest.None(t, err)

			// A rotation, as serf carries it out.
			raw, _ := parseKey(rotated)
			old, _ := parseKey(file)

			errtest.None(t, ring.AddKey(raw))

			errtest.None(t, ring.UseKey(raw))

			errtest.None(t, ring.RemoveKey(old))

			content := `["` + rotated + `"]`
			errtest.None(t, os.WriteFile(filepath.Join(dir, keyringFile), []byte(content), 0o600))

			s.Keys = keysOf(ring)
			errtest.None(t, s.save())

			s.close()

			if c.damage != nil {
				errtest.None(t, c.damage(dir))
			}

			keys := []string{file}
			if c.file != "" {
				keys = strings.Split(c.file, "\n")
			}

			again, _, err := openStore(dir)
			errtest.None(t, err)
			defer again.close()

			ring, damage, err := again.openKeyring(keys)
			errtest.None(t, err)
			if got := keysOf(ring); !slices.Equal(got, c.want) || (damage != nil) != c.warns {
				t.Errorf("%v, want %v; damage %v", got, c.want, damage)
			}

			if st, err := os.Stat(filepath.Join(dir, keyringFile)); err != nil || st.Mode().Perm() != 0o600 {
				t.Errorf("the file has the mode %v, %v", st.Mode(), err)
			}
		})
	}
}

func TestKeyProblem(t *testing.T) {
	t.Parallel()

	// Malformed, and of another type.
	for _, payload := range []string{"", "\x08", "\x08\xff\xff", "\x07\x81\xa6Result\xc3"} {
		if keyProblem([]byte(payload)) != "its answer is malformed" {
			t.Errorf("%q: %q", payload, keyProblem([]byte(payload)))
		}
	}

	if got := keyProblem([]byte("\x08\x81\xa6Result\xc3")); got != "" {
		t.Errorf("a success: %q", got)
	}

	// The text of a member reaches a terminal.
	got := keyProblem([]byte("\x08\x82\xa6Result\xc2\xa7Message\xa8\x1b[2J\n\u202ex"))
	if !strings.HasPrefix(got, "it refuses: ?[2J") || strings.ContainsAny(got, "\x1b\n\u202e") {
		t.Errorf("a refusal: %q", got)
	}
}

// TestRotateRemoteKeys replaces the key of the distribution's serf over its RPC, with an
// agent of ours among the members.
func TestRotateRemoteKeys(t *testing.T) {
	serftest.NeedLab(t)
	t.Parallel()

	next := GenerateKey()
	hub := serftest.Start(t, "hub", at(210), gossiping("", tagged(node(210))...)...)

	o := options(t, 211)
	o.Join = []string{hub.Bound}
	ours := start(t, o)

	r, seen := watchIt(t, hub.RPC, func(o *RemoteOptions) { o.Timing = slow() })
	eventually(t, "both are seen", func() bool { return seen.see("node-210").Alive && seen.see("node-211").Alive })

	if keys, err := r.Keys(t.Context()); err != nil || !slices.Equal(keys, []string{testKey}) {
		t.Fatalf("%v, %v", keys, err)
	}

	ask := func(op monitor.KeyOp, key string, wantProblem bool) {
		t.Helper()
		eventually(t, string(op), func() bool {
			answers, err := r.AskKeys(t.Context(), op, key)
			if err != nil {
				t.Fatalf("%s: %v", op, err)
			}

			differs := func(a monitor.KeyAnswer) bool { return (a.Problem != "") != wantProblem || a.Node == "" }

			return len(answers) == 2 && !slices.ContainsFunc(answers, differs)
		})
	}

	ask(monitor.KeyUse, next, true)
	ask(monitor.KeyInstall, next, false)
	ask(monitor.KeyUse, next, false)
	ask(monitor.KeyRemove, testKey, false)
	wantKeys(t, ours, next)

	if r.Err() != nil {
		t.Errorf("the watch was interrupted: %v", r.Err())
	}
}
