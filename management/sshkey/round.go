// SPDX-License-Identifier: Apache-2.0

package sshkey

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/rotation"
	"github.com/contiv/cluster/management/state"
)

const (
	// roundTime bounds one round, and keepTime the write of results after its end.
	roundTime = 3 * time.Minute
	keepTime  = 10 * time.Second

	// batch is the number of nodes visited before the phase is checked again; visits of them run
	// concurrently.
	batch  = 128
	visits = 32

	// A failed attempt on a node is retried after retryFirst, doubling up to retryMost, and at once
	// when the node's state changes.
	retryFirst = 10 * time.Second
	retryMost  = 5 * time.Minute
)

// Round advances the running rotation as far as possible now. It is idempotent and may be interrupted at
// any point.
func (k *Keeper) Round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()

	for {
		r := k.Rotation()
		if !r.Phase.Running() {
			return nil
		}
		goesOn, err := k.step(ctx, r)
		k.note(r, err)

		if err != nil || !goesOn || ctx.Err() != nil {
			return err
		}
	}
}

// note records why the rotation cannot continue.
func (k *Keeper) note(r Rotation, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()

	k.forget(r)

	if k.problem = ""; err != nil {
		k.problem = err.Error()
	}
}

// forget drops the memory of an earlier rotation. The caller holds the lock.
func (k *Keeper) forget(r Rotation) {
	if k.number != r.Number {
		k.number, k.problem, k.attempts = r.Number, "", map[string]attempt{}
	}
}

// step does one batch of the phase. goesOn reports whether another step is due at once.
func (k *Keeper) step(ctx context.Context, r Rotation) (goesOn bool, err error) {
	settings := k.Settings()

	// Without the new key nothing can be confirmed, and the next step might revoke the old one.
	if err := present(r.New); err != nil {
		return false, err
	}

	if r.Phase == rotation.PhaseUse {
		return true, k.use(ctx, r, settings)
	}

	// Revoking the old key without having the new one would end all access.
	if r.Phase == rotation.PhaseRemove && settings.KeyFile != r.New.Setting {
		return false, errChanged(settings.KeyFile, r.New)
	}

	known, _ := k.nodes(k.State.View())
	due, left := k.due(r, known)

	if len(due) > 0 {
		err := k.visit(ctx, r, due)
		return true, err
	}

	switch {
	// Laggards do not delay the others. But if no node at all has confirmed, something else is wrong.
	case r.Phase == rotation.PhaseInstall && (r.confirmedBy(known) || left == 0):
		if err := r.locksAllOut(known, settings.KeyFile); err != nil {
			return false, err
		}
		return true, k.advance(ctx, r, rotation.PhaseUse)
	case r.Phase == rotation.PhaseRemove && left == 0:
		return false, k.finish(ctx, r)
	}

	return false, nil
}

func errChanged(setting string, key Key) error {
	changed := inventory.Errorf(inventory.KindPrecondition,
		"ssh.key_file was changed to %q during the rotation to %q", setting, key.Setting)
	if key.RunTime {
		return changed.Do("set it back").With(inventory.SetSetting("ssh.key_file", key.Setting))
	}
	return changed.Do("set it back").With(inventory.UnsetSetting("ssh.key_file"))
}

// use switches the manager to the new key.
func (k *Keeper) use(ctx context.Context, r Rotation, settings Settings) error {
	switch settings.KeyFile {
	case r.New.Setting: // repeated step, or a cancelled rotation that never got here
	case r.Old.Setting:
		if err := k.Switch(ctx, r.New); err != nil {
			return fmt.Errorf("ssh.key_file cannot be set: %w", err)
		}
	default:
		return errChanged(settings.KeyFile, r.New)
	}

	return k.advance(ctx, r, rotation.PhaseRemove)
}

// finish removes the old key from the host of the manager.
func (k *Keeper) finish(ctx context.Context, r Rotation) error {
	if r.Old.Generated {
		if err := remove(r.Old.Path); err != nil {
			return fmt.Errorf("the old ssh key cannot be removed: %w", err)
		}
	}

	return k.advance(ctx, r, rotation.PhaseDone)
}

