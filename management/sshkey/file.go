// SPDX-License-Identifier: Apache-2.0

package sshkey

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/crypto/ssh"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
)

// maxKeyFile bounds a private key, in bytes. An RSA key of 16384 bits has less.
const maxKeyFile = 32 << 10

// usualKeys are the default identity files of ssh in ~/.ssh, except hardware keys, which need a person.
var usualKeys = []string{"id_rsa", "id_ecdsa", "id_ed25519"}

// readKey returns the public half of a private key. Errors are of kind invalid.
func readKey(path string) (public string, err error) {
	// The path becomes an argument of ssh.
	if err := (configuration.Connection{KeyFile: path}).Check(); path == "" || err != nil {
		return "", inventory.Errorf(inventory.KindInvalid,
			"%q is not an absolute path of letters, digits and ._/@+=,-", inventory.Shorten(path, 200))
	}

	content, err := readPrivate(path)
	if err != nil {
		return "", inventory.Errorf(inventory.KindInvalid, "the ssh key %s cannot be used: %w", path, err).
			Do("name a private key of this host that only its owner can read")
	}

	key, err := ssh.ParsePrivateKey(content)

	if _, locked := errors.AsType[*ssh.PassphraseMissingError](err); locked {
		return "", inventory.Errorf(inventory.KindInvalid,
			"the ssh key %s has a passphrase, which nobody can enter for the manager", path).
			Do("remove it: ssh-keygen -p -f %s", path)
	}

	if err != nil {
		return "", inventory.Errorf(inventory.KindInvalid, "%s is not a private ssh key: %w", path, err).
			Do("make one: ssh-keygen -t ed25519 -N '' -f FILE")
	}

	return configuration.ParseHostKey(string(ssh.MarshalAuthorizedKey(key.PublicKey())))
}

// PublicOf returns the public half of the private key in a file; "" is the usual key of the account.
func PublicOf(path string) (public string, err error) {
	if path == "" {
		if path, err = findUsual(Home()); err != nil {
			return "", err
		}
	}

	return readKey(path)
}

// present returns an error if the private half is not on this host, or has been replaced.
func present(key Key) error {
	public, err := readKey(key.Path)

	switch {
	case err != nil:
		return err
	case public != key.Public:
		return inventory.
			Errorf(inventory.KindPrecondition, "%s holds another ssh key than that of the rotation", key.Path).
			Do("bring the former file back")
	}

	return nil
}

// readPrivate reads a regular file that only its owner can read.
func readPrivate(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer f.Close()

	info, err := f.Stat()

	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("its mode is %04o, so that others may read it, and ssh refuses it", info.Mode().Perm())
	case info.Size() > maxKeyFile:
		return nil, fmt.Errorf("it is larger than %d bytes", maxKeyFile)
	}

	return io.ReadAll(io.LimitReader(f, maxKeyFile))
}

// generate writes a new key pair. It replaces files that a failed start of a rotation left behind.
func generate(path, comment string) (public string, err error) {
	pub, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", err
	}
	block, err := ssh.MarshalPrivateKey(private, comment)
	if err != nil {
		return "", err
	}

	key, err := ssh.NewPublicKey(pub)
	if err != nil {
		return "", err
	}
	line := string(bytes.TrimSpace(ssh.MarshalAuthorizedKey(key)))

	dir, name := filepath.Split(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	err = localfile.ReplaceAll(dir, map[string][]byte{
		name: pem.EncodeToMemory(block), name + ".pub": []byte(line + " " + comment + "\n"),
	})

	return line, err
}

// remove removes both files of a key. Missing files are no error.
func remove(path string) error {
	for _, file := range []string{path, path + ".pub"} {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}

	return localfile.SyncDir(filepath.Dir(path))
}

// findUsual returns the default identity in a home directory, or an error unless there is exactly one.
func findUsual(home string) (string, error) {
	var found []string
	for _, name := range usualKeys {
		path := filepath.Join(home, ".ssh", name)
		if _, err := os.Stat(path); err == nil {
			found = append(found, path)
		}
	}

	set := func(e *inventory.Error) error {
		return e.Do("set ssh.key_file to the key that the nodes accept").With(inventory.ShowSettings("ssh"))
	}

	switch len(found) {
	case 0:
		return "", set(inventory.Errorf(inventory.KindRefused,
			"the manager has no ssh key: ssh.key_file is not set, and %s/.ssh has none", home))
	case 1:
		return found[0], nil
	}

	return "", set(inventory.Errorf(inventory.KindRefused,
		"ssh.key_file is not set, and ssh would try several keys: %s", strings.Join(found, ", ")))
}

// Home returns the home of the account. ssh finds keys there, whatever HOME is.
func Home() string {
	home := os.Getenv("HOME")
	if me, err := user.Current(); err == nil {
		home = cmp.Or(me.HomeDir, home)
	}
	return home
}
