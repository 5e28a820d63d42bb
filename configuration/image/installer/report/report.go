// SPDX-License-Identifier: Apache-2.0

// Package report is how the boot environment reports to the manager that had the machine booted.
//
// The order of the environment names a URL and a token. Each Message is sent as
//
//	POST URL
//	Authorization: Bearer TOKEN
//	Content-Type: application/json
//
// and the answer to it is the status 200 with an Answer, in at most MaxAnswer bytes. Its Then is what the environment
// does next:
//
//	continue  its work; at the end of that, what it does without a manager
//	wait      nothing, so that a person can use the console
//	off       it powers the machine off
//	restart   it restarts the machine
//
// The environment first reports started, as soon as its network is up. After that come the facts, or a problem instead
// of them. Without a network it reports nothing, and says so at the console.
//
// If the order has an image to install, the stages are
//
//	started, facts or problem, writing, writing, …, installed or failed
//
// The first writing names the disk, which is untouched until that is answered by continue. Further ones tell the
// progress every few seconds. Each of these is sent once: the machine writes on, whether it arrives or not, and
// whatever the answer is, but for a status of Final, which ends the writing. The answer to installed and to failed is
// what the machine does next, where continue means wait. A disk whose writing has ended early does not boot: its first
// sectors are zero until everything else is on it. The image is fetched with the same token, and without ranges.
//
// A status of Final means that the manager does not want the machine any more. The environment says so at the console,
// and restarts after some minutes. Everything else, also a redirect, is a failure: it sends the same message again, for
// at most 15 minutes. A message whose answer was lost arrives more than once: answer each like the first.
package report

import (
	"net/http"

	"github.com/contiv/cluster/inventory/facts"
)

// The bounds of a message and of an answer, in bytes.
const (
	MaxMessage = 1 << 20
	MaxAnswer  = 64 << 10
)

// The stages.
const (
	Started = "started" // the environment runs, and its network is up
	Facts   = "facts"   // Message.Facts are those of the machine
	Problem = "problem" // there are no facts: Message.Message says why

	Writing   = "writing"   // the image is written to Message.Disk, or will be with the answer
	Installed = "installed" // the disk has the image and the seed
	// Failed means that nothing is installed. Message.Message says why, and whether the disk was touched: then nothing
	// on it boots.
	Failed = "failed"
)

// What the environment does after an answer.
const (
	Continue = "continue"
	Wait     = "wait"
	Off      = "off"
	Restart  = "restart"
)

// Message is what the environment sends. Whoever controls the machine controls it, so it is untrusted.
type Message struct {
	Stage    string       `json:"stage"`
	Message  string       `json:"message,omitempty"`  // what failed
	Facts    *facts.Facts `json:"facts,omitempty"`    // of the machine
	Problems []string     `json:"problems,omitempty"` // so far, which did not end the work

	Disk    string `json:"disk,omitempty"`    // the disk in words, with writing, installed and failed; empty: none yet
	Written int64  `json:"written,omitempty"` // bytes of the content of the image that are on the disk
	Total   int64  `json:"total,omitempty"`   // bytes of the content of the image
}

// Answer is what the manager answers.
type Answer struct {
	Then string `json:"then"` // continue, wait, off or restart
}

// Final reports whether the status of an answer says that no further try will be taken.
func Final(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusGone:
		return true
	}
	return false
}
