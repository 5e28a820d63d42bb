// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cenkalti/backoff/v5"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/contiv/cluster/inventory"
)

// hasLog reports whether the server has taken part in a cluster.
func (o ServerOptions) hasLog() bool { return wal.Exist(filepath.Join(o.dataDir(), logFolder)) }

// prepareJoin brings the initial cluster of a member that has not started yet up to date: etcd refuses one that lacks a
// member which was added later. It refuses a member that has had data. Without them it would break what it promised to
// the others.
func (o ServerOptions) prepareJoin(ctx context.Context) error {
	m, err := o.member()
	if err != nil || m == nil || len(m.InitialCluster) == 0 {
		return err
	}

	if o.hasLog() {
		m.InitialCluster = nil
		return WriteMember(o.Dir, *m)
	}

	list, err := m.listOthers(ctx)
	if err != nil {
		return err
	}

	at := slices.IndexFunc(list, func(l *pb.Member) bool { return slices.Contains(l.PeerURLs, m.PeerURL()) })

	switch {
	case at < 0:
		return removed(o.Dir)
	case list[at].Name != "" || !list[at].IsLearner:
		return lost(o.dataDir())
	}

	j := joining(list, list[at].ID, m.Name)
	m.InitialCluster, m.Endpoints = j.InitialCluster, j.Endpoints

	return WriteMember(o.Dir, *m)
}

// listOthers asks the other members for the list of all. It waits up to a minute for an answer.
func (m Member) listOthers(ctx context.Context) ([]*pb.Member, error) {
	config := clientv3.Config{Endpoints: m.Endpoints}
	setOptions(&config)

	var err error
	if config.TLS, err = m.tlsConfig(); err != nil {
		return nil, err
	}

	c, err := open(config)
	if err != nil {
		return nil, Error(err)
	}
	defer c.Close()

	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	var failure error // of the last attempt; that of Retry may only report that the time is up

	list, err := backoff.Retry(ctx, func() (*clientv3.MemberListResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, listTimeout)
		defer cancel()

		list, err := c.MemberList(ctx)
		failure = err

		return list, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(changeRetry)), backoff.WithMaxElapsedTime(0))
	if err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable,
			"the first start as a member of the store needs the others, and none answers at %s: %w",
			strings.Join(m.Endpoints, ", "), failure).
			Do("start the other instances, and check that this host reaches them")
	}

	return list.Members, nil
}

// lost is the error of a member whose data are gone while those of the others may exist.
func lost(dir string) error {
	return inventory.Errorf(inventory.KindRefused,
		"this instance lost its data: it is one of several, and its store in %s has none", dir).
		Do("remove this instance by another one, move its data directory away, and join it again; if all have lost " +
			"theirs, move etcd in the data directory away and restore a backup: clusterm restore FILE")
}
