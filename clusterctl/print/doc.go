// SPDX-License-Identifier: Apache-2.0

// Package print renders the manager's answers: tables with selectable columns,
// blocks of fields, JSON, YAML and plain names.
//
// Tables and details are columns of a type of the API, named by the tags of its fields:
// see ColumnsOf. Code of a noun is only what takes more than one field.
//
// Text from nodes and playbooks is untrusted. Everything printed for people
// passes through Text, Inline or Line, which remove terminal control sequences.
// JSON and YAML carry the wire object unchanged.
package print
