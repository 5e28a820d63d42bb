// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory/doctest"
	"github.com/contiv/cluster/inventory/errtest"
)

const docs = "../../docs/"

// TestTable expects names in the conventions of Prometheus.
func TestTable(t *testing.T) {
	t.Parallel()

	seen := map[string]bool{}
	for _, room := range Table {
		for _, m := range room.Metrics {
			if seen[m.Name] {
				t.Errorf("%s is defined twice", m.Name)
			}

			seen[m.Name] = true
			if !regexp.MustCompile(`^clusterm_[a-z]+(_[a-z]+)*$`).MatchString(m.Name) {
				t.Errorf("%s is not a valid name for a metric", m.Name)
			}

			if total := strings.HasSuffix(m.Name, "_total"); total != (m.Type == Counter) {
				t.Errorf("%s is a %s", m.Name, m.Type)
			}

			if (m.Type == Histogram) != (m.Buckets != nil) ||
				m.Type == Histogram && !strings.HasSuffix(m.Name, "_seconds") {
				t.Errorf("%s has no unit, or no buckets", m.Name)
			}

			if m.Meaning == "" {
				t.Errorf("%s has no help text", m.Name)
			}
		}
	}
}

// TestMetricsDocument compares docs/metrics.md with the table.
func TestMetricsDocument(t *testing.T) {
	t.Parallel()
	doctest.Check(t, docs+"metrics.md", map[string]string{"metrics": render()})
}

func render() string {
	var b strings.Builder
	for _, room := range Table {
		fmt.Fprintf(&b, "\n### %s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", room.Title)

		for _, m := range room.Metrics {
			labels := ""
			if len(m.Labels) > 0 {
				labels = "`" + strings.Join(m.Labels, "`, `") + "`"
			}

			meaning := m.Meaning
			if m.Absent != "" {
				meaning += " (absent " + m.Absent + ")"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Type, labels, meaning)
		}
	}

	return b.String() + "\n"
}

// rules is a file of alert rules.
type rules struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []struct {
			Alert       string            `yaml:"alert"`
			Record      string            `yaml:"record,omitempty"`
			Expr        string            `yaml:"expr"`
			For         string            `yaml:"for"`
			Labels      map[string]string `yaml:"labels"`
			Annotations map[string]string `yaml:"annotations"`
		} `yaml:"rules"`
	} `yaml:"groups"`
}

// board is the tested part of a Grafana dashboard.
type board struct {
	Title      string `json:"title"`
	UID        string `json:"uid"`
	Templating struct {
		List []struct {
			Name  string `json:"name"`
			Type  string `json:"type"`
			Query any    `json:"query"`
		} `json:"list"`
	} `json:"templating"`
	Panels []struct {
		ID         int    `json:"id"`
		Title      string `json:"title"`
		Type       string `json:"type"`
		Datasource struct {
			UID string `json:"uid"`
		} `json:"datasource"`
		GridPos struct{ H, W, X, Y int } `json:"gridPos"`
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
	} `json:"panels"`
}

func readRules(t *testing.T) rules {
	t.Helper()

	f, err := os.Open(docs + "prometheus/alerts.yml")
	errtest.None(t, err)
	defer f.Close()
	var r rules
	d := yaml.NewDecoder(f)
	d.KnownFields(true)

	errtest.None(t, d.Decode(&r))

	return r
}

func readBoard(t *testing.T) board {
	t.Helper()

	data, err := os.ReadFile(docs + "grafana/clusterm.json")
	errtest.None(t, err)

	var b board
	errtest.None(t, json.Unmarshal(data, &b))

	return b
}

