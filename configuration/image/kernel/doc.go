// SPDX-License-Identifier: Apache-2.0

// Package kernel makes the kernel and the initrd of an environment out of a Debian package of a kernel. It trusts
// nothing of such a package, and has no files of its own: it reads from, and writes to, what its caller gives.
package kernel
