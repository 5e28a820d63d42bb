// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
)

// Shares of the quota.
const (
	// WarnShare is the share from which the upkeep compacts early, and the health warns.
	WarnShare = 0.6
	// CheckShare is the share from which the health is degraded.
	CheckShare = 0.8
	// roomShare is the share below which the upkeep clears AlarmNoSpace.
	roomShare = 0.9
)

// When to defragment a database that is not full.
const (
	minDefragment   = 64 << 20         // bytes of the file, or an eighth of a smaller quota
	defragmentFree  = 0.5              // free share of the file
	crowdedFree     = 0.2              // the same, from WarnShare on
	fullFree        = 0.02             // the same under AlarmNoSpace
	defragmentPause = 10 * time.Minute // between two defragmentations
	idleRate        = 20               // revisions per second of a store under load
)

// UpkeepEvery is the usual time between two looks at the database.
const UpkeepEvery = time.Minute

// UpkeepAction is a kind of work of the upkeep.
type UpkeepAction string

// The actions of the upkeep.
const (
	UpkeepCompact    UpkeepAction = "compact"
	UpkeepDefragment UpkeepAction = "defragment"
	UpkeepDisarm     UpkeepAction = "disarm"
)

// UpkeepActions lists all actions.
var UpkeepActions = []UpkeepAction{UpkeepCompact, UpkeepDefragment, UpkeepDisarm}

// Upkeep keeps the databases of the embedded etcds within their quota: it compacts early
// where space gets scarce, defragments while nothing else happens, and clears
// AlarmNoSpace of each member once that has room again. One instance does it for all
// members.
type Upkeep struct {
	Client *Client
	Every  time.Duration
	// Leads reports whether this instance does the work; nil: always.
	Leads func() bool
	// Idle reports whether a pause of etcd would disturb no job.
	Idle func() bool
	// MakeRoom deletes records outside the retention. Only deletions succeed in it.
	MakeRoom func(context.Context) error
	// Done is called after each action.
	Done func(UpkeepAction)
	Log  logrus.FieldLogger

	last         look
	defragmented map[uint64]time.Time // by the id of the member
	failing      bool
}

// look is the result of one look at the database.
type look struct {
	at       time.Time
	revision int64
}

