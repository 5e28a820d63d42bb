// SPDX-License-Identifier: Apache-2.0

// Package configuration decides what a playbook run is given: which hosts, in
// which roles, with which variables, reached how. It merges variables, renders
// the Ansible inventory and the request's variables file as documents, and
// reads the events a run reports. It is pure: no files, no processes, no clock.
//
// One rule runs through it: a string that came through the API, from a node or
// from the network is data. It is written with the tag !unsafe, so Ansible
// never evaluates a template in it on the controller.
package configuration
