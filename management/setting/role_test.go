// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/policy"
)

// TestRoles reads rules with roles. A wrong one is refused with the key and the reason.
func TestRoles(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name, rule string
		want       string // part of the error; empty: none
	}{
		{"three masters, then workers", `{match: rack, roles: [
			{group: service-master, count: 3, spread: rack, replace_after: 30m}, {group: service-worker}]}`, ""},
		{"an even count", "{match: rack, roles: [{group: service-master, count: 4, replace_after: 30m}]}", ""},
		{"a maximum of all", "{match: rack, maximum: 9, roles: [{group: service-master, count: 3}]}", ""},
		{"group and roles", "{match: rack, group: service-worker, roles: [{group: service-master, count: 3}]}",
			"group and roles exclude each other"},
		{"neither", "{match: rack, maximum: 3}", "group is empty"},
		{"no roles", "{match: rack, maximum: 3, roles: []}", "group is empty"},
		{"a group without a maximum", "{match: rack, group: service-worker}", "maximum: 0 is not within 1 and 10000"},
		{"an unknown group", "{match: rack, roles: [{group: storage, count: 3}]}",
			`roles[0].group: there is no group "storage"`},
		{"no count before the last", "{match: rack, roles: [{group: service-master}, {group: service-worker}]}",
			"roles[0].count is missing: only the last role may leave it out"},
		{"a count of 0", "{match: rack, roles: [{group: service-master, count: 0}]}",
			"roles[0].count: 0 is not within 1 and 10000"},
		{"a negative count", "{match: rack, roles: [{group: service-master, count: -3}]}",
			"roles[0].count: -3 is not within 1 and 10000"},
		{"the same group twice", `{match: rack, roles: [
			{group: service-master, count: 3}, {group: service-worker, count: 1}, {group: service-master}]}`,
			"roles[2].group: service-master is there twice"},
		{"spread over a field", "{match: rack, roles: [{group: service-master, count: 3, spread: addr}]}",
			`roles[0].spread: "addr" is a field of every node`},
		{"spread over no key", "{match: rack, roles: [{group: service-master, count: 3, spread: the rack}]}",
			`roles[0].spread: "the rack" cannot be the key of a label`},
		{"replaced at once", "{match: rack, roles: [{group: service-master, count: 3, replace_after: 10s}]}",
			"roles[0].replace_after: 10s is not within 1m and 720h"},
		{"replaced without a count", "{match: rack, roles: [{group: service-master, replace_after: 1h}]}",
			"roles[0].replace_after needs a count"},
		{"fenced by power", `{match: rack, roles: [
			{group: service-master, count: 3, replace_after: 1h, fence: power}]}`, ""},
		{"fenced by nothing known", `{match: rack, roles: [
			{group: service-master, count: 3, replace_after: 1h, fence: storage}]}`,
			`roles[0].fence: "storage" is not power`},
		{"fenced, and never replaced", "{match: rack, roles: [{group: service-master, count: 3, fence: power}]}",
			"roles[0].fence needs replace_after"},
		{"workers first", `{match: rack, roles: [
			{group: service-worker, count: 3}, {group: service-master, count: 3}]}`,
			"roles[0].group: service-worker requires a group that comes after it"},
		{"workers alone", "{match: rack, roles: [{group: service-worker, count: 3}]}", ""},
	} {
		var r CommissionRule
		if err := yaml.Unmarshal([]byte(c.rule), &r); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}

		err := r.check("site", inventory.DefaultGroups())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestRolesOfPolicy: the roles as the policy has them.
func TestRolesOfPolicy(t *testing.T) {
	t.Parallel()

	three := 3
	c := Config{Groups: inventory.DefaultGroups()}
	c.Policies.Commission = map[string]CommissionRule{"site": {Match: "rack", Roles: []RoleRule{
		{Group: "service-master", Count: &three, Spread: "rack", ReplaceAfter: new(Duration(30 * time.Minute)),
			Fence: policy.FencePower},
		{Group: "service-worker"},
	}}}

	rules := c.commissionRules()
	if len(rules) != 1 || len(rules[0].Roles) != 2 || rules[0].Group != "" || rules[0].Quiet != defaultQuiet {
		t.Fatalf("%+v", rules)
	}

	want := policy.Role{
		Group: "service-master", Count: 3, Spread: "rack", ReplaceAfter: 30 * time.Minute, Fence: policy.FencePower,
	}
	if got := rules[0].Roles; got[0] != want || got[1] != (policy.Role{Group: "service-worker", Rest: true}) {
		t.Errorf("%+v", got)
	}
}