// Run works until ctx ends.
func (u *Upkeep) Run(ctx context.Context) {
	tick := time.NewTicker(u.Every)
	defer tick.Stop()

	for {
		err := u.work(ctx)
		if err != nil && ctx.Err() == nil && !u.failing {
			u.Log.WithError(err).Warn("the upkeep of etcd's database failed; retrying")
		}

		u.failing = err != nil

		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// work looks at the databases once and does all that is due.
func (u *Upkeep) work(ctx context.Context) error {
	if u.Leads != nil && !u.Leads() {
		u.last = look{}
		return nil
	}

	members, s, err := u.look(ctx)
	if err != nil || s.Raised(AlarmCorrupt) {
		return err // with damaged data, the operator decides
	}
	now, full := time.Now(), s.Raised(AlarmNoSpace)
	idle := full || u.Idle() && isIdle(u.last, look{now, s.Revision})
	compactTo := compactRevision(s, u.last)
	u.last = look{now, s.Revision}

	if full {
		u.Log.Warnf("etcd's database is full (%s); making room", s)

		// The compaction may make room nevertheless.
		if err := u.MakeRoom(ctx); err != nil {
			u.Log.WithError(err).Warn("not all records outside the retention could be deleted")
		}

		// The deletions have revisions of their own.
		if members, s, err = u.look(ctx); err != nil {
			return err
		}

		compactTo = s.Revision
	}

	if compactTo > 0 {
		if err := u.Client.CompactTo(ctx, compactTo); err != nil {
			return err
		}

		u.Done(UpkeepCompact)

		if members, s, err = u.look(ctx); err != nil {
			return err
		}
	}

	if idle {
		if members, s, err = u.defragment(ctx, members, full); err != nil {
			return err
		}
	}

	if !full {
		return nil
	}

	return u.disarm(ctx, members, s)
}

// disarm clears AlarmNoSpace of each member that has room, or is none any more.
func (u *Upkeep) disarm(ctx context.Context, members []ClusterMember, s Space) error {
	crowded := func(id uint64) bool {
		return slices.ContainsFunc(members, func(m ClusterMember) bool {
			return m.ID == id && (m.Err != nil || !hasRoom(m.Space))
		})
	}

	if !slices.ContainsFunc(members, func(m ClusterMember) bool { return !crowded(m.ID) }) {
		return nil
	}

	left, err := u.Client.disarm(ctx, AlarmNoSpace, func(id uint64) bool { return !crowded(id) })
	if err != nil || left > 0 {
		return err
	}

	u.Done(UpkeepDisarm)
	u.Log.Warnf("etcd's database has room again (%s); changes are accepted", s)

	return nil
}

// defragment defragments the databases for which it is worth it, one after the other, and
// returns the new state. A member answers nothing meanwhile, so all others have to. If
// the store is full, no change is accepted anyway, and room matters more than a pause.
func (u *Upkeep) defragment(
	ctx context.Context, members []ClusterMember, full bool,
) (after []ClusterMember, fullest Space, err error) {
	for _, id := range defragmentOrder(members) {
		at := slices.IndexFunc(members, func(m ClusterMember) bool { return m.ID == id })
		silent := slices.ContainsFunc(members, func(m ClusterMember) bool { return !m.Healthy })

		switch {
		case at < 0 || members[at].Err != nil || silent && !full:
			continue
		case !defragments(members[at].Space, time.Since(u.defragmented[id])):
			continue
		}

		if members[at].Leader && otherLeader(members) {
			if err := u.Client.moveLeadership(ctx, members); err != nil {
				return members, fullestOf(members), err
			}
		}

		if err := u.defragmentMember(ctx, members[at]); err != nil {
			return members, fullestOf(members), err
		}

		if members, _, err = u.look(ctx); err != nil {
			return members, fullestOf(members), err
		}
	}

	return members, fullestOf(members), nil
}

func (u *Upkeep) defragmentMember(ctx context.Context, m ClusterMember) error {
	begun := time.Now()

	if err := u.Client.defragment(ctx, m.Space.Endpoint); err != nil {
		return err
	}

	if u.defragmented == nil {
		u.defragmented = map[uint64]time.Time{}
	}
	u.defragmented[m.ID] = time.Now()
	u.Done(UpkeepDefragment)

	ctx, cancel := Bounded(ctx)
	defer cancel()

	after := u.Client.space(ctx, m.Space.Endpoint)
	u.Log.WithField("took", time.Since(begun).Round(time.Millisecond)).
		Infof("defragmented etcd's database of %s: before %s, now %s", m.Title(), m.Space, after)

	return after.Err
}

// defragmentOrder returns the ids of the members, the leader last.
func defragmentOrder(members []ClusterMember) []uint64 {
	var ids, last []uint64
	for _, m := range members {
		if m.Leader {
			last = append(last, m.ID)
		} else {
			ids = append(ids, m.ID)
		}
	}

	return append(ids, last...)
}

// otherLeader reports whether another member could lead.
func otherLeader(members []ClusterMember) bool {
	return slices.ContainsFunc(members, func(m ClusterMember) bool {
		return m.Healthy && !m.Leader && !m.Learner
	})
}

// look returns the members and the state of the fullest database. That a member does not
// answer is no error.
func (u *Upkeep) look(ctx context.Context) ([]ClusterMember, Space, error) {
	members, err := u.Client.Members(ctx)
	if err != nil {
		return nil, Space{}, err
	}

	s := fullestOf(members)

	return members, s, s.Err
}

// fullestOf returns the state of the database with the largest share of its quota, and the
// newest revision and the alarms that any member knows.
func fullestOf(members []ClusterMember) Space {
	fullest := Space{Err: errNoAnswer}

	for _, m := range members {
		if m.Err != nil {
			continue
		}

		s := m.Space
		s.Revision = max(s.Revision, fullest.Revision)
		s.Alarms = append(slices.Clone(s.Alarms), fullest.Alarms...)

		if fullest.Err == nil && fullest.Share() >= s.Share() {
			fullest.Revision, fullest.Alarms = s.Revision, s.Alarms
			continue
		}

		fullest = s
	}

	return fullest
}

var errNoAnswer = errors.New("no member of the store reports its state")

// isIdle reports whether the store changed little between two looks. Without an
// earlier look it is unknown.
func isIdle(before, now look) bool {
	took := now.at.Sub(before.at).Seconds()
	return before.revision > 0 && took > 0 && float64(now.revision-before.revision)/took < idleRate
}

// compactRevision returns the revision to compact to, or 0. It is that of the look
// before, because watches may still need newer ones.
func compactRevision(s Space, before look) int64 {
	if s.Share() < WarnShare || before.revision >= s.Revision {
		return 0
	}
	return before.revision
}

// defragments reports whether a defragmentation is worth its pause.
func defragments(s Space, since time.Duration) bool {
	// etcd counts pages as free with a delay, so their share is no sure sign.
	if s.Raised(AlarmNoSpace) {
		return s.Free() >= fullFree || since >= defragmentPause
	}

	least := int64(minDefragment)
	if s.Quota > 0 {
		least = min(least, s.Quota/8)
	}

	wanted := defragmentFree
	if s.Share() >= WarnShare {
		wanted = crowdedFree
	}
	return s.File >= least && s.Free() >= wanted && since >= defragmentPause
}

// hasRoom reports whether the alarm can be cleared without being raised again at once.
func hasRoom(s Space) bool { return s.Share() < roomShare }
