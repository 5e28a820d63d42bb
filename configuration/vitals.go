// SPDX-License-Identifier: Apache-2.0

package configuration

import "time"

// Vitals are the signs of life of a host, as it reports them itself.
type Vitals struct {
	Boot   string        // the boot id of its kernel, a UUID; empty: not read
	Uptime time.Duration // since the boot; 0: not read
	Agent  time.Duration // since the start of its agent; 0: not read
}
