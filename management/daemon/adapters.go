// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/repository"
	"github.com/contiv/cluster/management/setting"
	"github.com/contiv/cluster/management/step/playbook/program"
	"github.com/contiv/cluster/monitor/serf"
)

// Example is a configuration file with every key at its default, and a comment
// on each.
var Example = setting.Example

// ManualPage returns the manual page clusterm.yaml(5).
func ManualPage() ([]byte, error) { return setting.ManualPage() }

// Socket returns the socket that a configuration file sets, even if a daemon would
// refuse the file. An empty path is the default configuration.
func Socket(path string) string { return setting.Socket(path) }

// CheckFile refuses a configuration file that a daemon on this host would refuse
// or could not work with. It runs the configured Ansible and blocks until it
// answers. An empty path is the default configuration.
func CheckFile(ctx context.Context, path string) error {
	f, err := setting.Load(path, adapters{})
	if err != nil {
		return err
	}
	return f.CheckHost(ctx, setting.Default(), adapters{})
}

// CheckReload refuses a configuration file that a manager with this configuration and these nodes would refuse to
// reload, and returns the keys whose change needs a restart instead. It blocks as CheckFile does.
func CheckReload(
	ctx context.Context, path string, running api.Config, nodes []api.Node,
) (restart []string, err error) {
	f, err := setting.Load(path, adapters{})
	if err != nil {
		return nil, err
	}
	overlay, err := storedSettings(ctx, path, f)
	if err != nil {
		return nil, err
	}

	groups := map[string]string{}
	for _, n := range nodes {
		groups[n.Name] = n.Group
	}

	return f.NeedsRestart(running), f.CheckReload(ctx, overlay, groups, adapters{})
}

// adapters implements setting.Adapters.
type adapters struct{ program.Checks }

// CheckSections refuses invalid values of the sections gossip, etcd and repository.
func (adapters) CheckSections(gossip setting.Gossip, section setting.Etcd, r repository.Config) error {
	if err := program.CheckSection(r); err != nil {
		return err
	}

	if err := serf.SourceConfig(gossip).Check(); err != nil {
		return err
	}

	if err := etcd.Existing(section).Check(); err != nil {
		return inventory.Errorf(inventory.KindInvalid, "%w", err)
	}

	return nil
}

// settingsAPI implements server.Settings: it adds the nodes that former playbooks clean.
type settingsAPI struct {
	*setting.Settings
	// reload also returns the nodes of former, if the folder of playbooks has changed.
	reload func(context.Context, access.Caller) ([]string, error)
	former func(context.Context) []string
}

// Config returns the configuration in force.
func (s settingsAPI) Config() api.Config { return s.Values() }

// Patch sets keys of the overlay and returns the configuration then in force.
func (s settingsAPI) Patch(ctx context.Context, c access.Caller, patch map[string]any) (api.Config, error) {
	config, err := s.Settings.Patch(ctx, c, patch)
	if _, ok := patch[keyPlaybooks]; ok && err == nil {
		setFormer(config, s.former(ctx))
	}
	return config, err
}

// Reload reads the configuration file again and returns the configuration then in
// force.
func (s settingsAPI) Reload(ctx context.Context, c access.Caller) (api.Config, error) {
	former, err := s.reload(ctx, c)
	if err != nil {
		return nil, err
	}

	config := s.Values()
	setFormer(config, former)

	return config, nil
}

// keyPlaybooks is the key of the folder of playbooks.
const keyPlaybooks = "playbooks"

// setFormer adds the nodes that carry former playbooks to the key of the folder.
func setFormer(config api.Config, nodes []string) {
	entry := config[keyPlaybooks]
	entry.Former = nodes
	config[keyPlaybooks] = entry
}
