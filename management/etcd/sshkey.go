// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"time"

	"github.com/contiv/cluster/management/sshkey"
)

var _ sshkey.Records = (*Store)(nil)

// sshKeyRecord is the newest rotation of the manager's ssh key. It has no private key.
type sshKeyRecord struct {
	Number    int         `json:"number"`
	Phase     string      `json:"phase"`
	New       sshKeyOfTwo `json:"new"`
	Old       sshKeyOfTwo `json:"old"`
	Reverts   bool        `json:"reverts,omitempty"`
	Actor     string      `json:"actor,omitempty"`
	Started   time.Time   `json:"started,omitzero"`
	Ended     time.Time   `json:"ended,omitzero"`
	Confirmed []string    `json:"confirmed,omitempty"`
	Removed   []string    `json:"removed,omitempty"`
	LockedOut []string    `json:"locked_out,omitempty"`
}

type sshKeyOfTwo struct {
	Path      string `json:"path"`
	Public    string `json:"public"`
	Generated bool   `json:"generated,omitempty"`
	Setting   string `json:"setting,omitempty"`
	RunTime   bool   `json:"run_time,omitempty"`
}

func newSSHKeyRecord(r sshkey.Rotation) sshKeyRecord {
	return sshKeyRecord{
		Number: r.Number, Phase: string(r.Phase), New: sshKeyOfTwo(r.New), Old: sshKeyOfTwo(r.Old),
		Reverts: r.Reverts, Actor: r.Actor, Started: r.Started, Ended: r.Ended,
		Confirmed: r.Confirmed, Removed: r.Removed, LockedOut: r.LockedOut,
	}
}

func (r sshKeyRecord) rotation() sshkey.Rotation {
	return sshkey.Rotation{
		Number: r.Number, Phase: sshkey.Phase(r.Phase), New: sshkey.Key(r.New), Old: sshkey.Key(r.Old),
		Reverts: r.Reverts, Actor: r.Actor, Started: r.Started, Ended: r.Ended,
		Confirmed: r.Confirmed, Removed: r.Removed, LockedOut: r.LockedOut,
	}
}

// sshKeyName is the last part of the key of the record.
const sshKeyName = "newest"

func (s *Store) sshKeyKey() string { return s.key("/v/ssh-key/%s", sshKeyName) }

// SSHKeyRotation returns the newest rotation of the manager's ssh key, and the revision
// of the view. Its lists must not be changed.
func (s *Store) SSHKeyRotation() (sshkey.Rotation, int64) {
	s.view.mu.Lock()
	defer s.view.mu.Unlock()

	return s.view.sshKey[sshKeyName], s.view.revision
}

// PutSSHKeyRotation replaces the newest rotation. It is KindConflict if it has changed
// after the revision.
func (s *Store) PutSSHKeyRotation(ctx context.Context, revision int64, r sshkey.Rotation) error {
	op, err := put(s.sshKeyKey(), newSSHKeyRecord(r))
	if err != nil {
		return err
	}

	_, err = s.commitUnchanged(ctx, s.sshKeyKey(), revision, op)

	return err
}
