// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// Times of a client of several members.
const (
	// FollowEvery is the usual time between two looks at the members.
	FollowEvery = 2 * time.Second

	roleTimeout = time.Second     // for a member to report whether it serves
	listTimeout = 2 * time.Second // for the list of members
	pingTimeout = 3 * time.Second // for a member that was silent for a while to answer a ping
)

// firstReachable makes gRPC use the first endpoint that it can connect to, in place of
// all in turn. A request then depends on the member on this host and no other, and
// moves on at once where the connection breaks.
const firstReachable = `{"loadBalancingPolicy": "pick_first"}`

// dial connects to the server and to the other voters that its description names.
func (s *Server) dial(ctx context.Context, prefix string) (*Client, error) {
	m, err := s.opts.member()
	if err != nil {
		return nil, err
	}

	config := clientv3.Config{
		Endpoints: []string{s.Endpoint()}, DialKeepAliveTimeout: pingTimeout,
		DialOptions: []grpc.DialOption{
			grpc.WithTransportCredentials(newMemberCredentials(s.opts.Dir)),
			grpc.WithDisableServiceConfig(), grpc.WithDefaultServiceConfig(firstReachable),
		},
	}

	asking := config
	setOptions(&asking)

	asks, err := clientv3.New(asking)
	if err != nil {
		return nil, Error(err)
	}

	accept := func(ctx context.Context, c *Client) error {
		c.server.version = Version

		if c.host == nil {
			c.host, c.asks = s, asks
			if m != nil {
				c.others = others{m.Endpoints, m.Learners}
			}
		}

		if m == nil {
			return nil
		}

		return c.checkMember(ctx)
	}

	c, err := connect(ctx, config, prefix, accept, nil)
	if err != nil {
		_ = asks.Close() // again, if the client had it

		return nil, err
	}

	return c, nil
}

// checkMember chooses the endpoints, and refuses a member that is none any more.
func (c *Client) checkMember(ctx context.Context) error {
	c.host.opening.Lock()
	defer c.host.opening.Unlock()

	if len(c.others.voters)+len(c.others.learners) > 0 {
		c.choose(ctx, false)
	}

	list, local, err := c.listMembers(ctx)
	if err != nil {
		return Error(err)
	}

	return c.follow(ctx, list, local)
}

