// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/monitor"
)

// reporter is the monitor.Sink of one manager. An error makes the observer
// repeat the report as a full one.
type reporter struct {
	manager  *client.Client
	url      string
	observer string
	limit    int // observations in one request
	reported *reported
	log      logrus.FieldLogger

	// By node: the manager's last refusal, and the addresses of a duplicate.
	// Each entry has been logged.
	refused, duplicates map[string]string
}

func newReporter(
	manager *client.Client, url, observer string, reported *reported, log logrus.FieldLogger,
) *reporter {
	return &reporter{
		manager: manager, url: url, observer: observer, limit: api.MaxObservations, reported: reported, log: log,
		refused: map[string]string{}, duplicates: map[string]string{},
	}
}

// Observe sends a report. A node that the manager refuses is logged and does not
// affect the others.
func (r *reporter) Observe(ctx context.Context, rep monitor.Report) error {
	observations := make([]api.Observation, len(rep.Sightings))
	for i, s := range rep.Sightings {
		r.logDuplicate(s)
		observations[i] = observationOf(s)
	}

	if rep.Full {
		r.forgetUnlisted(observations)
	}

	if err := r.send(ctx, rep.Full, observations); err != nil {
		return fmt.Errorf("%s: %w", r.url, err)
	}

	if err := r.reported.update(r.url, rep); err != nil {
		r.log.WithError(err).Warn("cannot store the reported nodes; after a restart all of them count as joined anew")
	}

	return nil
}

func observationOf(s monitor.Sighting) api.Observation {
	return api.Observation{
		Label: s.Label, Serial: s.Serial, Addr: s.Addr, Alive: s.Alive, Joined: s.Joined, Others: s.OtherClaimants(),
	}
}

func nameOf(o api.Observation) string { return inventory.NodeName(o.Label, o.Serial) }

// send reports in one request if the manager takes that many, else in parts.
func (r *reporter) send(ctx context.Context, full bool, observations []api.Observation) error {
	fits := len(observations) <= r.limit
	if fits {
		err := r.post(ctx, full, observations)
		if inventory.KindOf(err) != inventory.KindTooLarge {
			return err
		}
	}

	// No part is a full report, so the nodes that this monitor has lost have to be
	// observations of their own.
	if full {
		lost, err := r.lost(ctx, observations)
		if err != nil {
			return err
		}

		observations = append(observations, lost...)
	}

	for part := range slices.Chunk(observations, r.limit) {
		if err := r.postParts(ctx, part); err != nil {
			return err
		}
	}

	return nil
}

// postParts halves a partial report until the manager accepts its size.
func (r *reporter) postParts(ctx context.Context, part []api.Observation) error {
	err := r.post(ctx, false, part)
	if inventory.KindOf(err) != inventory.KindTooLarge || len(part) == 1 {
		return err
	}

	half := len(part) / 2
	if err := r.postParts(ctx, part[:half]); err != nil {
		return err
	}

	return r.postParts(ctx, part[half:])
}

// post sends one request and logs new refusals.
func (r *reporter) post(ctx context.Context, full bool, observations []api.Observation) error {
	if len(observations) == 0 && !full {
		return nil
	}

	result, err := r.manager.Observe(ctx, api.Report{Observer: r.observer, Full: full, Observations: observations})
	if err != nil {
		return err
	}

	refused := map[int]api.Refusal{}
	for _, refusal := range result.Refused {
		refused[refusal.Index] = refusal
	}

	for i, o := range observations {
		name := nameOf(o)

		refusal, isRefused := refused[i]
		if !isRefused {
			delete(r.refused, name)
			continue
		}

		if r.refused[name] != refusal.Message {
			r.refused[name] = refusal.Message
			r.log.WithField("node", name).
				WithField("reason", refusal.Message).
				WithField("remedy", refusal.Remedy).
				Warn("the manager refuses this node")
		}
	}

	return nil
}

// lost returns the nodes that the manager has as alive for this observer and that
// the observations omit.
func (r *reporter) lost(ctx context.Context, observations []api.Observation) ([]api.Observation, error) {
	listed := map[string]bool{}
	for _, o := range observations {
		listed[nameOf(o)] = true
	}

	var lost []api.Observation
	for n, err := range r.manager.EachNode(ctx, client.NodeFilter{}) {
		if err != nil {
			return nil, err
		}

		if n.Seen[r.observer] && !listed[n.Name] {
			lost = append(lost, api.Observation{Label: n.Label, Serial: n.Serial, Addr: n.Addr})
		}
	}

	return lost, nil
}

// logDuplicate warns once per set of hosts that claim one identity.
func (r *reporter) logDuplicate(s monitor.Sighting) {
	name, others := s.Name(), strings.Join(s.Others, ", ")
	if others == r.duplicates[name] {
		return
	}

	r.duplicates[name] = others
	if s.Duplicate {
		r.log.WithField("node", name).
			WithField("at", s.Others).
			Warn("several live hosts claim to be this node; the first of them is reported")
	}
}

// forgetUnlisted drops the log state of nodes that have left the gossip.
func (r *reporter) forgetUnlisted(observations []api.Observation) {
	listed := map[string]bool{}
	for _, o := range observations {
		listed[nameOf(o)] = true
	}

	for _, logged := range []map[string]string{r.refused, r.duplicates} {
		for name := range logged {
			if !listed[name] {
				delete(logged, name)
			}
		}
	}
}
