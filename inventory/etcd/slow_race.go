// SPDX-License-Identifier: Apache-2.0

//go:build race

package etcd

// slowness multiplies the deadlines of single requests. The race detector, which only tests use, makes a store and
// its clients many times slower, and a crowded machine more so: what is late there is not stuck.
const slowness = 6
