// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/contiv/cluster/inventory"
)

const (
	askTimeout = 2 * time.Second * slowness // for one member to report its state
	// caughtUp is the number of entries that a learner may be behind. etcd itself would
	// promote one that lacks a tenth of them all.
	caughtUp = 1000

	changeRetry = 250 * time.Millisecond // between two attempts to change the members
)

// ClusterMember is a member of the cluster of an embedded etcd, with the state that it
// reports.
type ClusterMember struct {
	ID         uint64
	Name       string // "" until the first start of the member
	PeerURLs   []string
	ClientURLs []string // empty until the first start of the member
	Learner    bool

	// Healthy is set if the member answers and knows a leader.
	Healthy bool
	Leader  bool
	Applied uint64 // the last entry of the log that the member has applied
	Version string
	Space   Space // of its database
	Err     error // why there is no state
}

// Title returns what the member is best known by.
func (m ClusterMember) Title() string {
	switch {
	case m.Name != "":
		return m.Name
	case len(m.PeerURLs) > 0:
		return m.PeerURLs[0]
	}
	return memberID(m.ID)
}

// Members returns all members in the order of their names. It asks each for its state,
// in parallel and for up to two seconds.
func (c *Client) Members(ctx context.Context) ([]ClusterMember, error) {
	ctx, cancel := Bounded(ctx)
	defer cancel()

	list, err := c.MemberList(ctx)
	if err != nil {
		return nil, Error(err)
	}

	members := make([]ClusterMember, len(list.Members))

	var requests sync.WaitGroup
	for i, m := range list.Members {
		members[i] = ClusterMember{
			ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, Learner: m.IsLearner,
		}
		requests.Go(func() { c.ask(ctx, &members[i]) })
	}

	requests.Wait()
	slices.SortFunc(members, func(a, b ClusterMember) int { return strings.Compare(a.Title(), b.Title()) })

	return members, nil
}

// ask adds the state of a member.
func (c *Client) ask(ctx context.Context, m *ClusterMember) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()

	if len(m.ClientURLs) == 0 {
		m.Err = errors.New("it has not started yet")
		return
	}

	status, err := c.Status(ctx, m.ClientURLs[0])
	if err != nil {
		m.Err = Error(err)
		return
	}

	if status.Header.MemberId != m.ID {
		m.Err = errors.New("another member answers at its address")
		return
	}

	m.Healthy, m.Leader = status.Leader != 0, status.Leader == m.ID
	m.Applied, m.Version = status.RaftAppliedIndex, status.Version
	m.Space = spaceOf(m.ClientURLs[0], status)
}

// CaughtUp reports whether the learner may be promoted: it lacks only what was written
// just now.
func CaughtUp(learner ClusterMember, members []ClusterMember) bool {
	newest := uint64(0)
	for _, m := range members {
		newest = max(newest, m.Applied)
	}

	return learner.Healthy && newest-learner.Applied <= caughtUp
}

// Joining is what a member needs in order to join a cluster; see Member.
type Joining struct {
	ID             uint64
	InitialCluster map[string]string
	Endpoints      []string
}

// AddLearner adds a learner, which gets all data and has no vote. Repeated with the
// same name and URL, it returns the same member. A name or a URL of another member is
// refused. The name is stored when the member starts first; until then its URL tells
// it from others.
func (c *Client) AddLearner(ctx context.Context, name, peerURL string) (Joining, error) {
	if !memberName.MatchString(name) || !isMemberURL(peerURL) {
		return Joining{}, inventory.Errorf(inventory.KindInvalid,
			"%q at %q is no member: it has a name and a URL like https://192.0.2.1:%d", name, peerURL, DefaultPeerPort)
	}

	ctx, cancel := Bounded(ctx)
	defer cancel()

	list, err := c.MemberList(ctx)
	if err != nil {
		return Joining{}, Error(err)
	}

	exists, err := knownMember(list.Members, name, peerURL)
	if err != nil {
		return Joining{}, err
	}

	members := list.Members
	if exists == nil {
		err := changeMembers(ctx, func() error {
			added, err := c.MemberAddAsLearner(ctx, []string{peerURL})
			if err == nil {
				exists, members = added.Member, added.Members
			}
			return err
		})
		if errors.Is(err, rpctypes.ErrPeerURLExist) {
			return Joining{}, inventory.Errorf(inventory.KindConflict, "another request added %s just now", peerURL).
				Do("repeat the request")
		}

		if err != nil {
			return Joining{}, memberError(err)
		}
	}

	return joining(members, exists.ID, name), nil
}

// knownMember returns the member with the name and the URL, or nil if there is none
// with either.
func knownMember(members []*pb.Member, name, peerURL string) (*pb.Member, error) {
	for _, m := range members {
		sameURL := slices.Contains(m.PeerURLs, peerURL)

		switch {
		case sameURL && (m.Name == name || m.Name == ""):
			return m, nil
		case sameURL:
			return nil, inventory.Errorf(inventory.KindRefused, "%s is the address of the member %s", peerURL, m.Name).
				Do("remove that instance first if it is gone, or give this one another address")
		case m.Name == name:
			return nil, inventory.Errorf(inventory.KindRefused,
				"the member %s has the address %s, not %s", name, strings.Join(m.PeerURLs, ", "), peerURL).
				Do("remove that instance first, and then join it again")
		}
	}

	return nil, nil
}

