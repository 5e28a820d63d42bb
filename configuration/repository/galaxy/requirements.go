// SPDX-License-Identifier: Apache-2.0

// Package galaxy brings the collections and roles that playbooks require from a local
// mirror: archives in a folder of this host, or below an https URL.
package galaxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory"
)

// Files are the paths at which Ansible and people expect requirements.
var Files = []string{
	"requirements.yml", "requirements.yaml", "roles/requirements.yml", "roles/requirements.yaml",
	"collections/requirements.yml", "collections/requirements.yaml",
}

// Requirement is a collection or a role in one version.
type Requirement struct {
	File    string // that requires it
	Role    bool   // otherwise it is a collection
	Name    string // NAMESPACE.NAME of a collection
	Version string
}

// Archive returns the name of the file in a mirror.
func (r Requirement) Archive() string {
	name := r.Name
	if !r.Role {
		name = strings.Replace(name, ".", "-", 1)
	}
	return name + "-" + r.Version + ".tar.gz"
}

// Folder returns the path in the playbooks that the archive is unpacked to.
func (r Requirement) Folder() string {
	if r.Role {
		return "roles/" + r.Name
	}
	return "collections/ansible_collections/" + strings.Replace(r.Name, ".", "/", 1)
}

// The bounds of requirements.
const (
	maxFile    = 64 << 10 // bytes
	maxEntries = 200
)

var (
	collectionName    = regexp.MustCompile(`^[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*$`)
	collectionVersion = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$`)
	roleName          = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)
	roleVersion       = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._+-]*$`)
)

// Read returns the requirements of the playbooks in a folder. It is KindRefused unless each
// entry has a name and one version alone: other versions, and other sources than the
// mirror, would make the same commit have other content later.
func Read(playbooks fs.FS) ([]Requirement, error) {
	var all []Requirement

	folders := map[string]Requirement{}

	for _, file := range Files {
		found, err := readFile(playbooks, file)
		if err != nil {
			return nil, err
		}

		for _, r := range found {
			// Two files may name the same, e.g. one for ansible-galaxy and one for people.
			former, twice := folders[r.Folder()]

			switch {
			case twice && former.Version != r.Version:
				return nil, refusef(file, "%s is required in the versions %s and %s", r.Name, former.Version, r.Version)
			case twice:
				continue
			case len(all) == maxEntries:
				return nil, refusef(file, "more than %d collections and roles are required", maxEntries)
			}

			folders[r.Folder()], all = r, append(all, r)
		}
	}

	// The installation would write over files of the commit.
	for _, r := range all {
		if _, err := fs.Stat(playbooks, r.Folder()); err == nil {
			return nil, refusef(
				r.File,
				"%s is required, and %s is in the repository; remove one of them",
				r.Name,
				r.Folder(),
			)
		}
	}

	return all, nil
}

// Refuse is for playbooks without a mirror: it is KindRefused if they have a file with
// requirements.
func Refuse(playbooks fs.FS) error {
	for _, file := range Files {
		if _, err := fs.Lstat(playbooks, file); err == nil {
			return inventory.Errorf(inventory.KindRefused,
				"%s: the manager installs no roles and collections when it runs playbooks", file).
				Do("put them into the repository (ansible-galaxy install -r %s with -p roles or collections), "+
					"and remove %[1]s from it, or configure repository.requirements_mirror", file)
		}
	}

	return nil
}

func refusef(file, format string, args ...any) error {
	return inventory.Errorf(inventory.KindRefused, "%s: %s", file, fmt.Sprintf(format, args...)).
		Do("correct it with another commit: list each collection and role with its name and one version")
}

func readFile(playbooks fs.FS, file string) ([]Requirement, error) {
	f, err := playbooks.Open(file)

	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}

	defer f.Close()

	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))

	switch {
	case err != nil:
		return nil, err
	case len(content) > maxFile:
		return nil, refusef(file, "it is larger than %d bytes", maxFile)
	}

	var listed struct {
		Collections []yaml.Node `yaml:"collections"`
		Roles       []yaml.Node `yaml:"roles"`
	}

	// The old form is a list of roles.
	var kind yaml.Node
	if err = yaml.Unmarshal(content, &kind); err == nil && len(kind.Content) > 0 {
		if kind.Content[0].Kind == yaml.SequenceNode {
			err = kind.Decode(&listed.Roles)
		} else {
			decoder := yaml.NewDecoder(bytes.NewReader(content))
			decoder.KnownFields(true)
			err = decoder.Decode(&listed)
		}
	}

	if err != nil {
		return nil, refusef(file, "it does not parse: %s", inventory.Shorten(err.Error(), 200))
	}

	var found []Requirement

	for _, part := range []struct {
		entries []yaml.Node
		role    bool
	}{{listed.Collections, false}, {listed.Roles, true}} {
		for i := range part.entries {
			r, err := entry(&part.entries[i], file, part.role)
			if err != nil {
				return nil, err
			}
			found = append(found, r)
		}
	}

	return found, nil
}

// entry returns one requirement.
func entry(n *yaml.Node, file string, role bool) (Requirement, error) {
	r := Requirement{File: file, Role: role}

	switch n.Kind {
	case yaml.ScalarNode:
		separator := ":"
		if role {
			separator = ","
		}
		r.Name, r.Version, _ = strings.Cut(n.Value, separator)
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i].Value, n.Content[i+1].Value

			switch {
			case key == "name", key == "src" && role && r.Name == "":
				r.Name = value
			case key == "version":
				r.Version = value
			case key == "type" && value == "galaxy", key == "src" && role && value == r.Name:
			default:
				return r, refusef(
					file,
					"line %d has the key %q; only name and version are used, and archives come from "+
						"the mirror",
					n.Content[i].Line,
					inventory.Shorten(key, 40),
				)
			}
		}
	default:
		return r, refusef(file, "line %d is no entry", n.Line)
	}

	r.Version = strings.TrimSpace(strings.TrimPrefix(r.Version, "=="))
	names, versions := collectionName, collectionVersion

	if role {
		names, versions = roleName, roleVersion
	}

	const longest = 200

	switch {
	case len(r.Name) > longest || !names.MatchString(r.Name):
		return r, refusef(file, "line %d: %q is not the name of a collection or a role", n.Line,
			inventory.Shorten(r.Name, 60))
	case len(r.Version) > longest || !versions.MatchString(r.Version):
		return r, refusef(file, "line %d: %s has the version %q, and one such as 1.2.3 is needed", n.Line, r.Name,
			inventory.Shorten(r.Version, 60))
	}

	return r, nil
}
