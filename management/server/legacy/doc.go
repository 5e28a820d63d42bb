// SPDX-License-Identifier: Apache-2.0

// Package legacy serves the REST contract of the first generation: no version
// prefix, 200 for every success, and 500 with the reason as text for every
// failure. It is a facade: it parses a request, calls the use cases of /v1, and
// formats the answer. The contract must not change.
package legacy
