// SPDX-License-Identifier: Apache-2.0

// Package fleet compares a fleet file with a manager, plans the steps from one to the
// other and carries them out.
//
// A fleet file describes groups, variables, connections, labels, settings and which
// node is in which group. Read reads it with the position of every value, Load reads
// the manager, and both become cells: single values with an address. Compare is pure
// and returns the plan, Export the file of a manager. Run carries a plan out with a
// precondition on every step: a cell that somebody else changed since the plan was
// made is refused, by name.
package fleet
