// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
)

const (
	formerKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDIhz2GK/XCUj4i6Q5yQJNL1MDC4Qo5Gf9dTcQZ3d9vV"
	freshKey  = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAbcdefghijklmnopqrstuvwxyz0123456789ABCDEFG"
	otherUser = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ"
)

// TestAuthorizedKeys puts a key beside an old one, and takes the old one away.
func TestAuthorizedKeys(t *testing.T) {
	t.Parallel()

	const added = plainOptions + " " + freshKey + " clusterm\n"

	for name, c := range map[string]struct {
		file, beside, after string
	}{
		"none":    {"", added, added},
		"plain":   {formerKey + " me\n", formerKey + " me\n" + added, added},
		"no end":  {formerKey, formerKey + "\n" + added, added},
		"foreign": {otherUser + "\n", otherUser + "\n" + added, otherUser + "\n" + added},
		"between": {
			"# a\n" + formerKey + "\n\n" + otherUser, "# a\n" + formerKey + "\n" + added + "\n" + otherUser,
			"# a\n" + added + "\n" + otherUser,
		},
		"carriage returns": {
			formerKey + " me\r\n" + otherUser + "\r\n", formerKey + " me\r\n" + added + otherUser + "\r\n",
			added + otherUser + "\r\n",
		},
		"a carriage return after the key": {formerKey + "\r\n", formerKey + "\r\n" + added, added},
		"options": {
			`from="10.0.0.1, \"x\" #",restrict ` + formerKey + " c\n",
			`from="10.0.0.1, \"x\" #",restrict ` + formerKey + " c\n" +
				`from="10.0.0.1, \"x\" #",restrict ` + freshKey + " clusterm\n",
			`from="10.0.0.1, \"x\" #",restrict ` + freshKey + " clusterm\n",
		},
		"white space":  {"\t " + formerKey + "\t x\n", "\t " + formerKey + "\t x\n" + added, added},
		"twice":        {formerKey + "\n" + formerKey + "\n", formerKey + "\n" + added + formerKey + "\n", added},
		"comment":      {"#" + formerKey + "\n", "#" + formerKey + "\n" + added, "#" + formerKey + "\n" + added},
		"key as text":  {`command="` + formerKey + `" ` + otherUser + "\n", "", ""},
		"open quote":   {`command="x ` + formerKey + "\n", "", ""},
		"authority":    {"Cert-Authority,restrict " + formerKey + "\n", "", ""},
		"no authority": {`command="cert-authority" ` + formerKey + "\n", "", added},
		"prefix":       {strings.TrimSuffix(formerKey, "V") + "W\n", "", ""},
		"another type": {strings.Replace(formerKey, "ssh-ed25519", "ssh-rsa", 1) + "\n", "", ""},
		"there": {
			freshKey + " mine\n" + formerKey + "\n", freshKey + " mine\n" + formerKey + "\n", freshKey + " mine\n",
		},
		"bytes": {
			"\x00\xff\xfe\n" + formerKey + "\n", "\x00\xff\xfe\n" + formerKey + "\n" + added,
			"\x00\xff\xfe\n" + added,
		},
	} {
		beside, err := AuthorizeKey([]byte(c.file), freshKey, formerKey, "clusterm")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}

		want, after := c.beside, c.after
		if want == "" {
			want = c.file + added
			if name == "no authority" {
				want = c.file + `command="cert-authority" ` + freshKey + " clusterm\n"
				after = `command="cert-authority" ` + freshKey + " clusterm\n"
			}
		}

		if after == "" {
			after = want
		}

		if string(beside) != want {
			t.Errorf("%s: with the new key:\n%q, want\n%q", name, beside, want)
		}

		if got := RevokeKey(beside, formerKey); string(got) != after {
			t.Errorf("%s: without the old key:\n%q, want\n%q", name, got, after)
		}
	}
}

