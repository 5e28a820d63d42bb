// SPDX-License-Identifier: Apache-2.0

// Package setting holds the configuration of clusterm: its schema, its defaults,
// the file, and the overlay of keys that operators set at run time. The
// configuration in force is the file's with the overlay over it.
//
// A change takes effect as a whole or is refused with the reason. Everything
// that can fail is done before live state changes.
package setting
