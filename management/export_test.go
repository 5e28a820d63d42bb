// SPDX-License-Identifier: Apache-2.0

package management

import "time"

// Hasten has everything that failed tried again soon. Call it before Start.
func (s *Service) Hasten() { s.retryJob, s.retryWrite = 20*time.Millisecond, 20*time.Millisecond }
