// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"crypto/rand"
	"maps"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
)

// Passwords keeps the passwords of BMCs while they are replaced.
type Passwords interface {
	// Next returns the BMC of a node with its next password. Unless an earlier attempt has left one, it is made, and
	// stored beside the present one.
	Next(ctx context.Context, node string) (machine.BMC, error)
	// Promote makes the next password the one of the BMC.
	Promote(ctx context.Context, node string) error
}

// PasswordsIn returns the Passwords in the records of a store.
func PasswordsIn(s record.Store) Passwords { return passwords{s} }

type passwords struct{ store record.Store }

func (p passwords) Next(ctx context.Context, node string) (machine.BMC, error) {
	b, _, err := record.Decide(ctx, p.store, func(tx *record.Tx) (machine.BMC, error) {
		m := record.Get(tx, &state.Machines, node)

		b, err := bmcOf(m)
		if err != nil || b.Next != "" {
			return b, err
		}

		b.Next = newPassword()
		putSecrets(tx, m, configuration.Vars{state.SecretBMCNext: configuration.NewSecret(b.Next)})

		return b, nil
	})

	return b, err
}

func (p passwords) Promote(ctx context.Context, node string) error {
	_, _, err := record.Decide(ctx, p.store, func(tx *record.Tx) (none struct{}, err error) {
		m := record.Get(tx, &state.Machines, node)
		if m == nil || m.Secrets[state.SecretBMCNext] == nil {
			return none, nil // by an earlier attempt
		}

		putSecrets(tx, m, configuration.Vars{
			state.SecretBMC:       m.Secrets[state.SecretBMCNext],
			state.SecretBMCNext:   nil,
			state.SecretBMCFormer: m.Listed(),
		})

		return none, nil
	})

	return err
}

// putSecrets changes secrets of a machine. nil removes one.
func putSecrets(tx *record.Tx, m *state.Machine, changes configuration.Vars) {
	changed := *m

	changed.Secrets = maps.Clone(m.Secrets)
	if changed.Secrets == nil {
		changed.Secrets = configuration.Vars{}
	}

	maps.Copy(changed.Secrets, changes)
	maps.DeleteFunc(changed.Secrets, func(_ string, value any) bool { return value == nil })
	record.Put(tx, &state.Machines, &changed)
}

// newPassword returns a random password: 70 bits, with capitals, small letters and digits, which many BMCs demand. IPMI
// allows 20 bytes, but some BMCs keep 16 of them, and do not say so.
func newPassword() string { return rand.Text()[:14] + "a1" }

// rotate replaces the password of the BMC of a node. After a crash it goes on with the password that was stored.
func (x Executor) rotate(ctx context.Context, node string) error {
	var b machine.BMC

	err := step.Retry(ctx, func() (err error) {
		b, err = x.passwords.Next(ctx, node)
		return err
	})
	if err != nil {
		return err
	}

	if err := x.bmcs.SetPassword(ctx, b); err != nil {
		return err
	}

	return step.Retry(ctx, func() error { return x.passwords.Promote(ctx, node) })
}

// checkShared refuses BMCs that other machines have as well: the record of those would keep the old password.
func checkShared(v *state.View, targets []string) error {
	type place struct {
		redfish bool
		address string
		port    int
	}

	placeOf := func(m *state.Machine) place {
		port := m.BMC.Port
		if port == 0 {
			port = m.BMC.DefaultPort()
		}
		return place{m.BMC.Driver.SpeaksRedfish(), m.BMC.Address, port}
	}

	at := map[place][]string{}

	for name, m := range record.All(v, &state.Machines) {
		if m.HasBMC() {
			at[placeOf(m)] = append(at[placeOf(m)], name)
		}
	}

	for _, name := range targets {
		m := record.Get(v, &state.Machines, name)
		if !m.HasBMC() {
			continue
		}

		if sharing := at[placeOf(m)]; len(sharing) > 1 {
			return inventory.Errorf(inventory.KindRefused, "%s have one BMC, and one password", job.ShortList(sharing)).
				Do("change it on the BMC, and import these machines with it").About(sharing...)
		}
	}

	return nil
}
