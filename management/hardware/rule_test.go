// SPDX-License-Identifier: Apache-2.0

package hardware_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/hardware"
	"github.com/contiv/cluster/management/record"
)

// TestCheck: a wrong rule is refused with its place, its name and the reason.
func TestCheck(t *testing.T) {
	t.Parallel()

	label := map[string]string{"size": "large"}

	for _, c := range []struct {
		rule hardware.Rule
		want string
	}{
		{hardware.Rule{Name: "a", When: "facts.memory_mb>1", Labels: label}, ""},
		{hardware.Rule{Name: "a", When: "rack=r1,!facts.bmc", Fail: "it has no BMC"}, ""},
		{hardware.Rule{Name: "A", When: "facts.memory_mb>1", Labels: label}, "rule 2 (A): the name"},
		{hardware.Rule{Name: "first", When: "facts.memory_mb>1", Labels: label}, "another rule has that name"},
		{hardware.Rule{Name: "a", Labels: label}, "rule 2 (a): when is empty"},
		{hardware.Rule{Name: "a", When: "rack=r1", Labels: label}, "when compares no fact"},
		{hardware.Rule{Name: "a", When: "facts.memory_mb>much", Labels: label}, `"much" is not a number`},
		{hardware.Rule{Name: "a", When: "facts.memory_mb>1,group=none", Labels: label}, `"none"`},
		{hardware.Rule{Name: "a", When: "facts.memory_mb>1,power=on", Labels: label}, "power is not in the record"},
		{hardware.Rule{Name: "a", When: "facts.memory_mb>1"}, "it does nothing"},
		{
			hardware.Rule{Name: "a", When: "facts.memory_mb>1", Labels: map[string]string{"status": "x"}},
			"field of every node",
		},
		{
			hardware.Rule{Name: "a", When: "facts.memory_mb>1", Labels: map[string]string{"size": "a b"}},
			"value of a label",
		},
		{hardware.Rule{Name: "a", When: "facts.memory_mb>1", Fail: "two\nlines"}, "fail: "},
		{hardware.Rule{Name: "a", When: "facts.memory_mb>1", Fail: strings.Repeat("x", 301)}, "301 bytes"},
	} {
		first := hardware.Rule{Name: "first", When: "facts.disks<1", Fail: "it has no disk"}

		err := hardware.Check([]hardware.Rule{first, c.rule}, inventory.DefaultGroups())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.rule, err, c.want)
		}
	}

	var many []hardware.Rule
	for i := range 51 {
		many = append(many, hardware.Rule{Name: fmt.Sprint("r", i), When: "facts.disks<1", Fail: "x"})
	}

	if err := hardware.Check(many, nil); err == nil || hardware.Check(many[:50], nil) != nil {
		t.Errorf("%d rules: %v", len(many), err)
	}
}

// TestJudge: what inspections have raised is theirs to end, what persons have raised is not, and a node without room
// for an alert fails with that reason.
func TestJudge(t *testing.T) {
	t.Parallel()

	now := time.Unix(1000, 0)
	site := hardware.Site{Rules: []hardware.Rule{{Name: "disk", When: "facts.disks<1", Fail: "it has no disk"}}}
	alert := func(source, actor string) inventory.Alert {
		a, err := inventory.NewAlert("x", source, nil, time.Time{}, actor, now)
		errtest.None(t, err)

		return a
	}

	n := inventory.Node{Name: "a-1", Status: inventory.Inspecting, Hardware: &inventory.Hardware{Disks: 1}}
	n.Alerts = []inventory.Alert{
		alert("rule gone", access.Manager), alert("rule disk", "ann"), alert("smartd", access.Manager),
	}

	v := site.Judge(record.View{}, n, facts.Facts{}, "7", now)
	if len(v.Node.Alerts) != 2 || v.Node.Alerts[0].Actor != "ann" || v.Failure != nil || len(v.Entries) != 1 ||
		v.Entries[0].Job != "7" || len(n.Alerts) != 3 {
		t.Errorf("%+v", v)
	}

	n.Hardware, n.Alerts = &inventory.Hardware{}, nil
	for i := range inventory.MaxAlerts {
		n.Alerts = append(n.Alerts, alert(fmt.Sprint(i), "ann"))
	}

	v = site.Judge(record.View{}, n, facts.Facts{}, "7", now)
	if len(v.Node.Alerts) != 8 || v.Failure == nil || !strings.Contains(v.Failure.Error(), "it has no disk") ||
		!strings.Contains(v.Failure.Error(), "a-1 has 8 alerts") {
		t.Errorf("%+v", v)
	}
}
