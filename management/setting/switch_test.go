// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/state"
)

// TestSwitchIsForOnePolicy: what an operator turned on is a policy of a kind for some nodes.
// Under the same name, another one is off until they turn that on.
func TestSwitchIsForOnePolicy(t *testing.T) {
	t.Parallel()

	const enabled = "commission: {workers: {match: rack=r1, group: service-worker, maximum: 3}}"

	at := func(section string) policy.Policy {
		t.Helper()

		c, err := rules(t, "  "+section+"\n")
		errtest.None(t, err)
		p := policy.Named(policy.Settings{
			Commission: c.commissionRules(), Upgrade: c.upgradeRules(), Verify: c.verifyRules(),
		}, "workers")
		if p == nil {
			t.Fatalf("no policy in %s", section)
		}
		return p
	}

	a := state.Automation{}.Turn("workers",
		policy.Scoped(state.Switch{On: true, Since: time.Unix(1, 0), Actor: "ann"}, at(enabled)))

	for _, c := range []struct{ section, off string }{
		{enabled, ""},
		{"commission: {workers: {match: rack=r1, group: service-worker, maximum: 9, rate: 2}}", ""},
		{"commission: {workers: {match: rack=r2, group: service-worker, maximum: 3}}", "for rack=r2 now"},
		{"commission: {workers: {all: true, group: service-worker, maximum: 3}}", "for all now"},
		{"upgrade: {workers: {match: rack=r1, mode: upgrade}}", "it is policies.upgrade for rack=r1 now"},
		{"verify: {workers: {all: true, cron: 0 3 * * *}}", "it is policies.verify for all now"},
	} {
		p := at(c.section)

		if on := policy.IsOn(a, p); on != (c.off == "") {
			t.Errorf("%s: on is %t", c.section, on)
		}

		why := policy.Halted(a, p)
		if (why == "") != (c.off == "") || !strings.Contains(why, c.off) {
			t.Errorf("%s: %q", c.section, why)
		}

		began := "ann turned it on on 1970-01-01 00:00:01 UTC as policies.commission for rack=r1"
		if c.off != "" && !strings.HasPrefix(why, began) {
			t.Errorf("%s: %q", c.section, why)
		}
	}
}
