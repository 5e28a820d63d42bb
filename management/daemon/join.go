// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/instance/joining"
	"github.com/contiv/cluster/management/setting"
	"github.com/contiv/cluster/monitor/serf"
)

// Join makes this host an instance of the manager, with the configuration in a file; see joining.Join.
func Join(ctx context.Context, path string, manager client.Options) (setting.File, api.JoinAnswer, error) {
	file, err := setting.Load(path, adapters{})
	if err != nil {
		return file, api.JoinAnswer{}, err
	}

	if file.Etcd.Used() {
		return file, api.JoinAnswer{}, inventory.Errorf(inventory.KindInvalid,
			"the configuration names an existing etcd, and an instance that joins brings its own").
			Do("remove the section etcd, or start clusterm without join")
	}

	node, err := serf.Identify(file.Node, true)
	if err != nil {
		return file, api.JoinAnswer{}, err
	}

	answer, err := joining.Join(ctx, joining.Options{
		Manager: manager, DataDir: file.DataDir, Node: node.Name(), Addr: node.Addr,
		ClientPort: file.Instances.ClientPort, PeerPort: file.Instances.PeerPort,
	})

	return file, answer, err
}
