// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
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

// Upkeep keeps the database of the embedded etcd within its quota: it compacts early
// where space gets scarce, defragments while nothing else happens, and clears
// AlarmNoSpace once there is room again.
type Upkeep struct {
	Client *Client
	Every  time.Duration
	// Idle reports whether a pause of etcd would disturb no job.
	Idle func() bool
	// MakeRoom deletes records outside the retention. Only deletions succeed in it.
	MakeRoom func(context.Context) error
	// Done is called after each action.
	Done func(UpkeepAction)
	Log  logrus.FieldLogger

	last         look
	defragmented time.Time
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

// work looks at the database once and does all that is due.
func (u *Upkeep) work(ctx context.Context) error {
	s, err := u.look(ctx)
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
		if s, err = u.look(ctx); err != nil {
			return err
		}

		compactTo = s.Revision
	}

	if compactTo > 0 {
		if err := u.Client.CompactTo(ctx, compactTo); err != nil {
			return err
		}

		u.Done(UpkeepCompact)

		if s, err = u.look(ctx); err != nil {
			return err
		}
	}

	if idle && defragments(s, now.Sub(u.defragmented)) {
		if s, err = u.defragment(ctx, s); err != nil {
			return err
		}
	}

	if !full || !hasRoom(s) {
		return nil
	}

	if err := u.Client.Disarm(ctx, AlarmNoSpace); err != nil {
		return err
	}

	u.Done(UpkeepDisarm)
	u.Log.Warnf("etcd's database has room again (%s); changes are accepted", s)

	return nil
}

// defragment defragments the database and returns its new state.
func (u *Upkeep) defragment(ctx context.Context, before Space) (Space, error) {
	begun := time.Now()

	if err := u.Client.DefragmentAll(ctx); err != nil {
		return before, err
	}

	u.defragmented = time.Now()
	u.Done(UpkeepDefragment)

	after, err := u.look(ctx)
	if err == nil {
		u.Log.WithField("took", time.Since(begun).Round(time.Millisecond)).
			Infof("defragmented etcd's database: before %s, now %s", before, after)
	}

	return after, err
}

// look returns the state of the only endpoint.
func (u *Upkeep) look(ctx context.Context) (Space, error) {
	ctx, cancel := Bounded(ctx)
	defer cancel()

	s := u.Client.Spaces(ctx)[0]
	return s, s.Err
}

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
