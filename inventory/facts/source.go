// SPDX-License-Identifier: Apache-2.0

package facts

import "embed"

// Source has the types that the API shows as they are. Their comments describe them in its document.
//
//go:embed facts.go shape.go
var Source embed.FS
