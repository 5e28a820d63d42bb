// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Alarm is a condition in which etcd refuses changes.
type Alarm string

// The alarms.
const (
	AlarmNoSpace Alarm = "NOSPACE" // the database has reached its quota: deletions only
	AlarmCorrupt Alarm = "CORRUPT" // the member found damaged data: no changes at all
)

// Alarms lists all alarms.
var Alarms = []Alarm{AlarmNoSpace, AlarmCorrupt}

// Space is the state of the database of one endpoint. Sizes are in bytes.
type Space struct {
	Endpoint string
	File     int64
	InUse    int64   // the part of File that holds data
	Quota    int64   // the size of File at which etcd raises AlarmNoSpace; 0: unknown (etcd before 3.6)
	Alarms   []Alarm // of all members, as this one sees them
	Revision int64   // the newest of the store
	Err      error   // the error of an endpoint without an answer
}

// Share returns the size of the file as a share of the quota; 0 if the quota is unknown.
func (s Space) Share() float64 {
	if s.Quota <= 0 {
		return 0
	}
	return float64(s.File) / float64(s.Quota)
}

// Free returns the share of the file without data, which a defragmentation gives back.
func (s Space) Free() float64 {
	if s.File <= 0 {
		return 0
	}
	return 1 - float64(s.InUse)/float64(s.File)
}

// String describes the sizes.
func (s Space) String() string {
	text := fmt.Sprintf("%s, %s of it in use", size(s.File), size(s.InUse))
	if s.Quota > 0 {
		text = fmt.Sprintf("%s of %s (%.0f %%), %s in use", size(s.File), size(s.Quota), 100*s.Share(), size(s.InUse))
	}
	return text
}

// size formats a number of bytes.
func size(bytes int64) string {
	const mib, gib = 1 << 20, 1 << 30
	if bytes < gib {
		return fmt.Sprintf("%.1f MiB", float64(bytes)/mib)
	}
	return fmt.Sprintf("%.1f GiB", float64(bytes)/gib)
}

// Raised reports whether the alarm is raised.
func (s Space) Raised(a Alarm) bool { return slices.Contains(s.Alarms, a) }

// Spaces requests the state of all endpoints in parallel and returns it in the order of
// their names. It blocks for two seconds if one does not answer.
func (c *Client) Spaces(ctx context.Context) []Space {
	var requests sync.WaitGroup

	endpoints := c.Endpoints()

	spaces := make([]Space, len(endpoints))
	for i, endpoint := range endpoints {
		// An endpoint without an answer must not hide the state of the others.
		requests.Go(func() { spaces[i] = c.space(ctx, endpoint) })
	}

	requests.Wait()
	slices.SortFunc(spaces, func(a, b Space) int { return strings.Compare(a.Endpoint, b.Endpoint) })

	return spaces
}

func (c *Client) space(ctx context.Context, endpoint string) Space {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()

	resp, err := c.Status(ctx, endpoint)
	if err != nil {
		return Space{Endpoint: endpoint, Err: Error(err)}
	}

	return spaceOf(endpoint, resp)
}

// spaceOf returns the state of the database that the endpoint reports.
func spaceOf(endpoint string, resp *clientv3.StatusResponse) Space {
	s := Space{
		Endpoint: endpoint, File: resp.DbSize, InUse: resp.DbSizeInUse, Quota: resp.DbSizeQuota,
		Revision: resp.Header.Revision,
	}
	for _, a := range Alarms {
		raised := func(text string) bool { return strings.Contains(text, string(a)) }
		if slices.ContainsFunc(resp.Errors, raised) {
			s.Alarms = append(s.Alarms, a)
		}
	}

	return s
}

// IsFull reports whether etcd refused the request of err because of AlarmNoSpace.
func IsFull(err error) bool { return errors.Is(err, rpctypes.ErrNoSpace) }

// defragmentTimeout bounds the defragmentation of one member. Its database is copied.
const defragmentTimeout = 5 * time.Minute

// CompactTo discards the revisions before the given one, and returns once their pages
// are free. Records as they are now stay.
func (c *Client) CompactTo(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, defragmentTimeout)
	defer cancel()

	_, err := c.Compact(ctx, revision, clientv3.WithCompactPhysical())
	if errors.Is(err, rpctypes.ErrCompacted) {
		return nil // a later revision is the oldest already
	}
	return Error(err)
}

// DefragmentAll gives the free pages of each database back to its file system, one
// member at a time. A member answers nothing meanwhile.
func (c *Client) DefragmentAll(ctx context.Context) error {
	for _, endpoint := range c.Endpoints() {
		if err := c.defragment(ctx, endpoint); err != nil {
			return err
		}
	}

	return nil
}

func (c *Client) defragment(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, defragmentTimeout)
	defer cancel()

	_, err := c.Defragment(ctx, endpoint)
	return Error(err)
}

// Disarm clears the alarm of all members. etcd raises it again if its cause remains.
func (c *Client) Disarm(ctx context.Context, alarm Alarm) error {
	_, err := c.disarm(ctx, alarm, func(uint64) bool { return true })
	return err
}

// disarm clears the alarm of the members for which clears returns true. left is the number
// of alarms that remain.
func (c *Client) disarm(ctx context.Context, alarm Alarm, clears func(member uint64) bool) (left int, err error) {
	ctx, cancel := Bounded(ctx)
	defer cancel()

	list, err := c.AlarmList(ctx)
	if err != nil {
		return 0, Error(err)
	}

	want := pb.AlarmType(pb.AlarmType_value[string(alarm)])

	var failure error
	for _, m := range list.Alarms {
		switch {
		case m.Alarm != want:
		case !clears(m.MemberID):
			left++
		default:
			_, err := c.AlarmDisarm(ctx, (*clientv3.AlarmMember)(m))
			failure = cmp.Or(failure, err)
		}
	}

	return left, Error(failure)
}
