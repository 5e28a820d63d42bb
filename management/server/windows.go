// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"net/http"
	"time"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/window"
)

func (s *Server) windowRoutes() []rest.Route {
	return []rest.Route{
		show(s, s.getWindows, rest.Route{Path: api.PathWindows, Allow: access.Readers, Doc: &openapi.Doc{
			ID:      "listWindows",
			Summary: "List the maintenance windows",
			Text: "Returns the maintenance windows of the setting `windows`, which are open, when each opens " +
				"next, and the freeze. A job that would change a node outside of its windows waits in the " +
				"queue.",
			Success: "The windows and the freeze.",
		}}),
		act(s, s.postFreeze, rest.Route{
			Path: api.PathFreeze, Shows: api.PathFreeze, Allow: access.Operators, Doc: &openapi.Doc{
				ID:      "freeze",
				Summary: "Freeze changes",
				Text: "Holds back every job that would change a host, until the given time or until the freeze is " +
					"lifted: jobs wait in the queue, and those that run go on. Verifications and checks are not " +
					"held back, nor a job with `override_window`. It takes the place of an earlier freeze. Every " +
					"instance sees it, and it survives a restart.",

				Success:  "The freeze.",
				Revision: true,
			}}),
		act(s, s.postLift, rest.Route{
			Path: api.PathLiftFreeze, Shows: api.PathFreeze, Allow: access.Operators, Doc: &openapi.Doc{
				ID:      "liftFreeze",
				Summary: "Lift the freeze",
				Text: "Ends the freeze. The jobs that wait for it begin, as far as the maintenance windows of " +
					"their nodes allow.",

				Success:  "The freeze.",
				Revision: true,
				Fails:    openapi.Fails{409: "Nothing is frozen."},
			}}),
	}
}

func (s *Server) getWindows(r *http.Request, v *state.Scoped) (api.Windows, int64, error) {
	return windowsOf(s.Windows.Status(v.View)), 0, nil
}

func (s *Server) postFreeze(r *http.Request, c access.Caller, body api.FreezeRequest) (api.Freeze, error) {
	var until time.Time
	if body.Until != nil {
		until = *body.Until
	}

	freeze, err := s.Windows.Freeze(r.Context(), c, until, body.Reason)

	return freezeOf(freeze, time.Now()), err
}

func (s *Server) postLift(r *http.Request, c access.Caller, body api.FreezeLift) (api.Freeze, error) {
	freeze, err := s.Windows.Lift(r.Context(), c, body.Reason)
	return freezeOf(freeze, time.Now()), err
}

func windowsOf(s window.Status) api.Windows {
	out := api.Windows{Freeze: freezeOf(s.Freeze, s.Now), Windows: make([]api.Window, len(s.Windows))}

	for i, w := range s.Windows {
		out.Windows[i] = api.Window{
			Name: w.Name, Cron: w.Cron, Duration: api.Duration(w.Duration), TimeZone: cmp.Or(w.TimeZone, "UTC"),
			Groups: w.Groups, Selector: w.Selector, Nodes: w.Nodes, Open: !w.Closes.IsZero(),
			Closes: optionalTime(w.Closes), Opens: optionalTime(w.Opens),
		}
	}

	return out
}

func freezeOf(f window.Freeze, now time.Time) api.Freeze {
	return api.Freeze{
		Active: f.Active(now), Since: optionalTime(f.Since), Until: optionalTime(f.Until), Actor: f.Actor,
		Reason: f.Reason,
	}
}
