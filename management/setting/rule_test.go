// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
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
	errtest.None(t, err)
	got := c.upgradeRules()
	if len(got) != 2 || got[0].Name != "every" || !got[0].All || got[0].Settle != time.Hour ||
		got[0].Spec.Action != inventory.VerbReapply || got[0].Mode != policy.UpgradeRun {
		t.Fatalf("%+v", got)
	}

	s := got[1].Spec
	bounds := s.MaxUnavailable == "10%" && s.Canary == 2 && s.Promote && s.MaxFailures == 3 &&
		s.Soak == 5*time.Minute && s.Order.Label == "rack" && *s.Strategies["service-worker"].Soak == time.Minute
	jobs := s.Action == inventory.VerbApply && s.Gate.SkipVerify && s.Gate.HTTP.Port == 80 &&
		s.Tags[0] == "app" && s.Timeout == 10*time.Minute

	if !bounds || !jobs || got[1].Settle != time.Minute || got[1].Mode != policy.UpgradePlan {
		t.Errorf("%+v", got[1])
	}
}

// TestZero: zero is zero where that means something, and leaves nothing to a default.
func TestZero(t *testing.T) {
	t.Parallel()

	c, err := rules(t, `  commission: {c: {all: true, group: service-worker, maximum: 1, quiet: 0s}}
  upgrade: {u: {all: true, mode: plan, settle: 0s}}
  verify: {v: {all: true, cron: 0 3 * * *, spread: 0s}, w: {all: true, cron: 0 3 * * *}}
`)
	errtest.None(t, err)
	verify := c.verifyRules()
	if quiet, settle := c.commissionRules()[0].Quiet, c.upgradeRules()[0].Settle; quiet != 0 || settle != 0 ||
		verify[0].Spread == nil || *verify[0].Spread != 0 || verify[1].Spread != nil {
		t.Errorf("quiet %s, settle %s, %+v", quiet, settle, verify)
	}
}

