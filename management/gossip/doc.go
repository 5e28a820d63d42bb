// SPDX-License-Identifier: Apache-2.0

// Package gossip is the manager's part in the gossip: the agent inside or an existing one, what hosts need to join it,
// and its key.
package gossip
