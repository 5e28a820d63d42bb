// SPDX-License-Identifier: Apache-2.0

// Package tftp gives files to machines that boot from the network, by TFTP (RFC 1350) on one network interface, with
// the options blksize, tsize and timeout (RFC 2347 to 2349). It only gives: write requests are refused. Which files
// there are, and for whom, is decided by its caller.
//
// It is written here because a library had to be trusted with more than it can do. github.com/pin/tftp, with which the
// tests ask this server, opens the sockets of its transfers by itself: they are bound to no interface, nothing can end
// them while a machine is silent, and the option timeout is not known to it.
package tftp
