// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/rand"
	"encoding/hex"
	"regexp"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// An id is the beginning of the manager's identity, and a random part.
const (
	managerPart = 8 // characters
	randomPart  = 4 // bytes
)

var ids = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{8}$`)

// NewID returns the id of a new plan of the manager.
func NewID(manager string) string {
	var random [randomPart]byte
	_, _ = rand.Read(random[:]) // it never fails
	return part(manager) + "-" + hex.EncodeToString(random[:])
}

// CheckID refuses an id that is none, and one of another manager.
func CheckID(id, manager string) error {
	if !ids.MatchString(id) {
		return inventory.Errorf(inventory.KindNotFound, "%q is not the id of a plan", inventory.Shorten(id, 100)).
			Do("list the plans").With(inventory.ListPlans())
	}

	if maker, _, _ := strings.Cut(id, "-"); maker != part(manager) {
		return inventory.Errorf(inventory.KindRefused,
			"plan %s is of another manager: this one makes plans that begin with %s", id, part(manager)).
			Do("apply it where it was made, or make a new plan here").With(inventory.ListPlans())
	}

	return nil
}

// part returns the beginning of a manager's identity.
func part(manager string) string { return manager[:min(len(manager), managerPart)] }
