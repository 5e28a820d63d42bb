// SPDX-License-Identifier: Apache-2.0

// Package instance lets further instances join the manager, and leave it. Each one has an etcd inside, which becomes a
// member of one cluster: a learner first, that the leader promotes when an odd number of members can be kept. Package
// joining is the other side.
package instance
