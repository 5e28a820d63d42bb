// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/contiv/cluster/inventory/localfile"
)

// manager is the identity of a manager as its hosts carry it, so that another
// manager does not take them. The role agent reads and writes the same form.
type manager struct {
	ID   string `json:"id"`   // of the store
	Name string `json:"name"` // of the node that the manager runs on
	Addr string `json:"addr"`
}

// vars returns the identity as a variable of playbooks.
func (m manager) vars() map[string]any {
	return map[string]any{"id": m.ID, "name": m.Name, "addr": m.Addr}
}

// identifyManager reads the identity of the store, and writes it into the data
// directory: other managers recognize the host by it. A failure keeps hosts from
// being prepared and nothing else.
func (d *Daemon) identifyManager(ctx context.Context) {
	id, err := d.store.Identity(ctx)
	d.gossip.set(func(g *gossip) {
		g.manager, g.noManager = manager{ID: id, Name: d.node.Name(), Addr: d.node.Addr}, err
	})

	if err != nil {
		d.opts.Logger.WithError(err).Warn("the identity of the manager cannot be read; no host can be prepared")
		return
	}

	// A struct of strings always has a JSON form.
	content, _ := json.Marshal(manager{ID: id, Name: d.node.Name(), Addr: d.node.Addr})
	content = append(content, '\n')

	path := filepath.Join(d.file.DataDir, "manager.json")
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		return
	}

	if err := localfile.Replace(path, content); err != nil {
		d.opts.Logger.WithError(err).Warn("the identity of the manager cannot be written")
	}
}
