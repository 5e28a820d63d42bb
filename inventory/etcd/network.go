// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
)

const (
	announceTimeout = 10 * time.Second       // for the only member to store its own URL
	openRetry       = 100 * time.Millisecond // between two looks at a server that is being opened
	closeTimeout    = time.Minute            // to go back to the description before
)

// removedWords are the last words of a child process that was removed from its
// cluster.
const removedWords = "this member was removed from its cluster"

var errRemoved = errors.New("this instance was removed from its cluster")

// Open makes a server that only its host can reach reachable under m, and waits until
// it serves there. Its data stay. It stops answering for the time of a restart, a
// second or two; clients on the Unix socket reconnect by themselves. A server that is
// reachable under m already is left alone, and a failure leaves the server as it was.
//
// The description is written first, because it is what every start obeys: a server
// with another URL in its cluster than in its description corrects the cluster as soon
// as it serves (announce). Wherever the process ends in between, the next start does
// the rest. Nobody else can be misled by the URL in the cluster before: it is that of a
// Unix socket, and there are no other members.
func (s *Server) Open(ctx context.Context, m Member) error {
	if err := m.Check(); err != nil {
		return err
	}

	s.opening.Lock()
	defer s.opening.Unlock()

	before, err := s.opts.member()
	if err != nil {
		return err
	}

	if before != nil && sameNetwork(*before, m) {
		return s.awaitOpen(ctx, m)
	}

	if err := s.mayOpen(ctx, before, m); err != nil {
		return err
	}

	// With data, the first ones are of no use any more.
	m.InitialCluster = nil

	if err := WriteMember(s.opts.Dir, m); err != nil {
		return err
	}

	if err = s.restart(ctx); err == nil {
		err = s.awaitOpen(ctx, m)
	}

	if err == nil {
		return nil
	}

	return errors.Join(err, s.undo(ctx, before))
}

// sameNetwork reports whether both descriptions lead to the same listeners.
func sameNetwork(a, b Member) bool {
	return a.Name == b.Name && a.ClientURL() == b.ClientURL() && a.PeerURL() == b.PeerURL() &&
		a.CAFile == b.CAFile && a.CertFile == b.CertFile && a.KeyFile == b.KeyFile
}

// mayOpen checks what would keep the server from starting, while it still runs.
func (s *Server) mayOpen(ctx context.Context, before *Member, m Member) error {
	members, err := s.members(ctx)
	if err != nil {
		return err
	}

	if len(members) > 1 {
		return inventory.Errorf(inventory.KindRefused,
			"the store is one of %d members, which know it by its address: a restart cannot change that to %s",
			len(members), m.PeerURL()).
			Do("remove this instance from the cluster by another one, empty its data directory, and join it again")
	}

	for _, u := range []string{m.clientURL().Host, m.peerURL().Host} {
		if before != nil && slices.Contains([]string{before.clientURL().Host, before.peerURL().Host}, u) {
			continue // the running server has it
		}

		l, err := net.Listen("tcp", u)
		if err != nil {
			return inventory.Errorf(inventory.KindInvalid, "the store cannot listen on %s: %w", u, err).
				Do("give an address of this host, and ports that no other program uses")
		}
		l.Close()
	}

	return nil
}

// undo goes back to the description before, after a start with a new one failed.
func (s *Server) undo(ctx context.Context, before *Member) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()

	path := filepath.Join(s.opts.Dir, memberFile)

	var err error
	if before != nil {
		err = WriteMember(s.opts.Dir, *before)
	} else if err = os.Remove(path); err == nil {
		err = localfile.SyncDir(s.opts.Dir)
	}

	if err == nil {
		err = s.restart(ctx)
	}

	return err
}

