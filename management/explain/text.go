// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strings"
	"time"
)

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " since " + stamp(t)
}

func on(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " on " + stamp(t)
}

func by(actor string) string {
	if actor == "" {
		return ""
	}
	return " by " + actor
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func join(names []string) string { return strings.Join(names, ", ") }
