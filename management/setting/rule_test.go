// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/policy"
)

// rules returns the configuration of a file with a section of policies.
func rules(t *testing.T, section string) (Config, error) {
	t.Helper()

	f, err := Load(write(t, "policies:\n"+section), acceptAll{})

	return f.Config, err
}

// TestUpgradeRules: a rule has the names and the checks of a request for a rollout.
func TestUpgradeRules(t *testing.T) {
	t.Parallel()

	c, err := rules(t, `  upgrade:
    follow: {match: "label=host", mode: plan, max_unavailable: 10%, canary: 2, promote: true, max_failures: 3,
      soak: 5m, order: {by: label, label: rack}, strategies: {service-worker: {max_unavailable: "2", soak: 1m}},
      gate: {skip_verify: true, http: {port: 80, path: /health}}, tags: [app], timeout: 10m}
    every: {all: true, mode: upgrade, action: reapply, settle: 1h}
`)
	if err != nil {
		t.Fatal(err)
	}

	got := c.upgradeRules()
	if len(got) != 2 || got[0].Name != "every" || !got[0].All || got[0].Settle != time.Hour ||
		got[0].Spec.Action != inventory.VerbReapply || got[0].Mode != policy.UpgradeRun {
		t.Fatalf("%+v", got)
	}

	s := got[1].Spec
	bounds := s.MaxUnavailable == "10%" && s.Canary == 2 && s.Promote && s.MaxFailures == 3 &&
		s.Soak == 5*time.Minute && s.Order.Label == "rack" && *s.Strategies["service-worker"].Soak == time.Minute
	jobs := s.Action == inventory.VerbApply && s.Gate.SkipVerify && s.Gate.HTTP.Port == 80 &&
		s.Ansible.Tags[0] == "app" && s.Timeout == 10*time.Minute

	if !bounds || !jobs || got[1].Settle != time.Minute || got[1].Mode != policy.UpgradePlan {
		t.Errorf("%+v", got[1])
	}
}

// TestBadRules: each is refused with its key, and with what is wrong.
func TestBadRules(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ section, want string }{
		{"upgrade: {Follow: {all: true, mode: plan}}", "policies.upgrade.Follow: the name of a policy has"},
		{"upgrade: {returns: {all: true, mode: plan}}", "policies.upgrade.returns: the name belongs to the manager"},
		{"upgrade: {f: {mode: plan}}", "policies.upgrade.f: match is empty"},
		{"upgrade: {f: {match: a=b, all: true, mode: plan}}", "match and all exclude each other"},
		{`upgrade: {f: {match: "a in (", mode: plan}}`, "policies.upgrade.f: match: "},
		{"upgrade: {f: {match: outdated=true, mode: plan}}", "outdated is not in the record of a node"},
		{"upgrade: {f: {all: true}}", `policies.upgrade.f: mode: "" is not one of [plan upgrade]`},
		{"upgrade: {f: {all: true, mode: plan, action: commission}}", `action: "commission" is not one of`},
		{"upgrade: {f: {all: true, mode: plan, settle: 1000h}}", "settle: 1000h0m0s is not within"},
		{"upgrade: {f: {all: true, mode: plan, max_unavailable: 0%}}", "policies.upgrade.f: max_unavailable"},
		{"upgrade: {f: {all: true, mode: plan, canary: -1}}", "the canary has -1 nodes"},
		{"upgrade: {f: {all: true, mode: plan, promote: true}}", "is to be promoted after its canary, and has none"},
		{"upgrade: {f: {all: true, mode: plan, soak: 1000h}}", "the soak time is 1000h"},
		{"upgrade: {f: {all: true, mode: plan, order: {by: rack}}}", `nodes cannot be ordered by "rack"`},
		{"upgrade: {f: {all: true, mode: plan, strategies: {nope: {}}}}", "nope"},
		{"upgrade: {f: {all: true, mode: plan, gate: {http: {port: 0}}}}", "the port of the HTTP check is 0"},
		{"upgrade: {f: {all: true, mode: plan, tags: [\"-x\"]}}", "policies.upgrade.f: "},
		{"upgrade: {f: {all: true, mode: plan, when: now}}", "when"},
		{"verify: {f: {cron: 0 3 * * *}}", "policies.verify.f: match is empty"},
		{`verify: {f: {match: "rack in (r1", cron: 0 3 * * *}}`, "policies.verify.f: match: "},
		{"verify: {f: {all: true}}", `policies.verify.f: cron: "" is not a cron expression`},
		{"verify: {f: {all: true, cron: 0 3 30 2 *}}", `cron: "0 3 30 2 *" never comes: no year has such a day`},
		{"verify: {f: {all: true, cron: 0 3 * * 9}}", "5, the day of the week"},
		{"verify: {f: {all: true, cron: 0 3 * * *, time_zone: Mars/Base}}",
			`time_zone: "Mars/Base" is not in the IANA`},
		{"verify: {f: {all: true, cron: 0 3 * * *, spread: 13h}}", "spread: 13h0m0s is longer than half of 24h"},
		{"verify: {f: {all: true, cron: 0 3 * * *, batch: 101}}", "batch: 101 is not within 1 and 100"},
		{"verify: {f: {all: true, cron: 0 3 * * *, jobs: -1}}", "jobs: -1 is not within"},
		{"upgrade: {f: {all: true, mode: plan}}\n  verify: {f: {all: true, cron: 0 3 * * *}}",
			"policies.verify.f: policies.upgrade has a policy of that name"},
		{"commission: {f: {all: true, group: service-worker, maximum: 1}}\n  upgrade: {f: {all: true, mode: plan}}",
			"policies.upgrade.f: policies.commission has a policy of that name"},
	} {
		_, err := rules(t, "  "+c.section+"\n")
		checkError(t, err, inventory.KindInvalid)

		if err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.section, err, c.want)
		}
	}
}
