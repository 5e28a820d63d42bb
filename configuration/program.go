// SPDX-License-Identifier: Apache-2.0

package configuration

// Program is a static program that the manager sends to hosts and runs there.
type Program struct {
	// For returns the program, compressed by gzip, for the architecture as uname -m prints it.
	For func(arch string) ([]byte, error)
	// Arch is the architecture that is tried first.
	Arch string
	// Limit bounds the output, in bytes.
	Limit int
}
