// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"fmt"
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

	if err := r.send(ctx, part{full: rep.Full, observations: observations}); err != nil {
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
		UUID: s.Hardware.UUID, MACs: s.Hardware.MACs,
	}
}

func nameOf(o api.Observation) string { return inventory.NodeName(o.Label, o.Serial) }

// part is a report of one request.
type part struct {
	full bool
	// names limits a full report.
	names        inventory.NameRange
	observations []api.Observation // sorted by name
}

// send reports in one request if the manager accepts its size, else in halves.
func (r *reporter) send(ctx context.Context, p part) error {
	if len(p.observations) <= r.limit {
		err := r.post(ctx, p)
		if inventory.KindOf(err) != inventory.KindTooLarge || len(p.observations) < 2 {
			return err
		}
	}

	// Each half of a full report covers the names up to or after the middle, so
	// that the manager misses the lost nodes in it.
	half := len(p.observations) / 2
	middle := nameOf(p.observations[half-1])
	first, second := p, p
	first.names.Until, first.observations = middle, p.observations[:half]
	second.names.After, second.observations = middle, p.observations[half:]

	if err := r.send(ctx, first); err != nil {
		return err
	}

	return r.send(ctx, second)
}

// post sends one request and logs new refusals.
func (r *reporter) post(ctx context.Context, p part) error {
	if len(p.observations) == 0 && !p.full {
		return nil
	}

	report := api.Report{Observer: r.observer, Full: p.full, Observations: p.observations}
	if p.full {
		report.After, report.Until = p.names.After, p.names.Until
	}
	result, err := r.manager.Observe(ctx, report)
	if err != nil {
		return err
	}

	refused := map[int]api.Refusal{}
	for _, refusal := range result.Refused {
		refused[refusal.Index] = refusal
	}

	for i, o := range p.observations {
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
