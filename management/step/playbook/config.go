// SPDX-License-Identifier: Apache-2.0

package playbook

import (
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/repository"
)

// Config is the part of the configuration that the programs behind a run depend on.
type Config struct {
	Playbooks        string // folder; empty: see Repository
	Repository       repository.Config
	Ansible          string // ansible-playbook
	AcceptVulnerable bool   // run one that evaluates text of hosts
	VaultIDs         []string
	Groups           inventory.Groups
	Forks            int   // hosts of one job at a time
	OutputLimit      int64 // bytes per stream of one job
}
