// SPDX-License-Identifier: Apache-2.0

// Package clusterctl is the command line of the cluster manager: noun, then
// verb. It knows the daemon's API client and nothing behind it, but for the words
// of package inventory and the grammar of variables in package configuration.
//
// What it holds to:
//
//   - stdout carries what was asked for and nothing else; progress, warnings
//     and errors go to stderr. `-o json` is the wire object and only ever grows.
//   - Options are accepted before and after positional arguments, until `--`.
//   - A verb that starts a job waits for it. Ctrl-C detaches and never cancels:
//     the job belongs to the daemon, which a terminal that closes must not disturb.
//   - What the daemon checks is not checked here a second time: names, groups and
//     rules have one home, and a refusal is shown as the daemon words it.
//   - Every failure has an exit code of the table in exit.go.
package clusterctl
