// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// errReached ends the watch of Await.
var errReached = errors.New("the condition holds")

// Await blocks until the condition holds for every named node, which may not exist
// yet. After an error it returns the last record of each node that it has seen.
func Await(
	ctx context.Context, from Watcher, names []string, holds func(api.Node) bool, out Output,
) (map[string]api.Node, error) {
	nodes := map[string]api.Node{}
	synced := false

	o := client.WatchOptions{Kinds: []api.WatchKind{api.WatchNodes}, Names: names}

	err := each(ctx, from, o, out, func(change api.Change) error {
		switch change.Type {
		case api.ChangePut:
			n, err := change.Node()
			if err != nil {
				return err
			}
			nodes[change.Name] = n
		case api.ChangeDelete:
			delete(nodes, change.Name)
		case api.ChangeSync:
			synced = true
		}

		if !synced {
			return nil
		}

		for _, name := range names {
			if n, exists := nodes[name]; !exists || !holds(n) {
				return nil
			}
		}

		return errReached
	})
	if errors.Is(err, errReached) {
		err = nil
	}

	return nodes, err
}
