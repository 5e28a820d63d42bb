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
	"sync"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
)

// recoveringFile is in the directory of a server from the first change of Recover on. Until that has come to its end,
// no other server starts there.
const recoveringFile = "recovering"

// Recover makes the member in a directory the only one of another cluster, after a majority of the members is lost for
// good, with what this member has applied. finish works with the store before any daemon does, and may run again: after
// an error, Recover is repeated.
//
// It is KindRefused if the member is alone already, if clusterm runs, or if another member answers.
func Recover(ctx context.Context, o ServerOptions, finish func(*Client) error) (err error) {
	m, err := o.member()
	if err != nil {
		return err
	}

	if m == nil || len(m.Others()) == 0 && !Recovering(o.Dir) {
		return errNotLost()
	}

	if err := m.noneAnswers(ctx); err != nil && Recovering(o.Dir) {
		return inventory.Errorf(inventory.KindRefused, "a recovery was interrupted, and meanwhile %w", err).
			Do("move the data directory of clusterm away, and let this host join again")
	} else if err != nil {
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

	m.Endpoints, m.Learners, m.InitialCluster = nil, nil, nil

	if err := WriteMember(o.Dir, *m); err != nil {
		return err
	}

	if err := os.Remove(filepath.Join(o.Dir, recoveringFile)); err != nil {
		return err
	}

	return localfile.SyncDir(o.Dir)
}

func errNotLost() error {
	return inventory.Errorf(inventory.KindRefused,
		"no majority of instances is lost here: there is nothing to recover").
		Do("start it: systemctl start clusterm; to restore a backup: clusterm restore FILE")
}

// Recovering reports whether Recover has changed the directory of a server and did not come to its end.
func Recovering(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, recoveringFile))
	return err == nil
}

// startAlone starts the server as the only member. Its records go into a new log: etcd strikes no members off while a
// majority is missing, and a learner could not go on at all.
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

	needsOthers, err := o.replay(ctx)
	if err == nil && !needsOthers && !Recovering(o.Dir) {
		err = errNotLost()
	}
	if err != nil {
		return nil, err
	}

	if err := o.found(m.Name, m.PeerURL(), filling); err != nil {
		return nil, err
	}

	// Until here nothing has changed.
	if err := localfile.Replace(filepath.Join(o.Dir, recoveringFile), nil); err != nil {
		return nil, err
	}
	o.recovering = true

	if err := localfile.Rename(data, former); err != nil {
		return nil, err
	}
	if err := localfile.Rename(filling, data); err != nil {
		return nil, err
	}

	s, err := StartServer(ctx, o)
	if err != nil {
		return nil, err
	}

	return s, os.RemoveAll(former)
}

// replay lets the database of a stopped server have what its log has: after a crash it may lack the end of that. It
// reports whether others vote, too, by what the log says: its description may be of a moment ago.
func (o ServerOptions) replay(ctx context.Context) (needsOthers bool, err error) {
	if !o.hasLog() {
		return false, ErrNoData
	}

	ends, err := inspectLog(filepath.Join(o.dataDir(), logFolder))
	if err != nil {
		return false, damaged(o.dataDir(), logFolder, err)
	}

	o.recovering, o.MustExist, o.Command = true, true, nil

	s, err := StartServer(ctx, o)
	if err != nil {
		return false, err
	}

	err = s.replayed(ctx, ends.committed)
	own := s.inside.Server.MemberID()

	for _, m := range s.inside.Server.Cluster().Members() {
		needsOthers = needsOthers || m.ID != own && !m.IsLearner
	}

	return needsOthers, errors.Join(err, s.Close())
}

// replayed waits until the server in this process has applied an entry.
func (s *Server) replayed(ctx context.Context, entry uint64) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	tick := time.NewTicker(openRetry)
	defer tick.Stop()

	for s.inside.Server.AppliedIndex() < entry {
		select {
		case <-ctx.Done():
			return inventory.Errorf(inventory.KindUnavailable, "the log was not replayed: %w", ctx.Err()).
				Do("repeat it: clusterm recover --yes")
		case <-tick.C:
		}
	}

	if e := s.inside.Server; e.Cluster().Member(e.MemberID()) == nil {
		return removed(s.opts.Dir)
	}

	return nil
}

// found makes a data directory of a cluster with one member, with the records of the present one.
func (o ServerOptions) found(name, peerURL, dir string) error {
	return snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: filepath.Join(o.dataDir(), databaseFile), SkipHashCheck: true,
		OutputDataDir: dir, Name: name, PeerURLs: []string{peerURL},
		InitialCluster: name + "=" + peerURL, InitialClusterToken: rand.Text(),
	})
}

// noneAnswers refuses as long as something listens where another member does: the members that are left go on together,
// or are removed. One that waits for a quorum accepts connections, and answers nothing.
func (m Member) noneAnswers(ctx context.Context) error {
	var (
		others = m.Others()
		listen = make([]bool, len(others))
		tasks  sync.WaitGroup
	)

	for i, endpoint := range others {
		tasks.Go(func() {
			at := strings.TrimPrefix(endpoint, "https://")

			conn, err := (&net.Dialer{Timeout: askTimeout}).DialContext(ctx, "tcp", at)
			if listen[i] = err == nil; listen[i] {
				conn.Close()
			}
		})
	}

	tasks.Wait()

	var answer []string
	for i, endpoint := range others {
		if listen[i] {
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
	if o.recovering || !Recovering(o.Dir) {
		return nil
	}

	return inventory.Errorf(inventory.KindRefused, "clusterm recover did not come to its end: %s exists",
		filepath.Join(o.Dir, recoveringFile)).
		Do("repeat it: clusterm recover --yes")
}
