// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

const (
	myKey   = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDIhz2GK/XCUj4i6Q5yQJNL1MDC4Qo5Gf9dTcQZ3d9vV"
	nextKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAbcdefghijklmnopqrstuvwxyz0123456789ABCDEFG"
)

// account is an account on a host, whose commands run on this one.
type account struct {
	*Prober

	home string
	file string
	host configuration.Host
}

// newAccount returns an account whose sshd has the setting AuthorizedKeysFile, with
// HOME for its home.
func newAccount(t *testing.T, setting string) account {
	t.Helper()

	dir := t.TempDir()
	home := filepath.Join(dir, "home")
	bin := filepath.Join(dir, "bin")

	for _, d := range []string{home, bin} {
		errtest.None(t, os.Mkdir(d, 0o700))
	}

	setting = strings.ReplaceAll(setting, "HOME", home)
	for name, script := range map[string]string{
		"sshd": "echo port 22; echo authorizedkeysfile " + setting,
		"sudo": `shift; HOME=/nowhere; exec "$@"`,
	} {
		writeFile(t, filepath.Join(bin, name), "#!/bin/sh\n"+script+"\n", 0o700)
	}

	// Behind a jump host, no port is tried first.
	h := host(22)
	h.Connection.Jump = "gate"

	p := &Prober{Dir: filepath.Join(dir, "tmp"), SSH: fakeSSH(t, "for line; do :; done\n"+
		"echo Welcome to this host\nexport HOME='"+home+"' PATH='"+bin+"':$PATH\nexec sh -c \"$line\"")}

	return account{p, home, filepath.Join(home, ".ssh/authorized_keys"), h}
}

func writeFile(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()

	errtest.None(t, os.MkdirAll(filepath.Dir(path), 0o700))

	// A process that another test starts meanwhile would keep the file open for writing,
	// and a script that is open for writing does not run.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()

	errtest.None(t, os.WriteFile(path, []byte(content), mode))
}

func (a account) authorize(t *testing.T) error {
	t.Helper()

	return a.EditAuthorizedKeys(t.Context(), a.host, func(file []byte) ([]byte, error) {
		return configuration.AuthorizeKey(file, nextKey, myKey, "next")
	})
}

