// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/state"
)

// findings returns what a policy of the world has to say about a node.
func findings(p policy.Policy, w policy.World, n inventory.Node) []state.PolicyReason {
	return slices.DeleteFunc(policy.Explain(w, n), func(f state.PolicyReason) bool {
		if p == (policy.Returns{}) {
			return !f.Return
		}
		return !strings.HasPrefix(f.Message, "policy "+p.Name()+": ")
	})
}

// acts reports whether a judgement is to act on the node.
func acts(j policy.Judgement, node string) bool {
	return j.Stage == policy.StageAct && j.Node.Name == node
}
