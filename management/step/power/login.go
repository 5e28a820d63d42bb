// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Bounds of a login, in bytes: those of the lists of machines.
const (
	userLimit     = 128
	passwordLimit = 256
)

// Prover logs in at BMCs: a bmc.Pool.
type Prover interface {
	Prove(ctx context.Context, b machine.BMC) (bmc.Power, error)
}

// Logins replaces the logins of BMCs.
type Logins struct {
	State state.Reader
	Store record.Store
	Audit access.Auditor
	BMCs  Prover
}

// SetLogin has the BMC of a node prove the user and the password, and records them then. An empty one is as recorded.
// The node may have any status. After an error everything is as it was.
func (l *Logins) SetLogin(
	ctx context.Context, c access.Caller, node, user, password, reason string,
) (is inventory.Power, err error) {
	if err := checkLogin(user, password, reason); err != nil {
		return inventory.Power{}, err
	}

	r := access.Record{Action: "nodes.bmc-login", Targets: []string{node}, Reason: reason}
	err = access.Audited(ctx, l.Audit, c, r, func(recording context.Context, _ *access.Record) error {
		v, err := c.Check(ctx, l.State, l.State.View(), func(s *state.Scoped) error {
			return s.CheckNodes([]string{node})
		})
		if err != nil {
			return err
		}

		old, logins, err := loginsOf(v, node, user, password)
		if err != nil {
			return err
		}

		proven, power, err := l.prove(ctx, logins)
		if err != nil {
			return err
		}

		is, _, err = record.Decide(recording, l.Store, func(tx *record.Tx) (inventory.Power, error) {
			return putLogin(tx, node, old, proven, power)
		})

		return err
	})

	return is, err
}

func checkLogin(user, password, reason string) error {
	for _, text := range []struct {
		name, value string
		limit       int
	}{{"user", user, userLimit}, {"password", password, passwordLimit}} {
		if len(text.value) > text.limit || strings.ContainsFunc(text.value, unicode.IsControl) {
			return inventory.Errorf(inventory.KindInvalid,
				"the %s for the BMC has more than %d bytes, or control characters",
				text.name, text.limit).Do("correct it")
		}
	}

	return inventory.CheckReason(reason)
}

// loginsOf returns the BMC of a node as it is recorded, and as it is with each login to try. All have a password.
func loginsOf(v *state.View, node, user, password string) (old machine.BMC, logins []machine.BMC, err error) {
	m := record.Get(v, &state.Machines, node)

	old, err = bmcOf(m)

	switch {
	case errors.Is(err, ErrNone):
		return old, nil, inventory.Errorf(inventory.KindRefused, "no BMC is known of %s", node).
			Do("register it with a list: clusterctl nodes import FILE").About(node)
	case err != nil && password == "":
		return old, nil, Locked(err)
	}

	if err := checkRotating(v, node); err != nil {
		return old, nil, err
	}

	login := old
	login.Given++

	if user != "" {
		login.User = user
	}

	if password != "" {
		login.Password, login.Next = password, ""
		return old, []machine.BMC{login}, nil
	}

	logins = []machine.BMC{login}
	logins[0].Next = ""

	// A rotation that failed has left two.
	if old.Next != "" {
		login.Password, login.Next = old.Next, ""
		logins = append(logins, login)
	}

	return old, logins, nil
}

// prove returns the first login that the BMC takes.
func (l *Logins) prove(ctx context.Context, logins []machine.BMC) (machine.BMC, bmc.Power, error) {
	var (
		power bmc.Power
		err   error
	)

	for _, login := range logins {
		if power, err = l.BMCs.Prove(ctx, login); !errors.Is(err, bmc.ErrLogin) {
			return login, power, err
		}
	}

	return machine.BMC{}, "", err
}

// putLogin records a login that the BMC has taken, and its answer, unless the BMC is another one by now.
func putLogin(tx *record.Tx, node string, old, proven machine.BMC, power bmc.Power) (inventory.Power, error) {
	m := record.Get(tx, &state.Machines, node)

	if now, err := bmcOf(m); errors.Is(err, ErrNone) || now != old {
		return inventory.Power{}, inventory.Errorf(inventory.KindRefused,
			"the BMC of %s, or its login, was changed meanwhile", node).Do("try again").About(node)
	}

	if err := checkRotating(tx, node); err != nil {
		return inventory.Power{}, err
	}

	changed := *m
	changed.Machine = m.Clone()
	changed.BMC.User, changed.Given = proven.User, proven.Given

	secrets := configuration.Vars{state.SecretBMCNext: nil}
	if proven.Password != old.Password {
		secrets[state.SecretBMC] = configuration.NewSecret(proven.Password)
		secrets[state.SecretBMCFormer] = m.Listed()
	}

	putSecrets(tx, &changed, secrets)

	return keep(tx, Seen{Node: node, Power: power}, time.Now()), nil
}

// checkRotating refuses a node that a job switches: it may replace the password, or needs the login.
func checkRotating(r record.Reader, node string) error {
	n := record.Get(r, &job.Nodes, node)
	if n == nil || n.Job == "" {
		return nil
	}

	if v, err := job.VerbOf(n.Verb); err != nil || !slices.Contains(v.Steps, job.StepPower) {
		return nil //nolint:nilerr // a job of an unknown verb does not run
	}

	return inventory.Errorf(inventory.KindBusy,
		"job %s uses the login of the BMC of %s, and may replace it", n.Job, node).
		Do("wait until the job has ended, or cancel it").About(node).
		With(inventory.WaitForJob(n.Job), inventory.CancelJob(n.Job))
}
