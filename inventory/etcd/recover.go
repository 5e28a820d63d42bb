// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
)

// recoveringFile is in the directory of a server while Recover works. Until that has come to its end, no other server
// starts there.
const recoveringFile = "recovering"

// The values of ServerOptions.recovering.
const (
	asItIs = "as it is"
	alone  = "alone"
)

// Recover makes the member in a directory the only one of its cluster, after a majority of the members is lost for
// good, with what this member has applied. finish works with the store before any daemon does, and may run again: after
// an error, Recover is repeated.
//
// A voter strikes the others off in its log: one of them that comes back and reaches this one is told so, and ends. A
// learner founds another cluster, of which a voter that comes back learns nothing.
//
// It is KindRefused if the member is alone already, if clusterm runs, or if another member answers.
func Recover(ctx context.Context, o ServerOptions, finish func(*Client) error) (err error) {
	m, err := o.member()
	if err != nil {
		return err
	}

	marker := filepath.Join(o.Dir, recoveringFile)
	_, repeated := os.Lstat(marker)

	if m == nil || len(m.Endpoints) == 0 && repeated != nil {
		return inventory.Errorf(inventory.KindRefused,
			"this is not one of several instances: there is nothing to recover").
			Do("start it: systemctl start clusterm; to restore a backup: clusterm restore FILE")
	}

	if err := m.noneAnswers(ctx); err != nil {
		return err
	}

	o.MustExist, o.Command = true, nil

	s, err := o.startAlone(ctx, *m)
	if errors.Is(err, ErrNoData) {
		return inventory.Errorf(inventory.KindRefused,
			"this instance has lost its data, so there is nothing to recover").
			Do("recover another one, or restore a backup: clusterm restore FILE")
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	client, err := s.Dial(ctx, Keys(DefaultPrefix))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()

	if err := finish(client); err != nil {
		return err
	}

	m.Endpoints, m.InitialCluster = nil, nil
	if err := WriteMember(o.Dir, *m); err != nil {
		return err
	}

	if err := os.Remove(marker); err != nil {
		return err
	}

	return localfile.SyncDir(o.Dir)
}

// startAlone starts the server as the only member.
func (o ServerOptions) startAlone(ctx context.Context, m Member) (*Server, error) {
	data, former, filling := o.dataDir(), o.dataDir()+".former", o.dataDir()+".recovered"

	// What an interrupted attempt left.
	if _, err := os.Lstat(data); errors.Is(err, fs.ErrNotExist) {
		if err := localfile.Rename(former, data); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if err := errors.Join(os.RemoveAll(filling), os.RemoveAll(former)); err != nil {
		return nil, err
	}

	// As it is, it only applies what its log has.
	o.recovering = asItIs

	s, err := StartServer(ctx, o)
	if err != nil {
		return nil, err
	}
	learner, err := s.replayed(ctx)

	if err := errors.Join(err, s.Close()); err != nil {
		return nil, err
	}

	if !learner {
		o.recovering = alone
		return StartServer(ctx, o)
	}

	// A log in which nobody is left that votes cannot go on, so its records go into a new one, of another cluster.
	if err := o.found(m, filling); err != nil {
		return nil, err
	}

	if err := localfile.Rename(data, former); err != nil {
		return nil, err
	}
	if err := localfile.Rename(filling, data); err != nil {
		return nil, err
	}

	if s, err = StartServer(ctx, o); err != nil {
		return nil, err
	}

	return s, os.RemoveAll(former)
}

// replayed waits until the server in this process has applied what its log has, and reports whether it is a learner.
func (s *Server) replayed(ctx context.Context) (learner bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	e := s.inside.Server

	tick := time.NewTicker(openRetry)
	defer tick.Stop()

	for e.AppliedIndex() < e.CommittedIndex() {
		select {
		case <-ctx.Done():
			return false, inventory.Errorf(inventory.KindUnavailable, "the log was not replayed: %w", ctx.Err()).
				Do("repeat it: clusterm recover --yes")
		case <-tick.C:
		}
	}

	if e.Cluster().Member(e.MemberID()) == nil {
		return false, errors.Join(removed(s.opts.Dir), os.Remove(filepath.Join(s.opts.Dir, recoveringFile)))
	}

	return e.IsLearner(), nil
}

// found makes a data directory of a cluster that has m as its only member, with the records of the present one.
func (o ServerOptions) found(m Member, dir string) error {
	return snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: filepath.Join(o.dataDir(), databaseFile), SkipHashCheck: true,
		OutputDataDir: dir, Name: m.Name, PeerURLs: []string{m.PeerURL()},
		InitialCluster: m.Name + "=" + m.PeerURL(), InitialClusterToken: rand.Text(),
	})
}

// noneAnswers refuses as long as something listens where another member does: the members that are left go on together,
// or are removed. One that waits for a quorum accepts connections, and answers nothing.
func (m Member) noneAnswers(ctx context.Context) error {
	var answer []string

	for _, endpoint := range m.Endpoints {
		at := strings.TrimPrefix(endpoint, "https://")

		conn, err := (&net.Dialer{Timeout: askTimeout}).DialContext(ctx, "tcp", at)
		if err == nil {
			conn.Close()
			answer = append(answer, endpoint)
		}
	}

	if len(answer) == 0 {
		return nil
	}

	return inventory.Errorf(inventory.KindRefused, "another instance is there: its etcd listens at %s",
		strings.Join(answer, ", ")).
		Do("start clusterm here: with a majority of the instances, the service goes on. If they are too few, " +
			"stop clusterm on the others, recover this one, and let them join it anew with empty data directories")
}

// unrecovered refuses a directory in which Recover did not come to its end.
func (o ServerOptions) unrecovered() error {
	marker := filepath.Join(o.Dir, recoveringFile)

	if _, err := os.Lstat(marker); o.recovering != "" || errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	return inventory.Errorf(inventory.KindRefused, "clusterm recover did not come to its end: %s exists", marker).
		Do("repeat it: clusterm recover --yes")
}

// beginRecovery keeps other servers from the directory until Recover has come to its end.
func (o ServerOptions) beginRecovery() error {
	if o.recovering == "" {
		return nil
	}
	return localfile.Replace(filepath.Join(o.Dir, recoveringFile), nil)
}
