// SPDX-License-Identifier: Apache-2.0

// Package installer is what runs in the boot environment: a Linux kernel and an initrd, whose init is the program
// cmd/clusterm-boot. It loads the modules for the devices of the machine, brings up the network port that its order
// names, and prints the facts of the machine at the console. If the order names a manager, it reports there, and obeys
// the answers: see package report.
//
// The process of id 1 must not end, because the kernel would panic. So it only mounts, starts the program a second time
// as its child, and waits for orphans and for that child. If the child ends unexpectedly, the machine restarts.
package installer
