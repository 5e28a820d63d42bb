// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"os"
	"os/user"
	"path/filepath"

	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/merge"
	"github.com/contiv/cluster/management/sshkey"
)

// openSSHKey makes the keeper of the manager's ssh key.
func (d *Daemon) openSSHKey() {
	// ssh finds keys in the home of the account, whatever HOME is.
	home := os.Getenv("HOME")
	if me, err := user.Current(); err == nil {
		home = cmp.Or(me.HomeDir, home)
	}

	d.sshKey = sshkey.New(sshkey.Options{
		State: d.store, Records: d.store, Hosts: d.programs.NewProber(),
		Settings: d.settings.SSHKey, Switch: d.settings.UseSSHKey, Leads: d.member.Leads,
		Node: d.node.Name(),
		Dir:  filepath.Join(d.file.DataDir, "ssh"), Home: home, Comment: cmp.Or("clusterm@"+d.node.Name(), "clusterm"),
		Audit: d.audit, Logger: d.opts.Logger.WithField("part", "ssh key"),
	})
}

// keyRotation returns the part of a rotation of the ssh key that connections need, or nil.
func (d *Daemon) keyRotation() *merge.KeyRotation {
	setting, path, former, ok := sshkey.RotationOf(d.store.View()).Former()
	if !ok {
		return nil
	}
	return &merge.KeyRotation{Setting: setting, KeyFile: path, Former: former}
}

// explainSettings returns the settings of the explanations.
func (d *Daemon) explainSettings() explain.Settings {
	s := d.settings.Explain()
	s.KeyLaggard = d.sshKey.Why
	return s
}
