// SPDX-License-Identifier: Apache-2.0

// Package clusterctl is the command line of the cluster manager: noun, then verb,
// with one file per noun. It uses the manager through its API client only.
//
// The rooms below it do not depend on the command line library:
//
//   - exit: exit codes, and errors with a remedy
//   - print: tables, fields, JSON and YAML
//   - follow: the progress of a job, its output, and watches
//   - bundle: the support bundle and its redaction
//
// The rules of the command line:
//
//   - stdout carries the requested answer only; progress, warnings and errors go
//     to stderr. `-o json` is the wire object, and only ever grows.
//   - Options are accepted before and after positional arguments, until `--`.
//   - A verb that starts a job waits for it. Ctrl-C detaches and never cancels: a
//     terminal that closes must not disturb a job of the manager.
//   - The manager validates. clusterctl does not repeat its checks, and prints a
//     refusal in the manager's words.
//   - Every failure has an exit code listed in package exit.
package clusterctl
