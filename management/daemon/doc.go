// SPDX-License-Identifier: Apache-2.0

// Package daemon is the whole of clusterm as a library: New wires, Start
// serves, Reload takes a changed configuration file in, Stop ends everything in
// reverse order within a time budget, Run is all of it under a context. A test
// starts a daemon in its own process within a second.
package daemon