// advance stores the next phase.
func (k *Keeper) advance(ctx context.Context, r Rotation, next rotation.Phase) error {
	k.Logger.WithFields(logrus.Fields{"phase": next, "key": configuration.Fingerprint(r.New.Public)}).
		Info("the rotation of the ssh key goes on")

	record := access.Record{
		Action: "ssh-key." + string(next), Reason: "rotation begun by " + r.Actor, Targets: r.LockedOut,
	}

	return access.Audited(ctx, k.Audit, access.Caller{Principal: access.Manager}, record,
		func(ctx context.Context, _ *access.Record) error {
			return k.progress(ctx, r, func(now *Rotation) {
				if now.Phase = next; next == rotation.PhaseDone {
					now.Ended = k.Now()
				}
			})
		})
}

// progress changes the record, unless another rotation or phase has begun.
func (k *Keeper) progress(ctx context.Context, r Rotation, apply func(*Rotation)) error {
	return k.change(ctx, func(now *Rotation) error {
		if now.Number == r.Number && now.Phase == r.Phase {
			apply(now)
		}
		return nil
	})
}

// due returns the next batch of nodes to visit, least recently attempted first, and the number of all
// remaining nodes.
func (k *Keeper) due(r Rotation, known []*inventory.Node) (due []*inventory.Node, left int) {
	k.mu.Lock()
	defer k.mu.Unlock()

	k.forget(r)

	now := k.Now()

	for _, n := range known {
		if r.isDone(n.Name) {
			continue
		}

		left++

		if last, tried := k.attempts[n.Name]; !tried || last.due(now, n.State) {
			due = append(due, n)
		}
	}

	slices.SortStableFunc(due, func(a, b *inventory.Node) int {
		return k.attempts[a.Name].at.Compare(k.attempts[b.Name].at)
	})

	return due[:min(len(due), batch)], left
}

// due reports whether the retry of a node is due.
func (a attempt) due(now time.Time, state inventory.State) bool {
	delay := retryMost
	if a.failures < 6 {
		delay = min(retryFirst<<a.failures, retryMost)
	}
	return a.why == "" || a.state != state || !now.Before(a.at.Add(delay))
}

// visit does the phase's work on the nodes. Each result is kept as it arrives, so that slow nodes or the
// end of the round do not lose the results of others.
func (k *Keeper) visit(ctx context.Context, r Rotation, due []*inventory.Node) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	// No visit waits for a write of the record.
	results := make(chan result, len(due))
	turns := make(chan struct{}, visits)

	var visiting sync.WaitGroup
	for _, n := range due {
		visiting.Go(func() {
			select {
			case turns <- struct{}{}:
			case <-ctx.Done():
				return
			}

			defer func() { <-turns }()

			results <- k.visitNode(ctx, r, n)
		})
	}

	go func() {
		visiting.Wait()
		close(results)
	}()

	var failed error

	for first := range results {
		err := k.keep(ctx, r, append(waiting(results), first))
		if failed == nil && err != nil {
			failed = err
			cancel()
		}
	}

	return failed
}

// waiting returns the results that have arrived so far.
func waiting(results <-chan result) (all []result) {
	for {
		select {
		case done, open := <-results:
			if !open {
				return all
			}

			all = append(all, done)
		default:
			return all
		}
	}
}

// keep remembers the results of visits, and records the successes.
func (k *Keeper) keep(ctx context.Context, r Rotation, results []result) error {
	var confirmed, removed []string

	k.mu.Lock()

	for _, done := range results {
		name := done.node.Name

		if done.confirmed {
			confirmed = append(confirmed, name)
		}

		if done.removed {
			removed = append(removed, name)
		}

		// The node is not to blame for an interrupted visit.
		if k.number == r.Number && (done.err == nil || ctx.Err() == nil) {
			k.attempts[name] = done.attempt(k.Now(), k.attempts[name])
		}
	}

	k.mu.Unlock()

	if len(confirmed)+len(removed) == 0 {
		return nil
	}

	// The end of the round must not cost the last results.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTime)
	defer cancel()

	return k.progress(ctx, r, func(now *Rotation) {
		now.Confirmed, now.Removed = rotation.With(now.Confirmed, confirmed), rotation.With(now.Removed, removed)
	})
}

// result is the outcome of one visit.
type result struct {
	node      *inventory.Node
	confirmed bool // the node accepts the new key
	removed   bool // and no longer the old one
	held      bool // a job holds the node
	err       error
}

