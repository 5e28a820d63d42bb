// SPDX-License-Identifier: Apache-2.0

// Command bench measures clusterm against what it is built on: each row of its
// table compares a figure of the product with one of a baseline that was taken
// in the same run, on the same machine, turn by turn. `make bench` runs it;
// docs/benchmarks.md says what the rows mean.
//
// The product is the built binary, started as a process with a folder of its
// own, fsync on. A row is the median over its rounds. A row that misses its floor is
// measured once more, both results are printed, and the second one counts.
package main
