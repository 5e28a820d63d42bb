// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

const (
	fileLoad = "load.yml"

	// loadPlay has Ansible load the variables of every host. It connects to none.
	loadPlay = `- hosts: all
  gather_facts: false
  become: false
  connection: local
  tasks:
    - ansible.builtin.debug:
        msg: clusterm-vars-loaded
`

	// checkedHost is a host of the groups, none of which is contacted.
	checkedHost = "syntax-check"

	// Beginnings of Ansible's messages.
	wrongPassword = "Decryption failed"
	noMapping     = "failed to combine variables"
)

// CheckVars lets ansible-playbook load the variables in group_vars and host_vars of the
// folder, an absolute path, for the groups, for all hosts and for the hosts. A file that
// is not YAML or has no names of variables is an error of kind invalid, and one that the
// passwords in VaultIDs do not decrypt an error of kind refused, with Ansible's message: a
// run would break off before its first task. The syntax check does not load them. Check
// describes the cache.
func (c *SyntaxChecker) CheckVars(ctx context.Context, folder string, groups, hosts []string) error {
	files := varsFiles(folder, groups, hosts)
	if len(files) == 0 {
		return nil
	}

	// Other hosts have nothing to load.
	hosts = slices.DeleteFunc(slices.Sorted(slices.Values(hosts)), func(name string) bool {
		return len(varsFilesOf(folder, filepath.Join("host_vars", name))) == 0
	})

	c.mu.Lock()
	defer c.mu.Unlock()

	key := syntaxKey{folder: folder, vars: strings.Join(files, "\n")}
	if _, ok := c.passed[key]; ok {
		return nil
	}

	inv, err := loadInventory(groups, hosts)
	if err != nil {
		return err
	}
	if err := c.load(ctx, key, inv, files); err != nil {
		return err
	}

	c.pass(key)

	return nil
}

func loadInventory(groups, hosts []string) ([]byte, error) {
	in := map[string][]string{configuration.TargetsGroup: append(hosts, checkedHost)}
	for _, g := range slices.Concat(groups, []string{inventory.GroupPrepare, configuration.HelpersGroup}) {
		in[g] = []string{checkedHost}
	}

	return listInventory(in)
}

// load runs a play of its own beside links to the variables.
func (c *SyntaxChecker) load(ctx context.Context, key syntaxKey, inv []byte, files []string) error {
	dir, err := os.MkdirTemp(c.TempDir, "clusterm-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // a leftover is harmless

	play := filepath.Join(dir, fileLoad)
	if err := os.WriteFile(play, []byte(loadPlay), 0o600); err != nil {
		return err
	}

	for _, name := range []string{"group_vars", "host_vars"} {
		if err := os.Symlink(filepath.Join(key.folder, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}

	_, err = c.run(ctx, dir, key, inv, play)
	if failed, ok := errors.AsType[*checkError](err); ok {
		return varsError(failed.message, files)
	}

	return err
}

func varsError(message string, files []string) error {
	kind, remedy := inventory.KindInvalid, "correct it and repeat the request"

	switch {
	case strings.Contains(message, noMapping):
		// The message goes on with the content.
		message = "one of these files has no names of variables: " + named(files)
	case strings.Contains(message, wrongPassword), strings.Contains(message, vaultMissing):
		kind, remedy = inventory.KindRefused, "correct the passwords of vault_ids in the manager's configuration file"
	}

	return inventory.Errorf(kind, "the variables of the playbook folder cannot be loaded:\n%s", message).
		Do("%s", remedy)
}
