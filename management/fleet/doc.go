// SPDX-License-Identifier: Apache-2.0

// Package fleet compares fleet files with the manager, plans the steps from one to the
// other and carries out those that are no jobs.
//
// A fleet file describes groups, variables, connections, labels, settings and which
// node is in which group. Read reads it with the position of every value, a snapshot
// holds the view and the settings, and both become cells: single values with an address.
// Compare is pure and returns the plan, Export the file of a manager. Apply carries out
// one step, with a precondition on every cell: one that somebody else changed since the
// plan was made is refused, by name.
//
// Jobs last, so the caller submits them, one after the other, and keeps the plan: nothing
// of it is stored. A plan that was interrupted is made anew and has the steps that are left.
package fleet
