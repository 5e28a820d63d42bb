// SPDX-License-Identifier: Apache-2.0

// Command bench measures clusterm against its building blocks. Each row of its table
// compares a figure of the product with one of a baseline; both are taken in the same
// run, on the same machine, in turn. `make bench` runs it, and docs/benchmarks.md
// describes the rows.
//
// The product is the built binary, started as a process with its own directory and
// with fsync on. A row is the median over its rounds. A row that misses its floor is
// measured once more: both results are printed, and the second one counts.
package main
