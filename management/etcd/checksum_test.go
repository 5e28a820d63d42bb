// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"sync"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/secret"
	"github.com/contiv/cluster/management/state"
)

// TestChecksumKey makes the key of the checksums on several instances at once. All have
// the same one, it is encrypted, and a rotation of the secrets' key keeps it.
func TestChecksumKey(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)
	other := openWith(t, s, testSecrets())

	if !state.ChecksumKey(s.View()).IsZero() {
		t.Error("an empty store has a key")
	}

	var both sync.WaitGroup
	for _, one := range []*Store{s, other} {
		both.Go(func() {
			if err := one.EnsureChecksumKey(ctx); err != nil {
				t.Error(err)
			}
		})
	}

	both.Wait()
	must(t, s.Sync(ctx))
	must(t, other.Sync(ctx))

	key := state.ChecksumKey(s.View())
	if key.IsZero() || state.ChecksumKey(other.View()) != key {
		t.Fatal("the instances have different keys")
	}
	if bytes.Contains(values(t, s), []byte(key.Reveal())) {
		t.Error("the key is stored in the clear")
	}

	now := secret.NewKey()
	s.secrets.Use(secret.NewRing(testKey).With(now), nil)

	if written, err := s.EncryptSecrets(ctx); err != nil || written != 1 {
		t.Errorf("%d records, %v", written, err)
	}

	must(t, s.EnsureChecksumKey(ctx))

	if again := state.ChecksumKey(openWith(t, s, NewSecrets(secret.NewRing(now), nil)).View()); again != key {
		t.Error("a rotation has changed the key")
	}
}

// TestLostChecksumKey: while secrets are locked, the key is not known and not touched.
// Once their key is abandoned, there is a new one.
func TestLostChecksumKey(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)
	must(t, s.EnsureChecksumKey(ctx))
	key := state.ChecksumKey(s.View())

	missing := inventory.Errorf(inventory.KindRefused, "the key file is missing")
	without := openWith(t, s, NewSecrets(secret.Ring{}, missing))

	if !state.ChecksumKey(without.View()).IsZero() || without.EnsureChecksumKey(ctx) == nil {
		t.Error("there is a key without that of the secrets")
	}

	if again := state.ChecksumKey(openWith(t, s, testSecrets()).View()); again != key {
		t.Error("the key was touched")
	}

	without.secrets.Use(secret.NewRing(secret.NewKey()), nil)
	must(t, without.EnsureChecksumKey(ctx))

	if now := state.ChecksumKey(without.View()); now.IsZero() || now == key || now == (configuration.ChecksumKey{}) {
		t.Error("there is no new key")
	}
}
