// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/server/rest"
)

// postObservations records the report of a monitor under the monitor's name.
func (s *Server) postObservations(r *http.Request, _ access.Caller, body api.Report) (api.Reported, error) {
	rest.Note(r, "observer", body.Observer)
	rest.Note(r, "observations", len(body.Observations))

	observations, err := observationsOf(body)
	if err != nil {
		return api.Reported{}, err
	}

	if err := access.CheckObserver(access.IdentityOf(r.Context()), body.Observer); err != nil {
		return api.Reported{}, err
	}

	refused, revision, err := s.Nodes.Report(r.Context(), body.Observer, fullOf(body), observations)

	return api.Reported{Revision: revision, Refused: refusalsOf(refused)}, err
}

// observationsOf validates a report and returns its observations.
func observationsOf(body api.Report) ([]inventory.Observation, error) {
	if err := inventory.CheckObserver(body.Observer); err != nil {
		return nil, err
	}

	switch n := len(body.Observations); {
	case n > api.MaxObservations:
		return nil, inventory.Errorf(
			inventory.KindTooLarge, "the report has %d observations, the limit is %d", n, api.MaxObservations,
		).Do("send it in several reports, and limit each full one with after and until")
	// An empty full report is valid: the observer sees no node.
	case n == 0 && !body.Full:
		return nil, inventory.Errorf(inventory.KindInvalid, "the report has no observation").
			Do("name at least one node, or set full for an observer that sees none")
	}

	for name, text := range map[string]string{"after": body.After, "until": body.Until} {
		if text == "" {
			continue
		}

		if err := inventory.CheckName(text); err != nil {
			return nil, inventory.Errorf(inventory.KindInvalid, "%s: %w", name, err).
				Do("set %s to the name of a node, or leave it out", name)
		}
	}

	switch {
	case !body.Full && (body.After != "" || body.Until != ""):
		return nil, inventory.Errorf(inventory.KindInvalid, "after and until limit a full report, this one is partial").
			Do("set full, or leave both out")
	case body.Until != "" && body.After >= body.Until:
		return nil, inventory.Errorf(inventory.KindInvalid, "the report covers no name: after is not before until").
			Do("set after to a name before until, in the order of the bytes")
	}

	all := make([]inventory.Observation, len(body.Observations))
	for i, o := range body.Observations {
		all[i] = inventory.Observation{
			Observer: body.Observer,
			Label:    o.Label, Serial: o.Serial, Addr: o.Addr,
			Alive: o.Alive, Joined: o.Joined, Others: o.Others, UUID: o.UUID, MACs: o.MACs,
		}
	}

	return all, nil
}

// fullOf returns the range of a full report, or nil.
func fullOf(body api.Report) *inventory.NameRange {
	if !body.Full {
		return nil
	}
	return &inventory.NameRange{After: body.After, Until: body.Until}
}

// maxRefusal bounds the message of one refused observation, which may quote it, in bytes.
const maxRefusal = 1 << 10

// refusalsOf converts errors by observation, in the order of the observations.
func refusalsOf(refused map[int]error) []api.Refusal {
	var all []api.Refusal
	for _, i := range slices.Sorted(maps.Keys(refused)) {
		refusal := api.Refusal{Index: i, Message: refused[i].Error()}
		if e, ok := errors.AsType[*inventory.Error](refused[i]); ok {
			refusal.Message, refusal.Remedy = e.Message, e.Remedy
		}
		refusal.Message = inventory.Printable(inventory.Shorten(refusal.Message, maxRefusal))

		all = append(all, refusal)
	}

	return all
}
