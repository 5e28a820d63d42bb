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
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/monitor"
)

// reported stores, for each manager, the nodes that were alive at the last report
// that it recorded. It survives a restart in a file, so that a restart of the
// monitor is no join of its nodes.
type reported struct {
	path string

	mu    sync.Mutex
	nodes map[string][]string // sorted, by manager
}

// openReported reads the file and drops managers that are no longer configured. A
// manager is the same one if it keeps a URL. A file that does not parse is an error.
func openReported(path string, managers []string) (*reported, error) {
	t := &reported{path: path, nodes: map[string][]string{}}

	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return t, nil
	}

	var stored map[string][]string
	if err == nil {
		err = json.Unmarshal(data, &stored)
	}

	if err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable, "cannot read the reported nodes: %s: %w", path, err).
			Do("remove the file; all nodes then count as joined anew")
	}

	for former, nodes := range stored {
		urls := client.URLs(former)
		same := func(manager string) bool {
			return slices.ContainsFunc(client.URLs(manager), func(at string) bool { return slices.Contains(urls, at) })
		}

		if i := slices.IndexFunc(managers, same); i >= 0 {
			known := slices.Concat(t.nodes[managers[i]], nodes)
			slices.Sort(known)
			t.nodes[managers[i]] = slices.Compact(known)
		}
	}

	return t, nil
}

// names lists the nodes that were alive at the last report to any manager.
func (t *reported) names() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Concat(slices.Collect(maps.Values(t.nodes))...)
}

// update applies a recorded report, and writes the file if that changes anything.
func (t *reported) update(manager string, rep monitor.Report) error {
	t.mu.Lock()
	defer t.mu.Unlock()

	alive := map[string]bool{}
	if !rep.Full {
		for _, name := range t.nodes[manager] {
			alive[name] = true
		}
	}

	for _, s := range rep.Sightings {
		if s.Alive {
			alive[s.Name()] = true
		} else {
			delete(alive, s.Name())
		}
	}

	names := slices.Sorted(maps.Keys(alive))
	if slices.Equal(names, t.nodes[manager]) {
		return nil
	}
	t.nodes[manager] = names

	data, err := json.Marshal(t.nodes)
	if err != nil {
		return err
	}
	return localfile.Replace(t.path, append(data, '\n'))
}
