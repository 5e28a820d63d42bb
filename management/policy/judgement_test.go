// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/policy"
)

// findings returns what a policy of the world has to say about a node.
func findings(p policy.Policy, w policy.World, n inventory.Node) []explain.Finding {
	return slices.DeleteFunc(policy.Explain(w, n), func(f explain.Finding) bool {
		if p == (policy.Returns{}) {
			return f.About != explain.AboutReturn
		}
		return !strings.HasPrefix(f.Message, "policy "+p.Name()+": ")
	})
}

// acts reports whether a judgement is to act on the node.
func acts(j policy.Judgement, node string) bool {
	return j.Stage == policy.StageAct && j.Node.Name == node
}
