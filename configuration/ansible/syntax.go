// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

// maxPassed bounds the cache of a SyntaxChecker.
const maxPassed = 1000

// SyntaxChecker checks playbooks without running them, and caches those that
// passed. Its methods may be called concurrently; checks run one at a time.
type SyntaxChecker struct {
	AnsiblePlaybook string // path or name; empty: ansible-playbook in PATH
	VaultIDs        []string
	TempDir         string // folder for the files of a check; empty: that of the system

	mu     sync.Mutex
	passed map[syntaxKey]struct{}
}

// syntaxKey identifies a check of a playbook, or of files of variables.
type syntaxKey struct{ folder, playbook, bundledRoles, vars string }

// Check lets ansible-playbook parse a playbook in folder, an absolute path. A
// playbook that is missing or does not parse is an error of kind invalid with
// Ansible's message. groups are the groups that the inventory of a run may
// have. The content of folder must never change: a playbook that passed is not
// checked again.
func (c *SyntaxChecker) Check(ctx context.Context, folder, playbook, bundledRoles string, groups ...string) error {
	if err := checkPlaybook(folder, playbook); err != nil {
		return err
	}

	if bundledRoles != "" {
		if err := configuration.CheckPath("the folder of bundled roles", bundledRoles); err != nil {
			return err
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	key := syntaxKey{folder: folder, playbook: playbook, bundledRoles: bundledRoles}
	if _, ok := c.passed[key]; ok {
		return nil
	}

	hosts := map[string][]string{}
	for _, g := range groups {
		hosts[g] = []string{checkedHost}
	}

	inv, err := listInventory(hosts)
	if err != nil {
		return err
	}
	if _, err := c.parse(ctx, key, inv, "--syntax-check"); err != nil {
		return err
	}

	c.pass(key)

	return nil
}

// pass caches a check that passed.
func (c *SyntaxChecker) pass(key syntaxKey) {
	if c.passed == nil || len(c.passed) > maxPassed {
		c.passed = map[syntaxKey]struct{}{}
	}

	c.passed[key] = struct{}{}
}

// parse runs ansible-playbook with an option that runs no task, and a configuration
// of its own, so that the account's ansible.cfg has no effect. It returns the output.
func (c *SyntaxChecker) parse(ctx context.Context, key syntaxKey, inv []byte, option string) ([]byte, error) {
	dir, err := os.MkdirTemp(c.TempDir, "clusterm-check-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) // a leftover is harmless

	out, err := c.run(ctx, dir, key, inv, option, filepath.Join(key.folder, key.playbook))
	if failed, ok := errors.AsType[*checkError](err); ok {
		return nil, syntaxError(key, failed.message)
	}
	return out, err
}

// checkError is the message of an ansible-playbook that failed.
type checkError struct{ message string }

func (e *checkError) Error() string { return e.message }

// run runs ansible-playbook with a configuration and an inventory in dir, and returns
// its output. If it fails, the error is a checkError.
func (c *SyntaxChecker) run(
	ctx context.Context,
	dir string,
	key syntaxKey,
	inv []byte,
	args ...string,
) ([]byte, error) {
	command, err := lookPath(c.AnsiblePlaybook)
	if err != nil {
		return nil, err
	}

	settings := c.config(dir, key)
	for name, content := range map[string][]byte{fileConfig: settings, fileInventory: inv} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, err
		}
	}

	env := []string{"ANSIBLE_CONFIG=" + filepath.Join(dir, fileConfig)}
	args = append([]string{"-i", filepath.Join(dir, fileInventory)}, args...)

	out, err := runShort(ctx, key.folder, env, command, args...)
	if err == nil {
		return out, nil
	}

	if ctx.Err() != nil {
		return nil, ctx.Err()
	}

	return nil, &checkError{checkMessage(key, out, err)}
}

// checkMessage returns Ansible's message without the path of the copy, which an
// operator does not edit.
func checkMessage(key syntaxKey, out []byte, err error) string {
	message := strings.TrimSpace(string(out))

	var failed *commandError
	if errors.As(err, &failed) {
		message = failed.stderr
	}

	message = strings.ReplaceAll(message, key.folder+"/", "")

	return firstBytes([]byte(cmp.Or(message, err.Error())), 2048)
}

func syntaxError(key syntaxKey, message string) error {
	remedy := "correct it and repeat the request"
	if strings.Contains(message, vaultMissing) {
		remedy = remedyVault
	}
	return inventory.Errorf(inventory.KindInvalid, "the playbook %s does not parse:\n%s", key.playbook, message).
		Do("%s", remedy)
}

func (c *SyntaxChecker) config(dir string, key syntaxKey) []byte {
	defaults := append(searchPaths(dir, key.folder, key.bundledRoles),
		"localhost_warning = False",
		"force_valid_group_names = ignore",
		"retry_files_enabled = False",
	)
	defaults = append(defaults, vaultSettings(c.VaultIDs)...)

	return []byte("[defaults]\n" + strings.Join(defaults, "\n") +
		"\n\n[inventory]\n" + strings.Join(inventorySettings, "\n") + "\n")
}

// listInventory has the groups with their hosts, none of which is contacted.
func listInventory(groups map[string][]string) ([]byte, error) {
	all, children := map[string]any{}, map[string]any{}

	for g, names := range groups {
		if err := inventory.CheckGroup(g); err != nil {
			return nil, err
		}

		hosts := map[string]any{}
		for _, name := range names {
			hosts[name], all[name] = nil, nil
		}

		children[g] = map[string]any{"hosts": hosts}
	}

	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	err := enc.Encode(map[string]any{"all": map[string]any{"hosts": all, "children": children}})

	return b.Bytes(), errors.Join(err, enc.Close())
}

// checkPlaybook refuses a playbook that is missing from its folder.
func checkPlaybook(folder, playbook string) error {
	isPlain := fs.ValidPath(playbook) && !strings.HasPrefix(playbook, "-") &&
		configuration.CheckPath("", filepath.Join("/", playbook)) == nil
	if !isPlain {
		return inventory.Errorf(inventory.KindInvalid, "%q is not the path of a playbook within its folder", playbook)
	}

	info, err := os.Stat(filepath.Join(folder, playbook))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return inventory.Errorf(inventory.KindInvalid, "the playbook folder has no %s", playbook).
			Do("add it, or configure another folder")
	case err != nil:
		return inventory.Errorf(inventory.KindInvalid, "the playbook %s cannot be read: %w", playbook, err)
	case !info.Mode().IsRegular():
		return inventory.Errorf(inventory.KindInvalid, "the playbook %s is not a file", playbook)
	}

	return nil
}
