// SPDX-License-Identifier: Apache-2.0

package inventory

import "embed"

// Source has the types that the API shows as they are. Their comments and constants describe them in its document.
//
//go:embed options.go power.go alert.go hardware.go installed.go configured.go verdict.go sighting.go history.go tags.go budget.go strategy.go group.go reaction.go
var Source embed.FS