func TestEditAuthorizedKeys(t *testing.T) {
	t.Parallel()

	const before = "restrict " + myKey + " 'me' $HOME\\n\r\n# foreign"

	after := "restrict " + myKey + " 'me' $HOME\\n\r\nrestrict " + nextKey + " next\n# foreign"

	a := newAccount(t, ".ssh/authorized_keys .ssh/authorized_keys2")
	writeFile(t, a.file, before, 0o640)

	errtest.None(t, os.Chmod(a.file, 0o640))

	for range 2 {
		if err := a.authorize(t); err != nil || read(t, a.file) != after {
			t.Fatalf("%v:\n%q, want\n%q", err, read(t, a.file), after)
		}
	}

	if info, err := os.Stat(a.file); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}

	// A link leads to the file afterwards as well.
	elsewhere := filepath.Join(a.home, "keys")
	errtest.None(t, errors.Join(os.Rename(a.file, elsewhere), os.Symlink(elsewhere, a.file)))

	err := a.EditAuthorizedKeys(t.Context(), a.host, func(file []byte) ([]byte, error) {
		return configuration.RevokeKey(file, myKey), nil
	})
	if err != nil || read(t, elsewhere) != "restrict "+nextKey+" next\n# foreign" {
		t.Errorf("%v: %q", err, read(t, elsewhere))
	}

	if to, err := os.Readlink(a.file); err != nil || to != elsewhere {
		t.Errorf("the link leads to %q: %v", to, err)
	}

	if left, err := filepath.Glob(filepath.Join(a.home, "*/*.??????")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

// TestEditAuthorizedKeysMissing: an account without a file gets one of its own.
func TestEditAuthorizedKeysMissing(t *testing.T) {
	t.Parallel()

	a := newAccount(t, "%h/.ssh/authorized_keys")
	errtest.None(t, a.authorize(t))
	if got := read(t, a.file); !strings.HasSuffix(got, " "+nextKey+" next\n") {
		t.Errorf("%q", got)
	}

	for path, want := range map[string]os.FileMode{a.file: 0o600, filepath.Dir(a.file): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

// TestEditAuthorizedKeysCentral edits a file outside the home of the account.
func TestEditAuthorizedKeysCentral(t *testing.T) {
	t.Parallel()

	if os.Getuid() != 0 {
		t.Skip("only root may ask sshd for the file")
	}

	a := newAccount(t, "HOME-keys/%u%%-%U none")
	file := a.home + "-keys/root%-0"
	writeFile(t, file, myKey+"\n", 0o644)

	yes := true
	a.host.Connection.Become = &yes

	if err := a.authorize(t); err != nil || !strings.Contains(read(t, file), nextKey) {
		t.Errorf("%v: %q", err, read(t, file))
	}

	for setting, want := range map[string]string{"none": "reads no", "HOME-keys/%f": "unknown form"} {
		if err := newAccount(t, setting).authorize(t); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", setting, err)
		}
	}
}

// TestEditAuthorizedKeysRefused: an edit that cannot be done as a whole changes nothing.
func TestEditAuthorizedKeysRefused(t *testing.T) {
	t.Parallel()

	a := newAccount(t, ".ssh/authorized_keys")
	writeFile(t, a.file, myKey+"\n", 0o600)

	err := a.EditAuthorizedKeys(t.Context(), a.host, func([]byte) ([]byte, error) {
		writeFile(t, a.file, "another key\n", 0o600)
		return []byte("x"), nil
	})
	if err == nil || !strings.Contains(err.Error(), "was changed meanwhile") || read(t, a.file) != "another key\n" {
		t.Errorf("a file that changed: %v: %q", err, read(t, a.file))
	}

	// The connection breaks while the new file is on its way.
	cut := newAccount(t, ".ssh/authorized_keys")
	writeFile(t, cut.file, myKey+"\n", 0o600)
	cut.SSH = fakeSSH(t, "for line; do :; done\nexport HOME='"+cut.home+"'\nhead -c 20 | sh -c \"$line\"")

	if err := cut.authorize(t); err == nil || !strings.Contains(err.Error(), "did not arrive as a whole") ||
		read(t, cut.file) != myKey+"\n" {
		t.Errorf("a broken connection: %v: %q", err, read(t, cut.file))
	}

	huge := newAccount(t, ".ssh/authorized_keys")
	writeFile(t, huge.file, strings.Repeat("#\n", configuration.MaxAuthorizedKeys), 0o600)

	if err := huge.authorize(t); inventory.KindOf(err) != inventory.KindTooLarge {
		t.Errorf("a huge file: %v", err)
	}
}

// TestParseKeys refuses answers of hostile hosts.
func TestParseKeys(t *testing.T) {
	t.Parallel()

	for _, answer := range []string{
		"", "clusterm-authorized-keys", "clusterm-authorized-keys present\nx", "clusterm-authorized-keys present a\nx",
		"clusterm-authorized-keys present /a\x1b[2J\nx", "clusterm-authorized-keys stolen /a\nx",
		"x clusterm-authorized-keys present /a\nx", "clusterm-authorized-keys present /a",
		"clusterm-authorized-keys present /" + strings.Repeat("a", 2000) + "\nx",
	} {
		if file, err := parseKeys([]byte(answer)); err == nil {
			t.Errorf("%.100q: %+v", answer, file)
		}
	}

	file, err := parseKeys(
		[]byte("Welcome\r\nclusterm-authorized-keys present /a b\nx\nclusterm-authorized-keys absent /c\n"),
	)
	if err != nil || file.path != "/a b" || !bytes.HasPrefix(file.content, []byte("x\nclusterm")) {
		t.Errorf("%+v, %v", file, err)
	}
}
