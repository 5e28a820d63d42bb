// SPDX-License-Identifier: Apache-2.0

package job

import (
	"cmp"
	"slices"
	"strings"

	"github.com/contiv/cluster/configuration"
)

// InputsName returns the name of the inputs of a plan or a rollout, among those of jobs: the same code encrypts
// all, and a rotation of the key finds all. kind is the name of its kind of record.
func InputsName(kind, id string) string { return strings.TrimSuffix(kind, "s") + "-" + id }

// InputGroups returns the groups in which the job needs the variables of the target: first the one that it
// configures, or else the first that it cleans; "" if it is for no group.
func (j Job) InputGroups(t Target) []string {
	cleans := j.CleansOf(t)

	first := cmp.Or(t.Group, t.FromGroup)
	if first == "" && len(cleans) > 0 {
		first = cleans[0]
	}
	return append([]string{first}, slices.DeleteFunc(cleans, func(g string) bool { return g == first })...)
}

// Set sets the variables and the ssh parameters of a target in a group. Those of its first group come first.
func (in *Inputs) Set(name, group string, vars map[string]configuration.Var, c configuration.Connection) {
	first, set := in.Groups[name]

	switch {
	case !set:
		in.Groups = put(in.Groups, name, group)
		fallthrough
	case first == group:
		in.Vars = put(in.Vars, name, vars)
		in.Connections = put(in.Connections, name, c)
	default:
		in.CleanupVars = put(in.CleanupVars, group, put(in.CleanupVars[group], name, vars))
		in.CleanupConnections = put(in.CleanupConnections, group, put(in.CleanupConnections[group], name, c))
	}
}

func put[V any](m map[string]V, key string, v V) map[string]V {
	if m == nil {
		m = map[string]V{}
	}

	m[key] = v
	return m
}

// Of returns the variables and the ssh parameters of the target in the group. They are not known if the target
// was expected to have nothing to do with the group.
func (in Inputs) Of(t Target, group string) (
	vars map[string]configuration.Var, c configuration.Connection, known bool,
) {
	first, set := in.Groups[t.Name]
	if !set {
		first = cmp.Or(t.Group, t.FromGroup)
	}

	if group == first {
		vars, known = in.Vars[t.Name]
		return vars, in.Connections[t.Name], known
	}

	vars, known = in.CleanupVars[group][t.Name]

	return vars, in.CleanupConnections[group][t.Name], known
}

// EachVars calls visit with the variables of each target in each group.
func (in Inputs) EachVars(visit func(name string, vars map[string]configuration.Var)) {
	for name, vars := range in.Vars {
		visit(name, vars)
	}

	for _, hosts := range in.CleanupVars {
		for name, vars := range hosts {
			visit(name, vars)
		}
	}
}
