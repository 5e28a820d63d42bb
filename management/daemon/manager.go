// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/contiv/cluster/inventory/localfile"
	"github.com/contiv/cluster/management/state"
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

// identifyManager identifies the manager. It tries again in the background while the
// store accepts no writes. Until then no host can be prepared; all else works.
func (d *Daemon) identifyManager(ctx context.Context) {
	err := d.identifyOnce(ctx)
	if err == nil {
		return
	}

	d.opts.Logger.WithError(err).Warn("the identity of the manager cannot be read; no host can be prepared yet")

	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})

	go func() {
		defer close(ended)

		warn := func(error) {} // a request to prepare a host gets the reason

		err := state.RetryUnavailable(ctx, enterRetry, warn, func() error { return d.identifyOnce(ctx) })

		switch {
		case ctx.Err() != nil:
		case err != nil:
			d.opts.Logger.WithError(err).Error("the identity of the manager cannot be read; no host can be prepared")
		default:
			d.opts.Logger.Info("the manager has its identity: hosts can be prepared")
		}
	}()
	d.onStop("identity of the manager", func(context.Context) error { cancel(); <-ended; return nil })
}

// identifyOnce reads the identity of the store, and writes it into the data directory:
// other managers recognize the host by it.
func (d *Daemon) identifyOnce(ctx context.Context) error {
	path := filepath.Join(d.file.DataDir, "manager.json")
	old, _ := os.ReadFile(path) // unreadable: none

	// A store that was lost and begun anew is that of the same manager: its hosts carry the identity.
	var former manager
	if err := json.Unmarshal(old, &former); err != nil || !instanceIDs.MatchString(former.ID) {
		former.ID = ""
	}

	id, err := d.store.Identity(ctx, former.ID)
	d.gossip.set(func(g *gossip) {
		g.manager, g.noManager = manager{ID: id, Name: d.node.Name(), Addr: d.node.Addr}, err
	})

	if err != nil {
		return err
	}

	// A struct of strings always has a JSON form.
	content, _ := json.Marshal(manager{ID: id, Name: d.node.Name(), Addr: d.node.Addr})
	content = append(content, '\n')

	if bytes.Equal(old, content) {
		return nil
	}

	if err := localfile.Replace(path, content); err != nil {
		d.opts.Logger.WithError(err).Warn("the identity of the manager cannot be written")
	}

	return nil
}
