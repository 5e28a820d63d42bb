// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/server/rest"
)

func (s *Server) enablePolicy(r *http.Request, c access.Caller, body api.PolicyEnable) (api.Policies, error) {
	return s.Policies.Enable(r.Context(), c, rest.Param(r, "name"), body.All, body.Reason)
}

// testPolicy serves a request for the outlooks of a policy. It changes nothing.
func (s *Server) testPolicy(r *http.Request, c access.Caller, body api.PolicyTest) (api.PolicyTested, error) {
	given, err := givenNodes(body.Nodes)
	if err != nil {
		return api.PolicyTested{}, err
	}
	return s.Policies.Test(rest.Param(r, "name"), given)
}

// givenNodes returns the nodes of a given inventory; nil: none is given.
func givenNodes(nodes *[]api.PolicyTestNode) ([]inventory.Node, error) {
	if nodes == nil {
		return nil, nil
	}

	given := make([]inventory.Node, len(*nodes))

	for i, n := range *nodes {
		node, err := givenNode(n)
		if err != nil {
			return nil, inventory.Errorf(inventory.KindInvalid, "nodes[%d]: %w", i, err).
				Do("give nodes as the list of nodes has them")
		}

		given[i] = node
	}

	return given, nil
}

func givenNode(n api.PolicyTestNode) (inventory.Node, error) {
	at := strings.LastIndex(n.Name, "-")
	if at <= 0 || at == len(n.Name)-1 || len(n.Name) > maxGivenName {
		return inventory.Node{}, fmt.Errorf("%q is not the name of a node", inventory.Shorten(n.Name, maxGivenName))
	}

	node := inventory.Node{
		Name: n.Name, Label: n.Name[:at], Serial: n.Name[at+1:], Addr: n.Addr, Group: n.Group, Residue: n.Residue,
		LastError: n.LastError, Labels: n.Labels, Duplicates: n.Duplicates,
	}

	var err error
	if node.Status, err = inventory.ParseStatus(string(n.Status)); err != nil {
		return inventory.Node{}, err
	}

	if node.State, err = inventory.ParseState(string(n.State)); err != nil {
		return inventory.Node{}, err
	}

	if n.PrevStatus != "" {
		if node.PrevStatus, err = inventory.ParseStatus(string(n.PrevStatus)); err != nil {
			return inventory.Node{}, err
		}
	}

	if n.Created != nil {
		node.Created, node.Presence.Since = *n.Created, *n.Created
	}

	if n.Updated != nil {
		node.Updated = *n.Updated
	}

	return node, nil
}

// maxGivenName is the length of the longest name of a node in bytes.
const maxGivenName = 300