// inTable fails the test where an expression uses a metric, or selects by a
// label, that the table does not have.
func inTable(t *testing.T, where, expr string) {
	t.Helper()

	used := regexp.MustCompile(`clusterm_\w+`).FindAllString(expr, -1)
	if len(used) == 0 && !regexp.MustCompile(`\b(up|process_\w+|go_\w+)\b`).MatchString(expr) {
		t.Errorf("%s: %q uses no metric", where, expr)
	}

	for _, name := range used {
		m, ok := Lookup(name)
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			if base, cut := strings.CutSuffix(name, suffix); cut && !ok {
				if m, ok = Lookup(base); ok && m.Type != Histogram {
					ok = false
				}
			}
		}

		if !ok {
			t.Errorf("%s: there is no %s", where, name)
			continue
		}

		labels := append([]string{"le", "instance", "job"}, m.Labels...)
		for _, sel := range regexp.MustCompile(name+`\{([^}]*)\}`).FindAllStringSubmatch(expr, -1) {
			for _, l := range regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`).FindAllStringSubmatch(sel[1], -1) {
				if !slices.Contains(labels, l[1]) {
					t.Errorf("%s: %s has no label %s", where, name, l[1])
				}
			}
		}
	}
}

// TestBoard: the panels of the Grafana board show metrics that exist, of the
// data source that is chosen, and do not lie over each other.
func TestBoard(t *testing.T) {
	t.Parallel()

	b := readBoard(t)
	if b.Title == "" || b.UID == "" || !slices.ContainsFunc(b.Templating.List, func(v struct {
		Name  string `json:"name"`
		Type  string `json:"type"`
		Query any    `json:"query"`
	}) bool {
		return v.Name == "datasource" && v.Type == "datasource" && v.Query == "prometheus"
	}) {
		t.Errorf("the board has no title, no uid, or no variable for the data source")
	}

	shown, ids, taken := map[string]bool{}, map[int]bool{}, map[[2]int]string{}
	for _, p := range b.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}

		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x > 23 {
					t.Fatalf("%s is not beside %s", p.Title, other)
				}

				taken[[2]int{x, y}] = p.Title
			}
		}

		if p.Type == "row" {
			continue
		}

		if p.Datasource.UID != "${datasource}" {
			t.Errorf("%s takes its data from %q", p.Title, p.Datasource.UID)
		}

		if len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", p.Title)
		}

		for _, target := range p.Targets {
			inTable(t, p.Title, target.Expr)

			for _, name := range regexp.MustCompile(`clusterm_\w+`).FindAllString(target.Expr, -1) {
				shown[strings.TrimSuffix(name, "_bucket")] = true
			}
		}
	}

	for _, room := range Table {
		for _, m := range room.Metrics {
			if !shown[m.Name] {
				t.Errorf("no panel shows %s", m.Name)
			}
		}
	}
}

// TestAlerts expects existing metrics in the rules, and a severity, a summary and
// a description for each alert.
func TestAlerts(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile(docs + "metrics.md")
	errtest.None(t, err)

	count := 0
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			count++
			inTable(t, r.Alert, r.Expr)

			if r.Alert == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" ||
				r.Annotations["description"] == "" {
				t.Errorf("%s has no severity, summary or description", r.Alert)
			}

			if !strings.Contains(string(text), "`"+r.Alert+"`") {
				t.Errorf("docs/metrics.md does not mention %s", r.Alert)
			}
		}
	}

	if count < 8 {
		t.Errorf("only %d rules", count)
	}
}

// TestPromtool checks the rules and the expressions of the board with promtool,
// and tests the rules on example series.
func TestPromtool(t *testing.T) {
	t.Parallel()

	if os.Getenv("CLUSTERM_LAB") == "" {
		t.Skip("make system runs it: CLUSTERM_LAB=1, and Debian's package prometheus")
	}

	run := func(args ...string) {
		t.Helper()

		if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	run("check", "rules", docs+"prometheus/alerts.yml")
	run("test", "rules", "testdata/alerts.yml")
	run("check", "config", "--syntax-only", docs+"prometheus/scrape.yml")

	var asRules strings.Builder
	asRules.WriteString("groups:\n- name: board\n  rules:\n")

	n := 0
	for _, p := range readBoard(t).Panels {
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$instance", "one").
				Replace(target.Expr)
			fmt.Fprintf(&asRules, "  - {record: 'panel:%d', expr: %q}\n", n, expr)
			n++
		}
	}

	path := filepath.Join(t.TempDir(), "board.yml")
	errtest.None(t, os.WriteFile(path, []byte(asRules.String()), 0o644))
	run("check", "rules", path)
}
