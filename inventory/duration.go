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

// Duration is a time.Duration in the form "1h30m" in YAML and JSON.
type Duration time.Duration

// MarshalText returns the form of ShortDuration.
func (d Duration) MarshalText() ([]byte, error) {
	return []byte(ShortDuration(time.Duration(d))), nil
}

// String returns the same form.
func (d Duration) String() string { return ShortDuration(time.Duration(d)) }

// UnmarshalText accepts the forms of time.ParseDuration, without negative values.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil || v < 0 {
		return Errorf(KindInvalid, "%q is not a duration", b).Do("write it like 90s, 15m or 1h30m")
	}
	*d = Duration(v)

	return nil
}
