// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"net/http"
	"time"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/window"
)

func (s *Server) windowRoutes() []rest.Route {
	return []rest.Route{
		{Method: http.MethodGet, Path: api.PathWindows, Serve: s.reading(s.getWindows), Doc: &openapi.Doc{
			ID:      "listWindows",
			Summary: "List the maintenance windows",
			Text: "Returns the maintenance windows of the setting `windows`, which are open, when each opens " +
				"next, and the freeze. A job that would change a node outside of its windows waits in the " +
				"queue.",
			Answer:  api.Windows{},
			Success: "The windows and the freeze.",
		}},
		{Method: http.MethodPost, Path: api.PathFreeze, Serve: s.postFreeze, Doc: &openapi.Doc{
			ID:      "freeze",
			Summary: "Freeze changes",
			Text: "Holds back every job that would change a host, until the given time or until the freeze is " +
				"lifted: jobs wait in the queue, and those that run go on. Verifications and checks are not " +
				"held back, nor a job with `override_window`. It takes the place of an earlier freeze. Every " +
				"instance sees it, and it survives a restart.",
			Body:     api.FreezeRequest{},
			Answer:   api.Freeze{},
			Success:  "The freeze.",
			Revision: true,
		}},
		{Method: http.MethodPost, Path: api.PathLiftFreeze, Serve: s.postLift, Doc: &openapi.Doc{
			ID:      "liftFreeze",
			Summary: "Lift the freeze",
			Text: "Ends the freeze. The jobs that wait for it begin, as far as the maintenance windows of " +
				"their nodes allow.",
			Body:     api.FreezeLift{},
			Answer:   api.Freeze{},
			Success:  "The freeze.",
			Revision: true,
			Fails:    openapi.Fails{409: "Nothing is frozen."},
		}},
	}
}

func (s *Server) getWindows(w http.ResponseWriter, r *http.Request, v *state.View) error {
	return rest.WriteTagged(w, r, 0, windowsOf(s.Windows.Status(v)))
}

func (s *Server) postFreeze(w http.ResponseWriter, r *http.Request) error {
	var body api.FreezeRequest
	if err := rest.ReadJSON(w, r, &body); err != nil {
		return err
	}

	var until time.Time
	if body.Until != nil {
		until = *body.Until
	}

	freeze, err := s.Windows.Freeze(r.Context(), caller(r), until, body.Reason)
	if err != nil {
		return err
	}

	return s.writeFreeze(w, freeze)
}

func (s *Server) postLift(w http.ResponseWriter, r *http.Request) error {
	var body api.FreezeLift
	if err := rest.ReadJSON(w, r, &body); err != nil {
		return err
	}

	freeze, err := s.Windows.Lift(r.Context(), caller(r), body.Reason)
	if err != nil {
		return err
	}

	return s.writeFreeze(w, freeze)
}

// writeFreeze answers with a changed freeze.
func (s *Server) writeFreeze(w http.ResponseWriter, f window.Freeze) error {
	rest.ShowRevision(w, s.State.View().Revision)

	return rest.WriteJSON(w, http.StatusOK, freezeOf(f, time.Now()))
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
