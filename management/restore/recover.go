// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/audit"
	store "github.com/contiv/cluster/management/etcd"
	"github.com/contiv/cluster/management/instance"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Recover makes the instance of this host the only one of its manager, with everything that it had applied, after a
// majority of the instances is lost for good. The epoch rises, so hosts refuse what a lost one still sends them. Of o
// it uses what describes the store, and Automatic; confirmed is whether the operator has said that the others do not
// come back.
func Recover(ctx context.Context, o Options, confirmed bool) error {
	if o.Existing != nil {
		return inventory.Errorf(inventory.KindRefused, "this manager has no etcd inside: recover the existing one").
			Do("see the documentation of etcd about the loss of a majority")
	}

	m, err := etcd.ReadMember(o.Server.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return inventory.Errorf(inventory.KindRefused,
			"this is not one of several instances: there is nothing to recover").
			Do("start it: systemctl start clusterm")
	}
	if err != nil {
		return err
	}

	if err := checkStopped(ctx, o.Server.Dir); err != nil {
		return err
	}

	if !confirmed {
		return inventory.Errorf(inventory.KindRefused,
			"the instance %s would become the only one; the others, at %s, must be lost for good: what only they know "+
				"is lost, and they never start again with their data. Nothing was changed", m.Name,
			strings.Join(m.Endpoints, ", ")).
			Do("to go on: clusterm recover --yes")
	}

	others, err := etcd.Others(o.Server.Dir)
	if err != nil {
		return err
	}

	var lost []string

	err = etcd.Recover(ctx, o.Server, func(client *etcd.Client) (err error) {
		if err := store.EndSessions(ctx, client); err != nil {
			return err
		}
		lost, err = o.strikeOff(ctx, client, m.Name, others)
		return err
	})
	if err != nil {
		return err
	}

	o.Say("the instance %s is the only one now; struck off: %s", m.Name, strings.Join(lost, ", "))
	if o.Automatic {
		return nil
	}

	o.Say("start it: systemctl start clusterm; on hosts of the others, move %s away before they join again",
		filepath.Dir(o.Server.Dir))

	return nil
}

// strikeOff removes the other members from the records, and begins an epoch. It returns their names.
func (o Options) strikeOff(
	ctx context.Context, client *etcd.Client, own string, others []string,
) (lost []string, err error) {
	s, err := store.Open(ctx, client, o.Kinds, o.Secrets, o.Logger, store.StaleAfter)
	if err != nil {
		return nil, err
	}
	defer s.Close()

	const self = "clusterm recover"

	trail := audit.New(audit.Options{
		Store: s, Instance: self, Leads: func() bool { return false }, Logger: o.Logger,
	})
	defer trail.Close(ctx)

	history, err := audit.Snapshot(ctx, s)
	if err != nil {
		return nil, err
	}
	last, err := history.Last(ctx)
	if err != nil {
		return nil, err
	}

	return lost, access.Audited(ctx, audit.Auditor{Trail: trail, Log: o.Logger}, access.Caller{Principal: self},
		access.Record{Action: "instances.recover"}, func(ctx context.Context, r *access.Record) error {
			_, _, err := record.Decide(ctx, s, func(tx *record.Tx) (struct{}, error) {
				epoch := record.One(tx, &state.Epochs)
				now := state.Recovered{
					By: own, At: time.Now().UTC(), Automatic: o.Automatic, Lost: map[string]uint64{}, Former: others,
				}

				if former := epoch.Recovered; former != nil {
					maps.Copy(now.Lost, former.Lost)
					now.Former = newest(former.Former, others)
				}

				lost = nil

				for _, m := range record.List(tx, &instance.Kind) {
					if m.ID != own {
						lost, now.Lost[m.ID] = append(lost, m.ID+" on "+m.Node), last
						record.Remove(tx, &instance.Kind, m.ID)
					}
				}

				epoch.Number, epoch.Recovered = state.NextEpoch(now.At, epoch.Number), &now
				record.Put(tx, &state.Epochs, &epoch)

				r.Targets = lost

				return struct{}{}, nil
			})

			return err
		})
}

// maxFormer is the number of URLs of former instances that are kept.
const maxFormer = 16

// newest returns the URLs of former instances after more were lost.
func newest(former, lost []string) []string {
	former = slices.DeleteFunc(slices.Clone(former), func(u string) bool { return slices.Contains(lost, u) })
	former = append(former, lost...)
	return former[max(0, len(former)-maxFormer):]
}
