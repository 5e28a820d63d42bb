// SPDX-License-Identifier: Apache-2.0

// Package configuration prepares the input of a playbook run and interprets its
// output. It merges variables, renders the Ansible inventory and the request's
// variables as YAML, and parses the events of a run. It is pure: it uses no
// files, no processes and no clock.
//
// A string from the API, from a node or from the network is data. It is written
// with the tag !unsafe, so that Ansible never evaluates a template in it on the
// controller.
package configuration
