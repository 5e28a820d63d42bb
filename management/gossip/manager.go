// SPDX-License-Identifier: Apache-2.0

package gossip

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/contiv/cluster/inventory/localfile"
	"github.com/contiv/cluster/management/cluster/datadir"
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

// retryEvery is the time between the first two attempts of identifyLater.
const retryEvery = 2 * time.Second

// Store has the identity of the manager.
type Store interface {
	// Identity returns it. The first call writes it: the former one, or if that is empty, a new one.
	Identity(ctx context.Context, former string) (string, error)
}

// Identify identifies the manager. While the store accepts no writes, it is tried again later: until then all else
// works.
func (g *Gossip) Identify(ctx context.Context, s Store, later func(func(context.Context))) {
	if err := g.identify(ctx, s); err != nil {
		g.Logger.WithError(err).Warn("the identity of the manager cannot be read; no host can be prepared yet")
		later(func(ctx context.Context) { g.identifyLater(ctx, s) })
	}
}

// managerFile has the identity of the manager, in the data directory.
const managerFile = "manager.json"

// FormerManager returns the identity of the manager to which the data directory belongs, or "".
func FormerManager(dataDir string) string {
	content, _ := os.ReadFile(filepath.Join(dataDir, managerFile)) // unreadable: none

	var former manager
	if err := json.Unmarshal(content, &former); err != nil || !datadir.IsID(former.ID) {
		return ""
	}

	return former.ID
}

// identify reads the identity of the store, and writes it into the data directory:
// other managers recognize the host by it. Until it succeeds, no host can be prepared.
func (g *Gossip) identify(ctx context.Context, s Store) error {
	path := filepath.Join(g.DataDir, managerFile)
	old, _ := os.ReadFile(path) // unreadable: none

	// A store that was lost and begun anew is that of the same manager: its hosts carry the identity.
	id, err := s.Identity(ctx, FormerManager(g.DataDir))
	m := manager{ID: id, Name: g.Node.Name(), Addr: g.Node.Addr}
	g.set(func() { g.manager, g.noManager = m, err })

	if err != nil {
		return err
	}

	// A struct of strings always has a JSON form.
	content, _ := json.Marshal(m)
	content = append(content, '\n')

	if bytes.Equal(old, content) {
		return nil
	}

	if err := localfile.Replace(path, content); err != nil {
		g.Logger.WithError(err).Warn("the identity of the manager cannot be written")
	}

	return nil
}

// identifyLater repeats identify while the store accepts no writes. Until then all else works.
func (g *Gossip) identifyLater(ctx context.Context, s Store) {
	warn := func(error) {} // a request to prepare a host gets the reason
	err := state.RetryUnavailable(ctx, retryEvery, warn, func() error { return g.identify(ctx, s) })

	switch {
	case ctx.Err() != nil:
	case err != nil:
		g.Logger.WithError(err).Error("the identity of the manager cannot be read; no host can be prepared")
	default:
		g.Logger.Info("the manager has its identity: hosts can be prepared")
	}
}
