// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/merge"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

// tagSalt keeps a tag from telling whether a guess of the settings, which have secrets,
// is right.
var tagSalt = rand.Text()

func (s *Server) inventoryRoutes() []rest.Route {
	return []rest.Route{
		{
			Method: http.MethodGet, Path: api.PathInventory,
			Allow: access.Readers.Scoped(), Serve: s.reading(s.getInventory),
			Query: nodeListing.Query(nodeQuery...),
			Doc: &openapi.Doc{
				ID: "getInventory", Tag: aboutNodes, Summary: "Get nodes as hosts of an Ansible inventory",
				Text: "Returns the selected nodes with their groups, connections and merged variables, as the " +
					"manager's own runs have them. Nodes without an address for ssh, such as a machine of which only " +
					"the BMC is known, and secrets are left out. `clusterctl inventory` and the collection " +
					"`contiv.clusterm` read this route.",
				Answer: api.List[api.InventoryHost]{}, Success: "The hosts, by name.",
				Fails: openapi.Fails{404: "A requested node or group does not exist."},
			},
		},
	}
}

func (s *Server) getInventory(w http.ResponseWriter, r *http.Request, v *state.Scoped) error {
	q := rest.Query(r)

	filter, err := s.nodeFilterOf(v, q)
	if err != nil {
		return err
	}

	merger, at := s.Variables.Merger(v.Whole()), snapshotOf(v)

	// Settings of the configuration file have no part in the revision of the view.
	settings, err := merger.Settings()
	if err != nil {
		return err
	}

	// A machine of which only the BMC is known is no host.
	hosts := slices.DeleteFunc(slices.Clone(filter.of(v)), func(n *inventory.Node) bool { return n.Addr == "" })

	contents := rest.Contents[*inventory.Node, api.InventoryHost]{
		At: at, Items: hosts,
		Tag: "W/" + rest.Tag(at.Revision, fmt.Appendf(settings, "%t %s", at.Stale, tagSalt)),
	}

	return rest.WriteShown(w, r, nodeListing, contents, func(n *inventory.Node) (api.InventoryHost, error) {
		h, err := merger.Inventory(n)
		return inventoryHostOf(n, h), err
	})
}

// inventoryHostOf returns the wire form of a node in the inventory.
func inventoryHostOf(n *inventory.Node, h merge.InventoryHost) api.InventoryHost {
	return api.InventoryHost{
		Name: n.Name, Group: n.Group, Vars: h.Data, Templates: h.Templates, Omitted: h.Omitted, HostKeys: n.HostKeys,
	}
}
