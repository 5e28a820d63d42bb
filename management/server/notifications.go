// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
)

// Notifier tells targets what happens; see notify.Notifier.
type Notifier interface {
	Status() []api.Notification
	// List returns the deliveries of a target, the oldest first, or KindNotFound.
	List(target string) ([]api.Delivery, error)
	// Test sends a test event to a target at once. It is KindRefused if the target did
	// not accept it.
	Test(ctx context.Context, c access.Caller, target string) error
	// Retry makes the dead deliveries of a target pending again.
	Retry(ctx context.Context, c access.Caller, target string) (count int, err error)
}

func (s *Server) notificationRoutes() []rest.Route {
	target := openapi.Param{Name: "name", Help: "The name of the target.", Example: "chat"}

	return []rest.Route{
		{Method: http.MethodGet, Path: api.PathNotifications, Serve: s.getNotifications,
			Allow: access.Readers, Doc: &openapi.Doc{
				ID: "listNotifications", Summary: "List the targets of notifications",
				Text:   "Returns the targets of the configuration, in its order, with the number of their deliveries.",
				Answer: api.Notifications{}, Success: "The targets.",
			}},
		{
			Method: http.MethodGet, Path: api.PathDeliveries, Allow: access.Readers, Serve: s.getDeliveries,
			Query: []openapi.Param{{
				Name: "status", Help: "Only deliveries with this status.", Values: []string{
					notify.Pending, notify.Delivered, notify.Dead, notify.Bundled,
				},
			}},
			Doc: &openapi.Doc{
				ID:      "listDeliveries",
				Summary: "List the deliveries of a target",
				Text: "Returns the deliveries, the oldest first. Those that have ended are kept for 7 days, " +
					"and the newest 1000.",
				Path:    []openapi.Param{target},
				Answer:  api.Deliveries{},
				Success: "The deliveries.",
				Fails:   openapi.Fails{404: ""},
			},
		},
		act(s, s.testNotification, rest.Route{Path: api.PathTestNotification, Allow: access.Admins, Doc: &openapi.Doc{
			ID:      "testNotification",
			Summary: "Test a target",
			Text: "Sends a test event to the target at once, and answers when the target did. It is refused if " +
				"the target does not accept it.",
			Path:    []openapi.Param{target},
			Success: "The target, which accepted the test.",
			Fails:   openapi.Fails{404: ""},
		}}),
		act(s, s.retryDeliveries, rest.Route{Path: api.PathRetryDeliveries, Allow: access.Operators, Doc: &openapi.Doc{
			ID: "retryDeliveries", Summary: "Deliver what is dead again",
			Text:    "Makes the dead deliveries of the target pending again.",
			Path:    []openapi.Param{target},
			Success: "The target.",
			Fails:   openapi.Fails{404: ""},
		}}),
	}
}

func (s *Server) getNotifications(w http.ResponseWriter, _ *http.Request) error {
	return rest.WriteJSON(w, http.StatusOK, api.Notifications{Items: s.Notifier.Status()})
}

// notification returns one target as it is now.
func (s *Server) notification(name string) (api.Notification, error) {
	list := s.Notifier.Status()

	// A reload may have removed it since.
	i := slices.IndexFunc(list, func(n api.Notification) bool { return n.Name == name })
	if i < 0 {
		return api.Notification{},
			inventory.Errorf(inventory.KindNotFound, "the target %s was removed meanwhile", name)
	}

	return list[i], nil
}

func (s *Server) getDeliveries(w http.ResponseWriter, r *http.Request) error {
	name := rest.Param(r, "name")

	status := rest.Query(r).Text("status")

	list, err := s.Notifier.List(name)
	if err != nil {
		return err
	}
	if status != "" {
		list = slices.DeleteFunc(list, func(d api.Delivery) bool { return d.Status != status })
	}

	return rest.WriteJSON(w, http.StatusOK, api.Deliveries{Items: list})
}

func (s *Server) testNotification(r *http.Request, c access.Caller, _ openapi.Empty) (api.Notification, error) {
	name := rest.Param(r, "name")

	if err := s.Notifier.Test(r.Context(), c, name); err != nil {
		return api.Notification{}, err
	}
	return s.notification(name)
}

func (s *Server) retryDeliveries(r *http.Request, c access.Caller, _ openapi.Empty) (api.Notification, error) {
	name := rest.Param(r, "name")

	if _, err := s.Notifier.Retry(r.Context(), c, name); err != nil {
		return api.Notification{}, err
	}
	return s.notification(name)
}
