// SPDX-License-Identifier: Apache-2.0

package engine

import "time"

// Hasten shortens the delays between retries. Call it before Start.
func (e *Engine) Hasten() { e.jobBackoff, e.writeBackoff = 20*time.Millisecond, 20*time.Millisecond }
