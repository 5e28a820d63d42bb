// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"slices"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/plan"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/sshkey"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/window"
)

// kinds are the kinds of record that the store keeps for their packages.
var kinds = slices.Concat(state.Kinds, []record.Any{
	&job.Kind, &plan.Kind, &rollout.Kind,
	&access.TokenKind, &access.TokenUseKind, &access.RevocationKind, &sshkey.Kind, &window.FreezeKind,
	&notify.DeliveryKind, &notify.PositionKind,
})