// joining collects what the member needs. Members that have not started yet have no
// name in the cluster. etcd matches members by their URLs, and only needs names that
// differ.
func joining(members []*pb.Member, id uint64, name string) Joining {
	j := Joining{ID: id, InitialCluster: map[string]string{}}

	for _, m := range members {
		title := m.Name

		switch {
		case m.ID == id:
			title = name
		case title == "":
			title = memberID(m.ID)
		}

		j.InitialCluster[title] = m.PeerURLs[0]

		if m.ID != id && !m.IsLearner {
			j.Endpoints = append(j.Endpoints, m.ClientURLs...)
		}
	}

	return j
}

// Promote makes a voter of a learner that has caught up. Repeated, it changes nothing.
func (c *Client) Promote(ctx context.Context, id uint64) error {
	ctx, cancel := Bounded(ctx)
	defer cancel()

	err := changeMembers(ctx, func() error {
		_, err := c.MemberPromote(ctx, id)
		return err
	})
	if errors.Is(err, rpctypes.ErrMemberNotLearner) {
		return nil
	}

	return memberError(err)
}

// Remove removes a member for good; its server ends by itself. The leadership is moved
// to another member before. A removal that would leave no quorum of the members that
// answer is refused. Repeated, it changes nothing.
func (c *Client) Remove(ctx context.Context, id uint64) error {
	members, err := c.Members(ctx)
	if err != nil {
		return err
	}

	at := slices.IndexFunc(members, func(m ClusterMember) bool { return m.ID == id })
	if at < 0 {
		return nil
	}

	if err := mayRemove(members, members[at]); err != nil {
		return err
	}

	if members[at].Leader {
		if err := c.moveLeadership(ctx, members); err != nil {
			return err
		}
	}

	ctx, cancel := Bounded(ctx)
	defer cancel()

	err = changeMembers(ctx, func() error {
		_, err := c.MemberRemove(ctx, id)
		return err
	})
	if errors.Is(err, rpctypes.ErrMemberNotFound) {
		return nil
	}

	return memberError(err)
}

// mayRemove refuses a removal after which fewer voters answer than a quorum of the rest
// needs. etcd's own check counts connections instead, and tells no remedy.
func mayRemove(members []ClusterMember, gone ClusterMember) error {
	if gone.Learner {
		return nil
	}

	voters, answer := 0, 0

	var silent []string
	for _, m := range members {
		switch {
		case m.Learner || m.ID == gone.ID:
			continue
		case m.Healthy:
			answer++
		default:
			silent = append(silent, m.Title())
		}

		voters++
	}

	switch {
	case voters == 0:
		return inventory.Errorf(inventory.KindRefused, "%s is the only voting member of the store", gone.Title()).
			Do("let another instance join and wait until it votes; to end the service, stop clusterm on its host")
	case answer < voters/2+1:
		return inventory.Errorf(inventory.KindRefused,
			"without %s, %d of %d voting members of the store would answer, and %d have to",
			gone.Title(), answer, voters, voters/2+1).
			Do("start %s first, or remove it in place of %s", strings.Join(silent, " and "), gone.Title())
	}

	return nil
}

// moveLeadership makes another healthy voter the leader: the one that is least behind.
// members come from Members; without a leader among them there is nothing to do.
func (c *Client) moveLeadership(ctx context.Context, members []ClusterMember) error {
	var leader, next ClusterMember
	for _, m := range members {
		switch {
		case m.Leader:
			leader = m
		case m.Healthy && !m.Learner && m.Applied >= next.Applied:
			next = m
		}
	}

	switch {
	case leader.ID == 0:
		return nil
	case next.ID == 0:
		return inventory.Errorf(inventory.KindRefused, "no other voting member of the store answers").
			Do("start the other instances first")
	}

	ctx, cancel := Bounded(ctx)
	defer cancel()

	// Only the leader itself accepts the request.
	conn, err := c.Client.Dial(leader.ClientURLs[0])
	if err != nil {
		return Error(err)
	}
	defer conn.Close()

	_, err = pb.NewMaintenanceClient(conn).MoveLeader(ctx, &pb.MoveLeaderRequest{TargetID: next.ID})
	if err = rpctypes.Error(err); errors.Is(err, rpctypes.ErrNotLeader) {
		return nil // it has moved meanwhile
	}

	return Error(err)
}

// changeMembers repeats a change while etcd refuses it: for five seconds after each
// connection between two members, it does not count on it yet.
func changeMembers(ctx context.Context, change func() error) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := change()
		if err == nil || errors.Is(err, rpctypes.ErrUnhealthy) || errors.Is(err, rpctypes.ErrMemberNotEnoughStarted) {
			return struct{}{}, err
		}
		return struct{}{}, backoff.Permanent(err)
	}, backoff.WithBackOff(backoff.NewConstantBackOff(changeRetry)), backoff.WithMaxElapsedTime(0))

	return err
}

// memberError explains the refusals of a change of the members.
func memberError(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrMemberLearnerNotReady):
		return inventory.Errorf(inventory.KindConflict, "the learner has not caught up yet").
			Do("wait until it has, and repeat")
	case errors.Is(err, rpctypes.ErrUnhealthy), errors.Is(err, rpctypes.ErrMemberNotEnoughStarted):
		return inventory.Errorf(inventory.KindUnavailable, "the store changes no members now: %w", err).
			Do("start the instances that do not answer, or remove those that are gone, and repeat")
	case errors.Is(err, rpctypes.ErrTooManyLearners):
		return inventory.Errorf(inventory.KindRefused, "the store has as many learners as it can: %w", err).
			Do("remove instances that are gone")
	case errors.Is(err, rpctypes.ErrMemberNotFound):
		return inventory.Errorf(inventory.KindNotFound, "the store has no such member")
	}

	return Error(err)
}
