// SPDX-License-Identifier: Apache-2.0

package state

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
)

// shownNodes are a scope that contains the nodes of these names.
type shownNodes []string

func (s shownNodes) Contains(n *inventory.Node) bool {
	return n != nil && strings.Contains(" "+strings.Join(s, " ")+" ", " "+n.Name+" ")
}

func (s shownNodes) ContainsTarget(_ job.Target, n *inventory.Node) bool { return s.Contains(n) }
func (shownNodes) OwnsGroup(string) bool                                 { return false }
func (shownNodes) CheckGroup(string) error                               { return nil }

// TestScopedText cuts the names of nodes outside of the scope from texts, whatever stands
// beside them, and cuts no other word.
func TestScopedText(t *testing.T) {
	t.Parallel()

	view := &View{}
	view.View = record.WithList(view.View, &Tombstones, &inventory.Tombstone{Name: "former-1"})
	for _, name := range []string{"a.b-1", "node-1", "node-1-2", "node-10", "web-1"} {
		view.PutNode(&inventory.Node{Name: name})
	}

	p := view.In(shownNodes{"node-1-2", "node-10"})

	for text, want := range map[string]string{
		"node-1":                       "X",
		"node-1 failed":                "X failed",
		"to node-1.":                   "to X.",
		"node-1.example.com":           "X.example.com",
		"www.node-1":                   "www.X",
		"my_node-1_old":                "my_X_old",
		"backup-node-1-log":            "backup-X-log",
		"a.b-1.node-1_web-1-former-1":  "X.X_X-X",
		"/etc/node-1.d/web-1.conf":     "/etc/X.d/X.conf",
		"node-1web-1":                  "node-1web-1",
		"node-10 node-1-2 node-19":     "node-10 node-1-2 node-19",
		"node-10.d/node-1-2_node-1-22": "node-10.d/node-1-2_X-22",
		"xnode-1 node-1x node-1é":      "xnode-1 node-1x Xé",
		"--node-1--":                   "--X--",
		"-":                            "-",
		"a - b":                        "a - b",
	} {
		if got := p.Text(text); got != strings.ReplaceAll(want, "X", HiddenNode) {
			t.Errorf("%q becomes %q", text, got)
		}
	}

	// A text may be hostile: it takes time in proportion to its length.
	long := strings.Repeat("a-", 1<<19) + "node-1"
	if got := p.Text(long); strings.Contains(got, "node-1") {
		t.Error("a name at the end of a long word is not cut")
	}
}

// TestScopedJob fills every text of a job with the name of a node outside of the scope, and
// finds it nowhere.
func TestScopedJob(t *testing.T) {
	t.Parallel()

	view := &View{}
	for _, name := range []string{"node-1", "web-1"} {
		view.PutNode(&inventory.Node{Name: name})
	}

	const said = "as web-1 says"

	whole := job.Job{
		ID:          "1",
		Targets:     []job.Target{{Name: "node-1"}},
		Helpers:     []string{"web-1"},
		Message:     said,
		Note:        said,
		JobOptions:  inventory.JobOptions{SharedOptions: inventory.SharedOptions{Reason: said}},
		Warnings:    []string{said},
		Differences: []string{said},
		Runs: []job.Run{{
			Message: said,
			Results: map[string]job.HostResult{
				"node-1": {Task: said, Message: said, Doubt: said}, "web-1": {Message: said},
			},
		}},
		Outcomes: map[string]inventory.Outcome{
			"node-1": {Error: said, Reason: said, Verdict: &inventory.Verdict{Reason: said}},
		},
	}

	shown, err := json.Marshal(view.In(shownNodes{"node-1"}).ShowJob(whole))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(shown), "web-1") || !strings.Contains(string(shown), HiddenNode) {
		t.Errorf("the job shows %s", shown)
	}

	if whole.Outcomes["node-1"].Error != said || whole.Runs[0].Results["node-1"].Doubt != said {
		t.Error("the job itself was changed")
	}
}
