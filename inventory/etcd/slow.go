// SPDX-License-Identifier: Apache-2.0

//go:build !race

package etcd

// slowness multiplies the deadlines of single requests. It differs under the race detector.
const slowness = 1
