// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"

	"github.com/contiv/cluster/configuration/ansible"
	"github.com/contiv/cluster/configuration/repository"
	"github.com/contiv/cluster/management/step/playbook"
)

// Checks checks values of the configuration; see setting.Adapters.
type Checks struct {
	Temp string // folder for temporary files, made if it is missing; "": that of the system
}

// CheckAnsible refuses an ansible-playbook that is missing or too old.
func (Checks) CheckAnsible(ctx context.Context, path string) error {
	_, err := ansible.Check(ctx, path)
	return err
}

// CheckOwner refuses a folder that others than root may change.
func (Checks) CheckOwner(dir string) error {
	_, err := repository.CheckOwned(dir)
	return err
}

// CheckPlaybooks refuses a folder that `clusterm playbooks check` finds an error in.
func (a Checks) CheckPlaybooks(ctx context.Context, config playbook.Config) error {
	// Playbooks run as root: check the folder whose owner was checked.
	folder, err := repository.CheckOwned(config.Playbooks)
	if err != nil {
		return err
	}
	c, done, err := newCheck(ctx, config, folder, a.Temp)
	if err != nil {
		return err
	}
	defer done()

	if err := c.playbooks(ctx, c.parse); err != nil {
		return err
	}

	if err := c.variables(ctx); err != nil {
		return err
	}

	return c.err(config.Playbooks)
}

// CheckOwned refuses a file that is missing, or that others than root may change.
func (Checks) CheckOwned(path string) error {
	_, err := repository.CheckOwnedFile(path)
	return err
}
