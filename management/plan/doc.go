// SPDX-License-Identifier: Apache-2.0

// Package plan previews a job: as it would be accepted now, with everything that its
// effect depends on. A plan is stored and expires. Applying it
// does exactly that, or refuses, because Compare finds that something has changed.
// The package stores nothing and knows no clock.
package plan