func TestAuthorizeKeyErrors(t *testing.T) {
	t.Parallel()

	huge := bytes.Repeat([]byte("# "+strings.Repeat("x", 61)+"\n"), MaxAuthorizedKeys/64)

	for name, c := range map[string]struct {
		file         []byte
		key, comment string
		kind         inventory.Kind
	}{
		"huge":        {huge, freshKey, "c", inventory.KindTooLarge},
		"two lines":   {nil, freshKey + "\n" + otherUser, "c", inventory.KindInvalid},
		"with option": {nil, "restrict " + freshKey, "c", inventory.KindInvalid},
		"comment":     {nil, freshKey, "c\n" + otherUser, inventory.KindInvalid},
	} {
		if got, err := AuthorizeKey(c.file, c.key, formerKey, c.comment); inventory.KindOf(err) != c.kind ||
			got != nil {
			t.Errorf("%s: %.100q, %v", name, got, err)
		}
	}
}

// FuzzAuthorizedKeys edits hostile files: foreign lines stay, byte for byte.
func FuzzAuthorizedKeys(f *testing.F) {
	for _, seed := range []string{
		"", formerKey, formerKey + "\r\n", "# c\n\n" + otherUser + " x\n" + `from="a b\"",restrict ` + formerKey + " c",
		"cert-authority " + formerKey + "\n" + freshKey, `command="` + "\n" + formerKey,
		"\x00\n" + formerKey + "\x00\n",
		"environment=\"A=" + formerKey + "\" " + otherUser + "=\n", freshKey + "\n" + freshKey,
	} {
		f.Add([]byte(seed))
	}

	f.Fuzz(func(t *testing.T, file []byte) {
		given := slices.Clone(file)

		beside, err := AuthorizeKey(file, freshKey, formerKey, "c")
		if err != nil {
			if len(file) < MaxAuthorizedKeys/2 {
				t.Fatal(err)
			}
			return
		}

		if !Authorizes(beside, freshKey) {
			t.Fatalf("the key is not in %q", beside)
		}

		if again, err := AuthorizeKey(beside, freshKey, formerKey, "c"); err != nil || !bytes.Equal(again, beside) {
			t.Fatalf("a repetition: %q, %v", again, err)
		}

		// An undo restores the file, but for the end of a last line without one.
		restored := RevokeKey(beside, freshKey)
		if !Authorizes(file, freshKey) &&
			strings.TrimSuffix(string(restored), "\n") != strings.TrimSuffix(string(file), "\n") {
			t.Fatalf("%q became %q", file, restored)
		}

		after := RevokeKey(beside, formerKey)
		if Authorizes(after, formerKey) || !Authorizes(after, freshKey) {
			t.Fatalf("without the old key: %q", after)
		}
		if foreign(t, after) != foreign(t, file) {
			t.Fatalf("foreign lines of %q became %q", file, after)
		}

		if !bytes.Equal(given, file) {
			t.Fatal("the argument was changed")
		}
	})
}

// foreign returns the lines of other keys, with their ends.
func foreign(t *testing.T, file []byte) string {
	t.Helper()
	text := RevokeKey(RevokeKey(file, freshKey), formerKey)
	return strings.TrimSuffix(string(text), "\n")
}

// TestFormerKey: during a rotation the former key of the site is offered last, and only
// to hosts without a key of their own.
func TestFormerKey(t *testing.T) {
	t.Parallel()

	site := Connection{User: "ops", KeyFile: "/new", FormerKeyFile: "/old"}

	h := hostNamed("web-1")
	h.Connection = Connection{Port: 2222}.Over(site)

	if args := strings.Join(SSHArgs(h), " "); !strings.Contains(args, "IdentitiesOnly=yes -o IdentityFile=/old") {
		t.Errorf("the site's keys: %s", args)
	}

	h.Connection = Connection{KeyFile: "/own"}.Over(site)
	if args := strings.Join(SSHArgs(h), " "); strings.Contains(args, "IdentityFile") || h.Connection.KeyFile != "/own" {
		t.Errorf("a key of its own: %s", args)
	}

	if err := (Connection{FormerKeyFile: "/old -o x"}).Check(); inventory.KindOf(err) != inventory.KindInvalid {
		t.Errorf("an unsafe path: %v", err)
	}
}
