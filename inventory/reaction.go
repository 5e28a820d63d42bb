// SPDX-License-Identifier: Apache-2.0

package inventory

import "slices"

// Reaction is what happens to a node in service that disappeared and appears again.
type Reaction string

// The reactions, from the weakest to the strongest.
const (
	ReactionRecord          Reaction = "record"            // nothing: only the state changes
	ReactionVerify          Reaction = "verify"            // verify it
	ReactionVerifyAndRepair Reaction = "verify-and-repair" // verify it, and configure it again if it has drifted
	ReactionRepair          Reaction = "repair"            // clean it, and configure it for its group

	// DefaultReaction is that of a group without one.
	DefaultReaction = ReactionVerify
)

// Reactions lists every reaction.
var Reactions = []Reaction{ReactionRecord, ReactionVerify, ReactionVerifyAndRepair, ReactionRepair}

// Check returns an error of KindInvalid unless the reaction is empty or one of Reactions.
func (r Reaction) Check() error {
	if r != "" && !slices.Contains(Reactions, r) {
		return Errorf(KindInvalid, "%q is no reaction", string(r)).Do("write %s", Choices(Reactions))
	}
	return nil
}

// Reaction returns the reaction to the return of a node of the group.
func (gs Groups) Reaction(group string) Reaction {
	for _, g := range gs {
		if g.Name == group && g.OnReturn != "" {
			return g.OnReturn
		}
	}

	return DefaultReaction
}
