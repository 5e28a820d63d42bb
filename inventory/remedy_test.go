// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"testing"
)

// TestActions expects each name once, with a meaning.
func TestActions(t *testing.T) {
	seen := map[ActionName]bool{}
	for _, row := range Actions {
		if row.Name == "" || row.Meaning == "" || seen[row.Name] {
			t.Errorf("the row %+v is incomplete or duplicate", row)
		}

		seen[row.Name] = true
	}

	// A constructor without a row would make an action that no client renders.
	for _, a := range []Action{
		ListNodes(), Submit(VerbClear, "a"), Discover("10.0.0.1"), ForgetNodes("a"), TrustHostKey("a"),
		SetConnection("a"), ListJobs(), ShowJob("5"), WaitForJob("5"), ExplainJob("5"), ReadLog("5"), FollowLog("5"),
		CancelJob("5"), RetryJob("5", true), ShowSettings("jobs"), SetSetting("jobs.timeout", "2h"), ShowHealth(),
		ShowVersion(),
	} {
		if !seen[a.Name] {
			t.Errorf("%s has no row", a)
		}
	}
}

func TestMergeActions(t *testing.T) {
	for _, c := range []struct {
		name          string
		first, second []Action
		want          string
	}{
		{"equal", []Action{CancelJob("5")}, []Action{CancelJob("5")}, "[cancel-job job=5]"},
		{"other jobs", []Action{CancelJob("5")}, []Action{CancelJob("6")}, "[cancel-job job=5 cancel-job job=6]"},
		{
			"nodes",
			[]Action{Submit(VerbClear, "a", "b")},
			[]Action{Submit(VerbClear, "b", "c")},
			"[submit verb=clear nodes=a,b,c]",
		},
		{"addresses", []Action{Discover("a")}, []Action{Discover("b")}, "[submit verb=discover addrs=a,b]"},
		{
			"other groups",
			[]Action{Submit(VerbUpdate, "a").Joining("x")},
			[]Action{Submit(VerbUpdate, "b").Joining("y")},
			"[submit verb=update nodes=a group=x submit verb=update nodes=b group=y]",
		},
		{
			"nodes that the operator names",
			[]Action{ForgetNodes()},
			[]Action{ForgetNodes("a")},
			"[forget-nodes forget-nodes nodes=a]",
		},
		{
			"requests on a single node",
			[]Action{TrustHostKey("a"), TrustHostKey("b")},
			[]Action{TrustHostKey("b")},
			"[trust-host-key nodes=a trust-host-key nodes=b]",
		},
	} {
		before := fmt.Sprint(c.first)

		if got := fmt.Sprint(MergeActions(c.first, c.second)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}

		if after := fmt.Sprint(c.first); after != before {
			t.Errorf("%s: the argument changed from %s to %s", c.name, before, after)
		}
	}
}