// attempt converts the result. last is the attempt before it.
func (r result) attempt(at time.Time, last attempt) attempt {
	now := attempt{at: at, state: r.node.State}
	if r.err == nil {
		return now
	}
	if now.why = r.err.Error(); !r.held {
		now.failures = last.failures + 1
	}
	return now
}

// visitNode does the phase's work on one node.
func (k *Keeper) visitNode(ctx context.Context, r Rotation, n *inventory.Node) result {
	done := result{node: n}
	v := k.State.View()

	if j := holdersOf(v).of(n); j != "" {
		done.held, done.err = true, fmt.Errorf("job %s holds it", j)
		return done
	}

	h, err := k.host(v, n)
	if err != nil {
		done.err = err
		return done
	}

	if !rotation.Has(r.Confirmed, n.Name) {
		if done.err = k.confirm(ctx, r, h); done.err != nil {
			return done
		}

		done.confirmed = true
	}

	if r.Phase == rotation.PhaseRemove {
		done.err = k.revoke(ctx, r, h)
		done.removed = done.err == nil
	}

	return done
}

// host returns the host of a node, without a key.
func (k *Keeper) host(v *state.View, n *inventory.Node) (configuration.Host, error) {
	settings := k.Settings()
	h := configuration.Host{
		Name: n.Name, Addr: n.Addr, Label: n.Label, Serial: n.Serial, Role: configuration.RoleTarget,
		Connection: settings.Connect(v, n.Group, n.Name), HostKeys: n.HostKeys, HostCAs: settings.HostCAs,
	}

	// Without a known host key, another machine could confirm instead of the node.
	if len(h.HostKeys)+len(h.HostCAs) == 0 {
		return h, errors.New("its ssh host key is not recorded, so another machine could answer for it")
	}

	return h, configuration.CheckHosts([]configuration.Host{h})
}

// keyed returns the host with the key to log in with and its fallback.
func keyed(h configuration.Host, key, former string) configuration.Host {
	h.Connection.KeyFile, h.Connection.FormerKeyFile = key, former
	return h
}

// probe tries a login with one key alone.
func (k *Keeper) probe(ctx context.Context, h configuration.Host, key Key) configuration.Reach {
	return k.Hosts.Probe(ctx, []configuration.Host{keyed(h, key.Path, "")})[0]
}

// confirm installs the new key beside the old one, and returns nil after a login with the new key alone.
func (k *Keeper) confirm(ctx context.Context, r Rotation, h configuration.Host) error {
	reach := k.probe(ctx, h, r.New)
	if reach.OK() {
		return nil
	}
	if !configuration.DeniedBy(h, reach.Reason()) {
		return errors.New(reach.Reason())
	}

	err := k.Hosts.EditAuthorizedKeys(ctx, keyed(h, r.New.Path, r.Old.Path), func(file []byte) ([]byte, error) {
		return configuration.AuthorizeKey(file, r.New.Public, r.Old.Public, k.Comment)
	})
	if err != nil {
		return err
	}

	if reach = k.probe(ctx, h, r.New); !reach.OK() {
		return fmt.Errorf("the new key was put on it, and does not log in: %s", reach.Reason())
	}

	return nil
}

// revoke removes the old key from a host, logged in with the new key alone, and returns nil after a
// login with the old key was denied.
func (k *Keeper) revoke(ctx context.Context, r Rotation, h configuration.Host) error {
	edit := func() error {
		return k.Hosts.EditAuthorizedKeys(ctx, keyed(h, r.New.Path, ""), func(file []byte) ([]byte, error) {
			return configuration.RevokeKey(file, r.Old.Public), nil
		})
	}

	err := edit()
	if err != nil && configuration.DeniedBy(h, err.Error()) {
		// The host lost the new key, for example by a reinstallation.
		if err = k.confirm(ctx, r, h); err == nil {
			err = edit()
		}
	}

	if err != nil {
		return err
	}

	if reach := k.probe(ctx, h, r.New); !reach.OK() {
		return fmt.Errorf("the new key does not log in: %s", reach.Reason())
	}

	// A jump host may itself be a node that no longer accepts the old key.
	h.JumpKeyFile = r.New.Path

	switch reach := k.probe(ctx, h, r.Old); {
	case reach.OK():
		return errors.New("it still accepts the old key, by another file or command than its authorized_keys")
	case !configuration.DeniedBy(h, reach.Reason()):
		return fmt.Errorf("it is not known whether it still accepts the old key: %s", reach.Reason())
	}

	return nil
}