// Follow keeps the endpoints of the client, which is one of Server.Dial, those of the voters until ctx ends; see
// setMembers. It ends with an error when the member on this host was removed: nobody may work on its behalf any more.
func (c *Client) Follow(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()

	for {
		c.setMembers(ctx)

		if c.host.Removed() {
			return removed(c.host.opts.Dir)
		}

		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// setMembers makes the voters the endpoints of a client of Server.Dial: the socket of
// this host first while its member votes and knows a leader, and else the other voters
// that do. A learner refuses most requests, and a member without a leader answers none.
// Requests move to the first endpoint; watches and keepalives stay where they are until
// that connection ends. The others are kept in member.json for the next start. It
// blocks for a few seconds at most, and leaves everything as it is while no member
// answers. It gives up a server whose member was removed, which may not learn of that
// itself.
func (c *Client) setMembers(ctx context.Context) {
	// Open changes what the others know this member by. The next look comes after it.
	if c.host == nil || !c.host.opening.TryLock() {
		return
	}
	defer c.host.opening.Unlock()

	list, local, err := c.listMembers(ctx)
	if err != nil {
		c.choose(ctx, false)
		return
	}

	if err := c.follow(ctx, list, local); errors.Is(err, errRemoved) {
		c.host.end(err)
	}
}

// follow makes the voters of the list the endpoints, and refuses a list without this member. local is that of choose.
func (c *Client) follow(ctx context.Context, list []*pb.Member, local bool) error {
	own, err := c.host.opts.member()
	if err != nil || own == nil {
		return err
	}

	// A member that was only just added has no name yet, and one that was only just opened
	// has the former URL.
	known := slices.ContainsFunc(list, func(m *pb.Member) bool {
		return m.Name == own.Name || slices.Contains(m.PeerURLs, own.PeerURL())
	})
	if !known {
		return removed(c.host.opts.Dir)
	}

	now := othersIn(list, *own)

	c.mu.Lock()
	c.others = now
	c.mu.Unlock()

	c.host.remember(*own, now)
	c.choose(ctx, local)

	return nil
}

// listMembers lists the members, and reports whether the member on this host answered.
func (c *Client) listMembers(ctx context.Context) (list []*pb.Member, local bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()

	var from peer.Peer

	resp, err := pb.NewClusterClient(c.ActiveConnection()).
		MemberList(ctx, &pb.MemberListRequest{Linearizable: true}, grpc.Peer(&from))
	if err != nil {
		return nil, false, err
	}

	if !c.isOwn(resp.Header) {
		return nil, false, errForeign
	}

	return resp.Members, from.Addr != nil && from.Addr.Network() == "unix", nil
}

// others are the client URLs of the members on other hosts. A learner may vote by the time
// that the list of members cannot be read.
type others struct{ voters, learners []string }

// othersIn returns those of the list that are not own.
func othersIn(list []*pb.Member, own Member) (o others) {
	for _, m := range list {
		switch {
		case slices.Contains(m.ClientURLs, own.ClientURL()):
		case m.IsLearner:
			o.learners = append(o.learners, m.ClientURLs...)
		default:
			o.voters = append(o.voters, m.ClientURLs...)
		}
	}
	slices.Sort(o.voters)
	slices.Sort(o.learners)

	return o
}

// choose sets the endpoints. local reports that the member on this host has just
// answered.
func (c *Client) choose(ctx context.Context, local bool) {
	c.mu.Lock()
	others := c.others
	c.mu.Unlock()

	own := c.host.Endpoint()

	switch {
	case c.serves(ctx, own):
		// gRPC keeps its connection while that is among the endpoints.
		if !local && len(others.voters) > 0 {
			c.SetEndpoints(own)
		}

		c.useEndpoints(append([]string{own}, others.voters...))
	case len(others.voters)+len(others.learners) > 0:
		if serving := c.serving(ctx, slices.Concat(others.voters, others.learners)); len(serving) > 0 {
			c.useEndpoints(serving)
		}
	}
}

// serving returns the endpoints that serve.
func (c *Client) serving(ctx context.Context, endpoints []string) []string {
	serves := make([]bool, len(endpoints))

	var requests sync.WaitGroup
	for i, e := range endpoints {
		requests.Go(func() { serves[i] = c.serves(ctx, e) })
	}

	requests.Wait()

	var good []string
	for i, e := range endpoints {
		if serves[i] {
			good = append(good, e)
		}
	}

	return good
}

// errForeign is the error of an answer from another cluster.
var errForeign = errors.New("another store answers at the address of a member")

// isOwn reports whether an answer is from the cluster that answered first. One that was founded anew at the address of
// a former member is another one.
func (c *Client) isOwn(answer *pb.ResponseHeader) bool {
	id := answer.GetClusterId()
	return c.cluster.CompareAndSwap(0, id) || c.cluster.Load() == id
}

// serves reports whether the member at the endpoint belongs to the cluster, votes and knows a leader.
func (c *Client) serves(ctx context.Context, endpoint string) bool {
	ctx, cancel := context.WithTimeout(ctx, roleTimeout)
	defer cancel()

	status, err := c.Status(ctx, endpoint)
	if err != nil || !c.isOwn(status.Header) {
		return false
	}

	c.learnTerm(status.RaftTerm)

	return !status.IsLearner && status.Leader != 0
}

// useEndpoints replaces the endpoints where they differ.
func (c *Client) useEndpoints(endpoints []string) {
	if !slices.Equal(c.Endpoints(), endpoints) {
		c.SetEndpoints(endpoints...)
	}
}

// remember stores the endpoints of the others in member.json. It removes the initial cluster of a member that has
// data, so that it cannot begin without them again.
func (s *Server) remember(m Member, now others) {
	begun := len(m.InitialCluster) > 0 && s.opts.hasLog()
	if !begun && slices.Equal(m.Endpoints, now.voters) && slices.Equal(m.Learners, now.learners) {
		return
	}

	if begun {
		m.InitialCluster = nil
	}
	m.Endpoints, m.Learners = now.voters, now.learners

	if err := WriteMember(s.opts.Dir, m); err != nil {
		s.opts.Log.WithError(err).Warn("the other members of the store are not known at the next start")
	}
}
