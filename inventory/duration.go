// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"strings"
	"time"
)

// ShortDuration returns a duration without zero units at its end, such as 1h, 1h30m and 0s.
// time.ParseDuration reads it.
func ShortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}

	return text
}
