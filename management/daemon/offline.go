// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/etcd/tool"
	"github.com/contiv/cluster/management/gossip"
	"github.com/contiv/cluster/management/instance"
	"github.com/contiv/cluster/management/instance/joining"
	"github.com/contiv/cluster/management/repository"
	"github.com/contiv/cluster/management/restore"
	"github.com/contiv/cluster/management/secret/keyring"
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

// OpenStoreTool connects to the store of a configuration; see tool.Open.
func OpenStoreTool(ctx context.Context, o Options) (*tool.Tool, error) {
	file, err := setting.Load(o.Path(), adapters{})
	if err != nil {
		return nil, err
	}
	t := tool.Options{Server: o.embedded(file), Kinds: kinds, Fits: file.Fits}
	if file.Etcd.Used() {
		existing := etcd.Existing(file.Etcd)
		t.Existing = &existing
	} else if err := (instance.Start{DataDir: file.DataDir, Etcd: t.Server.Dir}).Prepare(); err != nil {
		return nil, err
	}

	return tool.Open(ctx, t)
}

// Restore restores a backup into the store of a configuration; see restore.Run. r has what the operator chose.
func Restore(ctx context.Context, o Options, r restore.Options) error {
	r, err := o.offline(r)
	if err != nil {
		return err
	}

	return restore.Run(ctx, r)
}

// Recover makes the instance of a configuration the only one; see restore.Recover.
func Recover(ctx context.Context, o Options, r restore.Options, confirmed bool) error {
	file, err := setting.Load(o.Path(), adapters{})
	if err != nil {
		return err
	}
	if err := o.host(file).Refuse(ctx); err != nil {
		return err
	}

	r, err = o.offline(r)
	if err != nil {
		return err
	}

	return restore.Recover(ctx, r, confirmed)
}

// offline adds the store of the configuration.
func (o Options) offline(r restore.Options) (restore.Options, error) {
	file, err := setting.Load(o.Path(), adapters{})
	if err != nil {
		return r, err
	}

	r.Server, r.Kinds, r.Logger = o.embedded(file), kinds, o.Logger
	r.Own = gossip.FormerManager(file.DataDir)
	_, r.Secrets = keyring.Open(file.Secrets.KeyFile, file.DataDir, o.Logger)

	if file.Etcd.Used() {
		existing := etcd.Existing(file.Etcd)
		r.Existing = &existing
	}

	return r, nil
}

// Join makes this host an instance of a manager, and returns the configuration in the file; see joining.Join.
func Join(ctx context.Context, path string, manager client.Options) (setting.File, api.JoinAnswer, error) {
	file, err := setting.Load(path, adapters{})
	if err != nil {
		return file, api.JoinAnswer{}, err
	}
	node, err := serf.Identify(file.Node, true)
	if err != nil {
		return file, api.JoinAnswer{}, err
	}

	answer, err := joining.Join(ctx, joining.Options{
		Manager: manager, DataDir: file.DataDir, Existing: file.Etcd.Used(), Node: node.Name(), Addr: node.Addr,
		ClientPort: file.Instances.ClientPort, PeerPort: file.Instances.PeerPort,
	})

	return file, answer, err
}

// CheckPlaybooks checks a folder of playbooks for the configuration in a file; see program.CheckFolder.
//
// Groups and other settings that were set at run time count, as long as a manager runs on the host.
func CheckPlaybooks(ctx context.Context, configPath, folder string) (program.Report, error) {
	f, err := setting.Load(configPath, adapters{})
	if err != nil {
		return program.Report{}, err
	}
	config, unread := atRunTime(ctx, configPath, f)

	return program.CheckFolder(ctx, config.Programs(), folder, unread)
}

// atRunTime returns the configuration of the file with what was set at run time, if a manager runs. The
// error is why that cannot be read; the configuration is that of the file then.
func atRunTime(ctx context.Context, configPath string, f setting.File) (setting.Config, error) {
	overlay, err := storedSettings(ctx, configPath, f)
	if err != nil {
		return f.Config, err
	}
	config, err := f.With(overlay)
	if err != nil {
		return f.Config, err
	}
	return config, nil
}

// storedSettings returns what was set at run time, if a manager runs.
func storedSettings(ctx context.Context, configPath string, f setting.File) (map[string]any, error) {
	const patience = 5 * time.Second

	if !f.Etcd.Used() {
		running, err := etcd.Running(filepath.Join(f.DataDir, "etcd"))
		if err != nil || !running {
			return nil, err
		}
	}

	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	log := logrus.New()
	log.SetOutput(io.Discard)

	t, err := OpenStoreTool(ctx, Options{ConfigPath: configPath, Logger: log})
	if err != nil {
		return nil, err
	}
	overlay, err := t.Settings(ctx)

	return overlay, errors.Join(err, t.Close())
}
