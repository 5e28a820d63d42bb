// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/contiv/cluster/inventory"
)

// galaxyTimeout bounds one run of ansible-galaxy.
const galaxyTimeout = 5 * time.Minute

// Archives are files for ansible-galaxy.
type Archives struct {
	Collections []string          // paths
	Roles       map[string]string // paths, by the name of the role
}

// InstallArchives lets ansible-galaxy unpack archives into roles and collections of a
// folder of playbooks. It uses no network: a collection that another one depends on must
// be among the archives. temp is an empty folder for its files. ansiblePlaybook is as in
// Check; ansible-galaxy is beside it, or in PATH. Archives that cannot be installed are
// KindRefused, with Ansible's message.
func InstallArchives(ctx context.Context, ansiblePlaybook string, a Archives, folder, temp string) error {
	galaxy, err := galaxyPath(ansiblePlaybook)
	if err != nil {
		return err
	}

	// Nothing of the account and of the machine counts.
	config := filepath.Join(temp, "ansible.cfg")
	text := "[defaults]\nhome = " + temp + "\ncollections_path = " + filepath.Join(folder, "collections") +
		"\nroles_path = " + filepath.Join(folder, "roles") + "\n"

	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}

	env := []string{"HOME=" + temp, "ANSIBLE_CONFIG=" + config}
	install := func(args ...string) error {
		_, err := runFor(ctx, galaxyTimeout, temp, env, galaxy, args...)

		switch failed, ok := errors.AsType[*commandError](err); {
		case ok:
			return inventory.Errorf(inventory.KindRefused, "the required collections and roles cannot be installed: %s",
				firstBytes([]byte(failed.stderr), 500)).
				Do("require what is missing as well, with its version, or correct the archives of the mirror")
		case err != nil:
			return inventory.Errorf(inventory.KindUnavailable, "%s failed: %w", galaxy, err).Do("run it by hand")
		}

		return nil
	}

	if len(a.Collections) > 0 {
		args := append([]string{
			"collection", "install", "--offline", "-p", filepath.Join(folder, "collections"),
		}, a.Collections...)
		if err := install(args...); err != nil {
			return err
		}
	}

	// A role finds its dependencies at run time, so that each is required by itself.
	for name, path := range a.Roles {
		roles := filepath.Join(folder, "roles")
		if err := install("role", "install", "--no-deps", "-p", roles, path+",,"+name); err != nil {
			return err
		}

		// It has the date.
		err := os.Remove(filepath.Join(roles, name, "meta", ".galaxy_install_info"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}

	return nil
}

func galaxyPath(ansiblePlaybook string) (string, error) {
	playbook, err := lookPath(ansiblePlaybook)
	if err != nil {
		return "", err
	}

	// Both come from one installation, perhaps a virtual environment.
	beside := filepath.Join(filepath.Dir(playbook), "ansible-galaxy")
	if path, err := exec.LookPath(beside); err == nil {
		return path, nil
	}

	path, err := exec.LookPath("ansible-galaxy")
	if err != nil {
		return "", inventory.Errorf(inventory.KindUnavailable, "ansible-galaxy cannot be run: %w", err).
			Do("install ansible-core %s or later, which has it", MinVersion)
	}

	return path, nil
}
