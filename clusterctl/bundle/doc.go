// SPDX-License-Identifier: Apache-2.0

// Package bundle collects diagnostics for a problem report in a .tar.gz file.
//
// The values of variables are never collected, and everything that looks like a
// secret is redacted. A file that cannot be collected is left out and listed: a
// bundle of a broken cluster is worth more than an error.
package bundle
