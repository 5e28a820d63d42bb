// SPDX-License-Identifier: Apache-2.0

// Package daemon is clusterm as a library: New reads the configuration, Start
// wires the use cases to their adapters and serves the API, Reload applies a
// changed file, Stop ends everything in reverse order within a time budget, and
// Run combines them under a context. It also reports health and metrics. A test
// starts a daemon in its own process within a second.
package daemon