// awaitOpen waits until the server is a member of its cluster under the URLs of m.
func (s *Server) awaitOpen(ctx context.Context, m Member) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	tick := time.NewTicker(openRetry)
	defer tick.Stop()

	for {
		members, err := s.members(ctx)

		is := func(o *pb.Member) bool {
			return o.Name == m.Name && slices.Equal(o.PeerURLs, []string{m.PeerURL()}) &&
				slices.Equal(o.ClientURLs, []string{m.ClientURL()})
		}
		if err == nil && slices.ContainsFunc(members, is) {
			return nil
		}

		select {
		case <-ctx.Done():
			if ended := s.Ended(); ended != nil {
				err = ended
			}

			return inventory.Errorf(inventory.KindUnavailable,
				"the store did not become reachable at %s: %w", m.PeerURL(), orTimeout(err)).
				Do("see the lines of etcd in the log of clusterm")
		case <-tick.C:
		}
	}
}

func orTimeout(err error) error {
	if err == nil {
		return context.DeadlineExceeded
	}
	return err
}

// members returns the members as the server on this host knows them.
func (s *Server) members(ctx context.Context) ([]*pb.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()

	config := clientv3.Config{Endpoints: []string{s.Endpoint()}}
	setOptions(&config)

	c, err := open(config)
	if err != nil {
		return nil, Error(err)
	}
	defer c.Close()

	list, err := c.MemberList(ctx)
	if err != nil {
		return nil, Error(err)
	}

	return list.Members, nil
}

// announce stores the peer URL of the only member of a cluster, where it differs: at
// the first start with a description.
func announce(ctx context.Context, e *embed.Etcd) error {
	cfg := e.Config()
	id := e.Server.MemberID()
	stored := e.Server.Cluster().Member(id)

	var urls []string
	for _, u := range cfg.AdvertisePeerUrls {
		urls = append(urls, u.String())
	}

	if stored == nil || slices.Equal(stored.PeerURLs, urls) || cfg.AdvertisePeerUrls[0].Scheme == "unix" {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()

	_, err := e.Server.UpdateMember(ctx, membership.Member{
		ID: id, RaftAttributes: membership.RaftAttributes{PeerURLs: urls},
	})
	if err != nil {
		return fmt.Errorf("it cannot store its own URL %s: %w", strings.Join(urls, ", "), err)
	}

	return nil
}

// serveInside starts the server in this process.
func (s *Server) serveInside(ctx context.Context) error {
	// Warnings of an in-process server would end up in the output of the tests.
	level := zapcore.ErrorLevel
	if s.opts.recovering {
		level = zapcore.FatalLevel // it is stopped while it waits for the lost members
	}

	e, err := serve(ctx, s.opts, zap.NewAtomicLevelAt(level))
	if err != nil {
		return err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.closed {
		e.Close()
		return context.Canceled
	}
	s.inside = e

	s.tasks.Go(func() {
		<-e.Server.StopNotify()

		s.mu.Lock()
		asked := s.closed || s.inside != e
		s.mu.Unlock()

		if !asked {
			s.exit.Store(&serverExit{errors.New(removedWords), time.Now()})
			s.giveUp(removed(s.opts.Dir))
		}
	})

	return nil
}

// restart restarts the server.
func (s *Server) restart(ctx context.Context) error {
	s.mu.Lock()
	inside, stop := s.inside, s.stop
	s.inside = nil
	s.mu.Unlock()

	if len(s.opts.Command) > 0 {
		if stop != nil {
			stop()
		}
		return nil
	}

	if inside != nil {
		inside.Close()
	}

	return s.serveInside(ctx)
}

// Removed reports whether another member removed this one from the cluster. Its data
// are of no use any more.
func (s *Server) Removed() bool { return errors.Is(context.Cause(s.hopeless), errRemoved) }

// removed is the error of a server whose member was removed.
func removed(dir string) error {
	return inventory.Errorf(inventory.KindRefused,
		"%w, and its store in %s takes part no more", errRemoved, dir).
		Do("to bring it back, empty its data directory and join it again with a new token; " +
			"otherwise stop clusterm on this host")
}
