// SPDX-License-Identifier: Apache-2.0

package print

import (
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

func TestFold(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		text    string
		columns int
		want    string
	}{
		{"one two three four five six", 0, "one two three four five six"},
		{"one two three four five six", 20, "one two three four\nfive six"},
		{"  one two three four five", 20, "  one two three four\n  five"},
		{"short\n\n   ^ here", 20, "short\n\n   ^ here"},
		{"see /a/path/that/is/longer/than/a/line now", 20, "see\n/a/path/that/is/longer/than/a/line\nnow"},
		{"one two three four five six", 3, "one two three four\nfive six"},
		{"\x1b[31mone two three four\x1b[0m five six", 20, "\x1b[31mone two three four\x1b[0m\nfive six"},
		{"日本語 日本語 日本語 日本語", 20, "日本語 日本語 日本語\n日本語"},
	} {
		if got := Fold(c.text, c.columns); got != c.want {
			t.Errorf("%q in %d columns: %q, want %q", c.text, c.columns, got, c.want)
		}
	}
}

// TestSentencesFitTheTerminal prints a job and explanations with long sentences: no line
// is wider than the terminal but that of a command, which stays whole, and a pipe gets
// whole sentences.
func TestSentencesFitTheTerminal(t *testing.T) {
	t.Parallel()

	const columns = 80

	long := strings.TrimSpace(strings.Repeat("the cleanup that was begun on it has failed ", 6))
	nodes := []string{"host2-cc31d6b268d4", "host3-0cd9833055b3", "host4-74b65965837b"}
	j := api.Job{
		ID:         "12",
		Verb:       "commission",
		Status:     api.Errored,
		Message:    long,
		JobOptions: inventory.JobOptions{SharedOptions: inventory.SharedOptions{Reason: long}},
		Nodes:      nodes,
		Runs: []api.Run{{Phase: "configure", Playbook: "site.yml", Results: []api.HostResult{{
			Host: nodes[0], Failed: 1, Task: "install the packages", Message: long,
		}}}},
	}
	failures := []api.Failure{{Job: "12", Phase: "configure", Playbook: "site.yml", Host: nodes[0], Message: long}}
	findings := []api.Finding{{
		About: "failure", Message: long, Remedy: long,
		Actions: []api.Action{{Action: "submit", Verb: "clear", Nodes: nodes}},
	}}
	node := api.NodeExplanation{
		Node: api.Node{Name: nodes[0], Addr: "192.0.2.1"}, Summary: long, Next: long,
		Failures: failures, Findings: findings,
	}
	why := api.JobExplanation{
		Job:      j,
		Summary:  long,
		Steps:    []string{long},
		Next:     long,
		Failures: failures,
		Findings: findings,
	}

	const command = "clusterctl nodes clear host2-cc31d6b268d4 host3-0cd9833055b3 host4-74b65965837b"

	for name, page := range map[string]func(p *Printer){
		"node":     func(p *Printer) { p.NodeExplanation(node, "clusterctl") },
		"job why":  func(p *Printer) { p.JobExplanation(why, "clusterctl") },
		"job get":  func(p *Printer) { p.Job(j, false) },
		"job long": func(p *Printer) { p.Job(j, true) },
	} {
		p := &Printer{Style: Style{Width: columns}}
		page(p)
		text := string(p.Bytes())

		for line := range strings.Lines(text) {
			line = strings.TrimRight(line, "\n")
			if width(line) > columns && strings.TrimSpace(line) != command {
				t.Errorf("%s: a line of %d columns:\n%s", name, width(line), line)
			}
		}

		if !strings.HasPrefix(name, "job g") && !strings.HasPrefix(name, "job l") &&
			!strings.Contains(text, command+"\n") {
			t.Errorf("%s: the command is not on one line:\n%s", name, text)
		}

		if whole := printed(page); !strings.Contains(whole, long) {
			t.Errorf("%s: a pipe gets no whole sentence:\n%s", name, whole)
		}
	}
}
