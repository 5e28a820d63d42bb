// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
	"github.com/contiv/cluster/management/api"
)

// reported stores, for each manager, the nodes that it has recorded as live on
// this monitor's report. It survives a restart in a file.
type reported struct {
	path string

	mu    sync.Mutex
	nodes map[string]map[string]api.LegacyEventNode // by manager, by node
}

// openReported reads the file and drops managers that are no longer configured.
// A file that does not parse is an error.
func openReported(path string, managers []string) (*reported, error) {
	t := &reported{path: path, nodes: map[string]map[string]api.LegacyEventNode{}}

	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return t, nil
	}

	if err == nil {
		err = json.Unmarshal(data, &t.nodes)
	}

	if err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable, "cannot read the reported nodes: %s: %w", path, err).
			Do("remove the file; nodes that disappeared meanwhile then keep their state at the managers")
	}

	for manager := range t.nodes {
		if !slices.Contains(managers, manager) {
			delete(t.nodes, manager)
		}
	}

	return t, nil
}

// names lists the nodes that any manager has recorded as live.
func (t *reported) names() []string {
	t.mu.Lock()
	defer t.mu.Unlock()

	var names []string
	for _, nodes := range t.nodes {
		names = slices.AppendSeq(names, maps.Keys(nodes))
	}

	return names
}

// of returns a copy of the live nodes of one manager.
func (t *reported) of(manager string) map[string]api.LegacyEventNode {
	t.mu.Lock()
	defer t.mu.Unlock()

	nodes := map[string]api.LegacyEventNode{}
	maps.Copy(nodes, t.nodes[manager])

	return nodes
}

// set stores the live nodes of one manager, if they have changed.
func (t *reported) set(manager string, nodes map[string]api.LegacyEventNode) error {
	t.mu.Lock()
	defer t.mu.Unlock()

	if maps.Equal(nodes, t.nodes[manager]) {
		return nil
	}

	t.nodes[manager] = nodes

	data, err := json.Marshal(t.nodes)
	if err != nil {
		return err
	}

	return localfile.Replace(t.path, append(data, '\n'))
}
