// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"github.com/contiv/cluster/management/state"
)

// Hasten shortens the delays between retries. Call it before Start.
func (e *Engine) Hasten() { e.jobBackoff, e.writeBackoff = 20*time.Millisecond, 20*time.Millisecond }

// Outages are those of the store that the engine has seen.
func (e *Engine) Outages() *state.Outages { return &e.outages }

// SetTroubles sets those of the manager, before any job.
func (e *Engine) SetTroubles(t *state.Troubles) { e.troubles = t }