// TestSilentValues: values that the decoder would drop or change are refused, in a file and at run time,
// with their path, and change nothing.
func TestSilentValues(t *testing.T) {
	t.Parallel()

	const mail = `"events": ["drift"], "mail": {"relay": "r:25", "from": "a@example.com", "to": `

	for _, c := range []struct{ key, value, want string }{
		{"policies.commission", `{"f": {"all": true, "roles": [{"group": "service-master", "count": 1}, null]}}`,
			"policies.commission.f.roles[1] is null"},
		{"policies.commission", `{"f": null}`, "policies.commission.f is null"},
		{"policies.commission", `{"f": {"all": true, "group": "service-worker", "maximum": 5.5}}`,
			"policies.commission.f.maximum: 5.5 is not a whole number"},
		{"policies.commission", `{"f": {"all": true, "group": "service-worker", "maximum": 5, "quiet": null}}`,
			"policies.commission.f.quiet is null"},
		{"policies.commission", `{"f": {"all": true, "group": "service-worker", "maximum": 5, "rate": 0}}`,
			"rate: 0 is not within 1 and 100"},
		{"policies.commission", `{"f": {"all": true, "group": "service-worker", "maximum": 5, "failures": 0}}`,
			"failures: 0 is not within 1 and 100"},
		{"policies.commission", `{"f": {"all": true, "roles": [{"group": "service-master", "count": 1,
			"replace_after": "0s"}]}}`, "replace_after: 0s is not within 1m"},
		{"policies.commission", `{"f": {"all": "true", "group": "service-worker", "maximum": 5}}`,
			"is not true or false"},
		{"policies.commission", `{"f": {"all": true, "group": "service-worker", "maximum": "5"}}`,
			"not a whole number"},
		{"policies.upgrade", `{"f": {"all": true, "mode": "plan", "tags": [null]}}`,
			"policies.upgrade.f.tags[0] is null"},
		{"policies.upgrade", `{"f": {"all": true, "mode": "plan", "gate": null}}`, "policies.upgrade.f.gate is null"},
		{"policies.upgrade", `{"f": {"all": true, "mode": "plan", "strategies": {"service-worker": null}}}`,
			"policies.upgrade.f.strategies.service-worker is null"},
		{"policies.upgrade", `{"f": {"all": true, "mode": "plan", "timeout": "0s"}}`,
			"timeout: 0s is no time for a job"},
		{"policies.upgrade", `{"f": {"all": true, "mode": "plan", "gate": {"http": {"port": 80, "timeout": "0s"}}}}`,
			"gate.http.timeout: 0s is no time for an answer"},
		{"policies.verify", `{"f": {"all": true, "cron": "0 3 * * *", "jobs": 0}}`, "jobs: 0 is not within 1 and 100"},
		{"policies.verify", `{"f": {"all": true, "cron": "0 3 * * *", "batch": 0}}`,
			"batch: 0 is not within 1 and 100"},
		{"policies.rate", `2.5`, "policies.rate: 2.5 is not a whole number"},
		{"windows", `[null]`, "windows[0] is null"},
		{"windows", `[{"name": "w", "cron": "0 3 * * *", "duration": "1h", "groups": ["service-worker", null]}]`,
			"windows[0].groups[1] is null"},
		{"groups", `[{"name": "g"}, null]`, "groups[1] is null"},
		{"groups", `[{"name": "g", "requires": {"service-master": null}}]`,
			"groups[0].requires.service-master is null"},
		{"groups", `[{"name": "g", "budget": {"min_available": 1.5}}]`,
			"groups[0].budget.min_available: 1.5 is not a whole number"},
		{"groups", `[{"name": "g", "strategy": {"max_failures": null}}]`, "groups[0].strategy.max_failures is null"},
		{"notifications", `[null]`, "notifications[0] is null"},
		{"notifications", `[{"name": "n", "events": ["drift", null], "url": "https://192.0.2.1/"}]`,
			"notifications[0].events[1] is null"},
		{"notifications", `[{"name": "n", ` + mail + `["a@example.com", null]}}]`,
			"notifications[0].mail.to[1] is null"},
	} {
		section, key, nested := strings.Cut(c.key, ".")

		text := c.key + ": " + c.value
		if nested {
			text = section + ": {" + key + ": " + c.value + "}"
		}
		if _, err := Load(write(t, text), acceptAll{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s in a file: %v, want %s", text, err, c.want)
		}

		if isFileKey(c.key) {
			continue
		}

		var value any

		dec := json.NewDecoder(strings.NewReader(c.value))
		dec.UseNumber()

		errtest.None(t, dec.Decode(&value))

		if _, err := overlaid(Default(), map[string]any{c.key: value}); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s at run time: %v, want %s", text, err, c.want)
		}
	}

	if _, err := overlaid(
		Default(),
		map[string]any{"windows": nil, "policies.rate": json.Number("16.0"), "vars": map[string]any{"a": []any{nil}}},
	); err != nil {
		t.Error(err)
	}
}

// TestBadRules: each is refused with its key, and with what is wrong.
func TestBadRules(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ section, want string }{
		{"upgrade: {Follow: {all: true, mode: plan}}", "policies.upgrade.Follow: the name of a policy has"},
		{"upgrade: {returns: {all: true, mode: plan}}", "policies.upgrade.returns: the name belongs to the manager"},
		{"upgrade: {a: {all: true, mode: plan}, b: {all: true, mode: upgrade}}",
			"policies.upgrade.b: policies.upgrade.a is for the same nodes, and comes first by name"},
		{`upgrade: {a: {match: "x=y, a=b", mode: plan}, b: {match: " x=y,  a=b", mode: upgrade}}`,
			"policies.upgrade.b: policies.upgrade.a is for the same nodes"},
		{"upgrade: {f: {mode: plan}}", "policies.upgrade.f: match is empty"},
		{"upgrade: {f: {match: a=b, all: true, mode: plan}}", "match and all exclude each other"},
		{`upgrade: {f: {match: "a in (", mode: plan}}`, "policies.upgrade.f: match: "},
		{"upgrade: {f: {match: outdated=true, mode: plan}}", "outdated is not in the record of a node"},
		{"upgrade: {f: {all: true}}", "policies.upgrade.f: mode is missing; write plan or upgrade"},
		{"upgrade: {f: {all: true, mode: run}}", `policies.upgrade.f: mode is "run"; write plan or upgrade`},
		{"upgrade: {f: {all: true, mode: plan, action: commission}}",
			`action is "commission"; write apply, update or reapply`},
		{"upgrade: {f: {all: true, mode: plan, settle: 1000h}}", "settle: 1000h is not within"},
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
		{"verify: {f: {all: true, cron: 0 3 * * *, spread: 13h}}", "spread: 13h is longer than half of 24h"},
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
