// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

var groups = noun[api.Group]{
	columns: print.GroupColumns, name: func(g api.Group) string { return g.Name }, empty: "no groups found",
	all: every((*client.Client).Groups),
}

func groupsRows() rows {
	return rows{
		"groups": groups.list(leaf{}),
	}
}
