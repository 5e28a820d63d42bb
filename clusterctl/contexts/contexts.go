// SPDX-License-Identifier: Apache-2.0

// Package contexts keeps the managers that an operator has logged in to, with
// their pinned CAs and tokens, in a file of the operator.
package contexts

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
	"github.com/contiv/cluster/inventory/yamlfile"
)

// Local is the name of the manager on this host, by its socket. It needs no entry.
const Local = "local"

// Context is one manager and the credentials for it.
type Context struct {
	Name        string `yaml:"name"`
	URL         string `yaml:"url"`
	Fingerprint string `yaml:"ca_fingerprint,omitempty"` // pins the CA
	CA          string `yaml:"ca,omitempty"`             // CAs of a site, PEM
	Token       string `yaml:"token,omitempty"`
}

// File is the content of the file.
type File struct {
	Current  string    `yaml:"current_context"` // Local or empty: the socket
	Contexts []Context `yaml:"contexts"`
}

// Path returns the path of the file: below $XDG_CONFIG_HOME, or below ~/.config.
func Path() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", inventory.Errorf(inventory.KindInvalid, "there is no place for the contexts: %w", err).
			Do("set HOME or XDG_CONFIG_HOME to a folder of your own")
	}

	return filepath.Join(dir, "clusterctl", "config.yaml"), nil
}

const remedy = "correct the file, or remove it and log in again: clusterctl login URL"

// Load reads the file; a missing one is empty. It refuses a file that others than
// its owner may read or write.
func Load(path string) (File, error) {
	var f File

	info, err := os.Stat(path)

	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, nil
	case err != nil:
		return f, inventory.Errorf(inventory.KindInvalid, "the contexts cannot be read: %w", err)
	case info.Mode().Perm()&0o077 != 0:
		return f, inventory.Errorf(inventory.KindRefused, "others than you may open %s, which holds tokens", path).
			Do("chmod 600 %s; if others had access to it, revoke the tokens", path)
	}

	if _, err := yamlfile.Load(path, &f, remedy); err != nil {
		return File{}, err
	}

	for _, c := range f.Contexts {
		if err := CheckName(c.Name); err != nil {
			return File{}, yamlfile.Invalid(path, err, remedy)
		}
	}

	return f, nil
}

// Update changes the file as a whole: after an error it has the former content.
func Update(path string, change func(*File) error) error {
	fail := func(err error) error {
		return inventory.Errorf(inventory.KindUnavailable, "the contexts cannot be written: %w", err).
			Do("check owner, mode and free space of %s", filepath.Dir(path))
	}

	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fail(err)
	}

	unlock, err := localfile.Lock(filepath.Dir(path), ".lock")
	if errors.Is(err, localfile.ErrLocked) {
		return inventory.Errorf(inventory.KindUnavailable, "another clusterctl changes the contexts at this moment").
			Do("repeat the command")
	}

	if err != nil {
		return fail(err)
	}

	defer unlock()

	f, err := Load(path)
	if err != nil {
		return err
	}
	if err := change(&f); err != nil {
		return err
	}

	text, err := yaml.Marshal(f)
	if err == nil {
		err = localfile.Replace(path, text)
	}

	if err != nil {
		return fail(err)
	}

	return nil
}

// names matches the name of a context.
var names = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._:@-]{0,126}[A-Za-z0-9])?$`)

// CheckName refuses a name that no context may have.
func CheckName(name string) error {
	if name == Local {
		return inventory.Errorf(inventory.KindInvalid, "the name %s stands for the manager on this host", Local).
			Do("choose another name")
	}

	if !names.MatchString(name) {
		return inventory.Errorf(inventory.KindInvalid, "%q is no name of a context", name).
			Do("use letters, digits, dots, underscores, colons, @ and hyphens, at most 128")
	}

	return nil
}

// Get returns the context with the name.
func (f File) Get(name string) (Context, error) {
	for _, c := range f.Contexts {
		if c.Name == name {
			return c, nil
		}
	}

	err := inventory.Errorf(inventory.KindNotFound, "there is no context %q", name)
	if near := inventory.Closest(name, f.Names()); near != "" {
		return Context{}, err.Do("did you mean %s?", near)
	}

	return Context{}, err.Do("to list the contexts: clusterctl context list; to make one: clusterctl login URL")
}

// Names returns the names of all contexts, the local one included, in order.
func (f File) Names() []string {
	out := []string{Local}
	for _, c := range f.Contexts {
		out = append(out, c.Name)
	}

	slices.Sort(out[1:])

	return out
}

// Set adds a context, or replaces the one with its name.
func (f *File) Set(c Context) {
	same := func(old Context) bool { return old.Name == c.Name }
	f.Contexts = append(slices.DeleteFunc(f.Contexts, same), c)
}

// Remove removes a context. If it was the current one, the local one is.
func (f *File) Remove(name string) {
	f.Contexts = slices.DeleteFunc(f.Contexts, func(c Context) bool { return c.Name == name })
	if f.Current == name {
		f.Current = ""
	}
}
