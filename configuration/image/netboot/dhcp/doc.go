// SPDX-License-Identifier: Apache-2.0

// Package dhcp serves DHCP for IPv4 on one network interface. What a machine gets is decided by its caller.
package dhcp
