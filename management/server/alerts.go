// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

func (s *Server) alertRoutes() []rest.Route {
	return []rest.Route{
		list(s, alertListing, s.getAlerts, rest.Route{
			Path: api.PathAlerts, Allow: access.Readers.Scoped(),
			Doc: &openapi.Doc{
				ID: "listAlerts", Tag: aboutNodes, Summary: "List the alerts",
				Text: "Returns each alert on each node. The nodes have them too, so a watch of the nodes shows " +
					"their changes.",
				Success: "The alerts, by node.",
			},
		}),
		act(s, s.postAlert, rest.Route{
			Path: api.PathAlerts, Allow: access.Operators.Scoped(), Verb: "alert",
			Doc: &openapi.Doc{
				ID: "addAlert", Tag: aboutNodes, Summary: "Put an alert on nodes",
				Text: "Puts an alert on all of the nodes, or on none if it is refused for one. An alert with the " +
					"same source and reason takes the place of the earlier one, so a repetition changes nothing. " +
					"Jobs that run go on; one that waits is refused when its turn comes, if the alert blocks its " +
					"verb.",
				Success: "The alert on each node.", Revision: true,
				Fails: openapi.Fails{
					400: "The alert is invalid.", 404: "One of the nodes does not exist.",
					409: "A node has 8 alerts already.",
				},
			},
		}),
		act(s, s.postAlertEnd, rest.Route{
			Path: api.PathEndAlert, Allow: access.Operators.Scoped(), Verb: "alert",
			Doc: &openapi.Doc{
				ID: "endAlert", Tag: aboutNodes, Summary: "End an alert",
				Text: "Ends an alert on all nodes that have it and that the caller sees, or on the given ones. What " +
					"it has refused is not repeated.",
				Success: "The alert on each node that had it.", Revision: true,
				Fails: openapi.Fails{404: "No node has the alert."},
			},
		}),
	}
}

// alertListing is the order of alerts. Neither the node nor the id alone is unique.
var alertListing = rest.Listing[api.NodeAlert]{
	Key: "alert", Default: "alert",
	Fields: map[string]func(api.NodeAlert) string{
		"alert":  func(a api.NodeAlert) string { return a.Node + "/" + a.ID },
		"id":     func(a api.NodeAlert) string { return a.ID },
		"node":   func(a api.NodeAlert) string { return a.Node },
		"source": func(a api.NodeAlert) string { return a.Source },
		"since":  func(a api.NodeAlert) string { return rest.SortTime(a.Since) },
	},
}

func (s *Server) getAlerts(
	_ *http.Request, v *state.Scoped,
) ([]api.NodeAlert, func(api.NodeAlert) api.NodeAlert, error) {
	items := alertsOf(node.Alerts(v.Nodes()))
	return items, func(a api.NodeAlert) api.NodeAlert { return a }, nil
}

func (s *Server) postAlert(r *http.Request, c access.Caller, body api.AlertRequest) (api.List[api.NodeAlert], error) {
	rest.Note(r, "nodes", body.Nodes)

	request := node.AlertRequest{
		Nodes: body.Nodes, Reason: body.Reason, Source: body.Source, Effects: body.Effects,
	}
	if body.Until != nil {
		request.Until = *body.Until
	}

	alerts, err := s.Alerts.Alert(r.Context(), c, request)

	return s.changedAlerts(r, alerts), err
}

func (s *Server) postAlertEnd(r *http.Request, c access.Caller, body api.AlertEnd) (api.List[api.NodeAlert], error) {
	rest.Note(r, "nodes", body.Nodes)

	alerts, err := s.Alerts.EndAlert(r.Context(), c, node.AlertEnd{ID: body.ID, Nodes: body.Nodes, Reason: body.Reason})

	return s.changedAlerts(r, alerts), err
}

// changedAlerts is the answer to a change of alerts.
func (s *Server) changedAlerts(r *http.Request, alerts []node.Alerted) api.List[api.NodeAlert] {
	v := s.view(r.Context())

	out := alertsOf(alerts)
	for i := range out {
		out[i].Reason, out[i].Source = v.Text(out[i].Reason), v.Text(out[i].Source)
	}

	return api.List[api.NodeAlert]{Items: out, Total: len(out), Revision: v.Revision, Stale: v.Stale}
}

func alertsOf(alerts []node.Alerted) []api.NodeAlert {
	out := make([]api.NodeAlert, len(alerts))
	for i, a := range alerts {
		out[i] = api.NodeAlert(a)
	}

	return out
}
