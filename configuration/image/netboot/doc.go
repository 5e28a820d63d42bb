// SPDX-License-Identifier: Apache-2.0

// Package netboot decides what a machine gets that asks the network, for its address at first. It reads and sends
// nothing: the folders below it speak the protocols.
package netboot
