// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/yamlfile"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/repository"
	"github.com/contiv/cluster/management/step/playbook"
)

// Adapters checks the values that only their adapters understand. Errors are of
// inventory.KindInvalid and begin with the key.
type Adapters interface {
	// CheckSections refuses invalid values of the sections gossip, etcd and repository.
	// It reads no file.
	CheckSections(Gossip, Etcd, repository.Config) error
	// CheckAnsible runs the ansible-playbook to get its version, and refuses one
	// that is missing or too old. It blocks until then.
	CheckAnsible(ctx context.Context, path string) error
	// CheckOwner refuses a folder of playbooks that others than root may change.
	CheckOwner(dir string) error
	// CheckPlaybooks refuses a configuration whose folder of playbooks jobs could not
	// use, e.g. because one does not parse. It runs Ansible and blocks until then.
	CheckPlaybooks(ctx context.Context, c playbook.Config) error
	// CheckRepository fetches the configured repository, and refuses one whose playbooks
	// jobs could not use.
	CheckRepository(ctx context.Context, c playbook.Config) error
	// CheckOwned refuses a file that is missing, or that others than root may change.
	CheckOwned(path string) error
}

// File is a configuration file as read. It is immutable.
type File struct {
	Config

	named map[string]bool // the dotted keys in the file
}

// remedy completes every error of a configuration file.
const remedy = "'clusterm example' prints every key with its meaning"

// Load reads a configuration file strictly: an unknown key and an invalid value
// are errors of inventory.KindInvalid, with the line if there is one. An empty
// path is the default configuration.
func Load(path string, adapters Adapters) (File, error) {
	f := File{Config: Default(), named: map[string]bool{}}
	if path == "" {
		return f, f.check(adapters)
	}
	top, err := yamlfile.Load(path, &f.Config, remedy)
	if err != nil {
		return File{}, err
	}
	if top != nil {
		walk(top, "", func(key string) { f.named[key] = true })
	}

	if err := f.check(adapters); err != nil {
		return File{}, yamlfile.Invalid(path, err, remedy)
	}

	return f, nil
}

// Socket returns the socket that a configuration file sets. A file that Load
// refuses still names its socket if it is YAML.
func Socket(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return DefaultSocket
	}

	var c struct {
		Socket string `yaml:"socket"`
	}
	if err := yaml.Unmarshal(data, &c); err != nil || !filepath.IsAbs(c.Socket) {
		return DefaultSocket
	}

	return c.Socket
}

func (f *File) check(adapters Adapters) error {
	if err := f.Check(); err != nil {
		return err
	}
	return adapters.CheckSections(f.Gossip, f.Etcd, f.Repository)
}

// walk calls found with the dotted key of each entry of the mapping.
func walk(n *yaml.Node, prefix string, found func(string)) {
	if n.Kind != yaml.MappingNode {
		return
	}

	// A mapping node holds keys and values in turn.
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := prefix + n.Content[i].Value
		found(key)
		walk(n.Content[i+1], key+".", found)
	}
}

// CheckHost refuses values that this host cannot serve: a missing Ansible, folder
// of playbooks or private key, or playbooks that do not parse. It skips values that
// are the same in old. It runs the Ansible and blocks until it answers.
func (c *Config) CheckHost(ctx context.Context, old Config, adapters Adapters) error {
	if c.Ansible != old.Ansible {
		if err := adapters.CheckAnsible(ctx, c.Ansible); err != nil {
			return invalid("ansible_playbook", "%w", err)
		}
	}

	if !slices.Equal(c.VaultIDs, old.VaultIDs) {
		for _, id := range c.VaultIDs {
			if err := checkVaultFile(configuration.VaultPath(id)); err != nil {
				return invalid("vault_ids", "%w", err)
			}
		}
	}

	for _, name := range slices.Sorted(maps.Keys(c.Secrets.Sources)) {
		source := c.Secrets.Sources[name]
		if reflect.DeepEqual(source, old.Secrets.Sources[name]) {
			continue
		}
		if err := adapters.CheckOwned(source.Path()); err != nil {
			return invalid("secrets.sources."+name, "%w", err)
		}
	}

	if err := c.checkGatePrograms(old, adapters); err != nil {
		return err
	}

	if err := c.checkFiles(old, adapters); err != nil {
		return err
	}

	if err := c.repositoryProblem(ctx, old, adapters); err != nil {
		return err
	}

	if c.Playbooks == "" || c.Playbooks == old.Playbooks {
		return nil
	}

	return inventory.Under("playbooks", adapters.CheckPlaybooks(ctx, c.Programs()))
}

// checkVaultFile refuses a file that is missing, that others can read, or that
// others can change: it may be run as root.
func checkVaultFile(path string) error {
	info, err := os.Stat(path)

	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a file", path)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s can be changed by others; chmod go-w %[1]s", path)
	case info.Mode().Perm()&0o111 == 0 && info.Mode().Perm()&0o044 != 0:
		return fmt.Errorf("the password in %s can be read by others; chmod 600 %[1]s", path)
	}

	return nil
}

// checkFiles is the part of CheckHost that runs no program.
func (c *Config) checkFiles(old Config, adapters Adapters) error {
	// In order, so that the same file always gets the same error.
	for _, group := range slices.Sorted(maps.Keys(c.GroupSSH)) {
		if err := checkKeyFile("group_ssh."+group, c.GroupSSH[group].KeyFile, old.GroupSSH[group].KeyFile); err != nil {
			return err
		}
	}

	if err := checkKeyFile("ssh", c.SSH.KeyFile, old.SSH.KeyFile); err != nil {
		return err
	}

	if c.Playbooks == "" || c.Playbooks == old.Playbooks {
		return nil
	}

	if _, err := os.Stat(filepath.Join(c.Playbooks, job.PlaybookSite)); err != nil {
		return invalid("playbooks", "there is no %s in %s", job.PlaybookSite, c.Playbooks).
			Do("put your playbooks there, or leave the key empty for the playbooks that come with clusterm")
	}

	if err := adapters.CheckOwner(c.Playbooks); err != nil {
		return invalid("playbooks", "%w", err)
	}

	return nil
}

// checkKeyFile refuses a new private key that cannot be read.
func checkKeyFile(section, path, old string) error {
	if path == "" || path == old {
		return nil
	}

	f, err := os.Open(path)
	if err != nil {
		return inventory.Errorf(inventory.KindInvalid, "%s.key_file cannot be read: %w", section, err).
			Do("give the path of a private key on this host")
	}

	return f.Close()
}
