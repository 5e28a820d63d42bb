// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// bench is shared by all rows.
type bench struct {
	dir   string // scratch, removed at the end
	bin   string // directory of the built clusterm and clusterctl
	nodes int    // number of nodes in a full world
	lines int    // of the playbook in the row log
	// rounds replaces the rounds of every row, and no row is measured again; 0: as the row says.
	rounds int
	out    *report
}

// group is a set of rows that are measured together. BENCH= selects groups by name.
type group struct {
	name    string
	title   string
	measure func(ctx context.Context, b *bench) error
}

var groups = []group{
	{"list", "lists of all nodes", list},
	{"outdated", "nodes that are outdated after a change", outdated},
	{"rollout", "decisions of a rollout about a simulated fleet", rollouts},
	{"rollout-store", "a rollout with its records in the store, in real time", storedRollouts},
	{"policy", "evaluations of policies and selectors over a simulated fleet", policies},
	{"transitions", "transitions of 64 nodes at once", transitions},
	{"claim", "a claim of all nodes, and the jobs of a full queue", claims},
	{"access", "requests over HTTPS with a token", accessed},
	{"discover", "nodes discovered through POST /monitor/event", discover},
	{"report", "reports of one node to a request", reported},
	{"watch", "from an event to a watch", watch},
	{"log", "output of a job", logs},
	{"start", "start with all nodes in the store", start},
	{"fetch", "the fetch of a repository of playbooks in which one file has changed", fetches},
	{"cli", "clusterctl nodes get", cli},
	{"memory", "memory of daemon and etcd", memory},
	{"job", "jobs on lab hosts against plain ansible-playbook", job},
	{"verify", "verifications of lab hosts against plain ansible-playbook", verify},
}

func main() { os.Exit(run()) }

func run() int {
	if status, ok := helper(os.Args[1:]); ok {
		return status
	}

	rows := flag.String("rows", "", "the rows to measure, comma-separated; empty: all ("+names()+")")
	file := flag.String("json", "", "the file to write the figures to, as JSON")
	nodes := flag.Int("nodes", 10_000, "the number of nodes")
	limit := flag.Duration("timeout", 40*time.Minute, "the limit of the whole run")
	flag.Parse()

	wanted := slices.DeleteFunc(
		strings.FieldsFunc(*rows, func(r rune) bool { return r == ',' || r == ' ' }),
		func(s string) bool { return s == "all" },
	)
	for _, name := range wanted {
		if !slices.ContainsFunc(groups, func(g group) bool { return g.name == name }) {
			fmt.Fprintf(os.Stderr, "bench: there is no row %q; choose from %s\n", name, names())
			return 2
		}
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()

	dir, err := os.MkdirTemp(os.Getenv("BENCH_DIR"), "bench")
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	defer os.RemoveAll(dir)

	b := &bench{dir: dir, bin: filepath.Join(dir, "bin"), nodes: *nodes, lines: 200_000, out: &report{
		Time: time.Now().UTC().Truncate(time.Second), Machine: machine(), Nodes: *nodes,
	}}
	if err := b.build(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}

	// A group that fails does not keep the others from being measured.
	failed := false
	for _, g := range groups {
		if len(wanted) > 0 && !slices.Contains(wanted, g.name) {
			continue
		}

		fmt.Fprintf(os.Stderr, "bench: %s: %s\n", g.name, g.title)

		if err := g.measure(ctx, b); err != nil {
			failed = true
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", g.name, err)
			b.out.Failures = append(b.out.Failures, g.name+": "+err.Error())
		}
	}

	b.out.print(os.Stdout)

	if *file != "" {
		text, err := json.MarshalIndent(b.out, "", "  ")
		if err == nil {
			err = os.WriteFile(*file, append(text, '\n'), 0o644)
		}

		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			return 1
		}
	}

	if failed || slices.ContainsFunc(b.out.Rows, func(r row) bool { return r.Floor != "" && !r.OK }) {
		return 1
	}

	return 0
}

// helper is this program as a helper process of a row. It reports whether the
// arguments ask for one.
func helper(args []string) (status int, ok bool) {
	switch {
	case len(args) > 0 && args[0] == "serve-bytes":
		return serveBytes(), true
	case len(args) > 2 && args[0] == "emit":
		return emit(args[1], args[2], args[3:]), true
	}

	return 0, false
}

func names() string {
	var out []string
	for _, g := range groups {
		out = append(out, g.name)
	}

	return strings.Join(out, ", ")
}

func (b *bench) build(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", b.bin+"/",
		"./cmd/clusterm", "./cmd/clusterctl")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false")

	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build (run bench at the top of the repository): %w\n%s", err, out)
	}

	return nil
}

// machine describes this machine.
func machine() string {
	model := ""
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value) + ", "
				break
			}
		}
	}

	return fmt.Sprintf("%s%d processors, %s/%s, %s",
		model, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// report is the result of a run.
type report struct {
	Time     time.Time `json:"time"`
	Machine  string    `json:"machine"`
	Nodes    int       `json:"nodes"`
	Rows     []row     `json:"rows"`
	Failures []string  `json:"failures,omitempty"` // rows that could not be measured, with the reason
}

// row is one line of the table.
type row struct {
	Name     string  `json:"name"`
	Unit     string  `json:"unit"`
	Rounds   int     `json:"rounds"`
	Product  float64 `json:"product"`            // the median, or the statistic in the name
	Against  string  `json:"against,omitempty"`  // the baseline
	Baseline float64 `json:"baseline,omitempty"` // likewise
	Ratio    float64 `json:"ratio,omitempty"`    // product to baseline
	Floor    string  `json:"floor,omitempty"`    // "": the ratio is only reported
	OK       bool    `json:"ok"`
	// Again marks the second measurement of a row that missed its floor.
	Again bool   `json:"again,omitempty"`
	Note  string `json:"note,omitempty"`
}

func (r *report) print(w *os.File) {
	fmt.Fprintf(w, "%s, %d nodes, %s\n\n", r.Time.Format(time.RFC3339), r.Nodes, r.Machine)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ROW\tPRODUCT\tBASELINE\tUNIT\tRATIO\tFLOOR\t\tAGAINST")

	for _, row := range r.Rows {
		verdict := "ok"
		switch {
		case row.Floor == "":
			verdict = "-"
		case !row.OK:
			verdict = "MISSED"
		}

		if row.Again {
			verdict += " (again)"
		}

		base, ratio := "", ""
		if row.Against != "" {
			base, ratio = figure(row.Baseline), fmt.Sprintf("%.2f", row.Ratio)
		}

		cells := []string{row.Name, figure(row.Product), base, row.Unit, ratio, row.Floor, verdict, row.Against}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}

	_ = t.Flush()

	for _, row := range r.Rows {
		if row.Note != "" {
			fmt.Fprintf(w, "\n%s: %s\n", row.Name, row.Note)
		}
	}

	for _, f := range r.Failures {
		fmt.Fprintf(w, "\nnot measured: %s\n", f)
	}
}

func figure(f float64) string {
	switch {
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	default:
		return fmt.Sprintf("%.3f", f)
	}
}

// side measures the product or the baseline once, in the row's unit.
type side func(ctx context.Context) (float64, error)

// comparison is a row to be measured.
type comparison struct {
	name, unit, against, note string
	rounds                    int
	floor                     floor
	product, baseline         side
	// summarize reduces the rounds to one figure; nil: the median.
	summarize func([]float64) float64
}

// floor is the bound of a row.
type floor struct {
	text string
	ok   func(product, baseline float64) bool
}

// atLeast is a floor for figures of which more is better: the product must reach this
// share of the baseline.
func atLeast(share float64) floor {
	return floor{fmt.Sprintf(">= %g", share), func(p, b float64) bool { return p >= share*b }}
}

// atMost is a floor for figures of which less is better: the product must not exceed
// factor times the baseline plus a constant in the row's unit.
func atMost(factor, constant float64, text string) floor {
	return floor{text, func(p, b float64) bool { return p <= factor*b+constant }}
}

// compare measures both sides in turn and adds the row to the report. A row that
// misses its floor is measured once more.
func (b *bench) compare(ctx context.Context, c comparison) error {
	summarize := c.summarize
	if summarize == nil {
		summarize = median
	}

	rounds, attempts := c.rounds, 2
	if b.rounds > 0 {
		rounds, attempts = b.rounds, 1
	}

	for attempt := range attempts {
		var product, baseline []float64
		for round := range rounds {
			sides := []struct {
				do  side
				out *[]float64
			}{{c.product, &product}, {c.baseline, &baseline}}
			// Neither side always profits from the other's warm caches.
			if round%2 == 1 {
				slices.Reverse(sides)
			}

			for _, s := range sides {
				value, err := s.do(ctx)
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}

				*s.out = append(*s.out, value)
			}
		}

		r := row{
			Name:     c.name,
			Unit:     c.unit,
			Rounds:   rounds,
			Product:  summarize(product),
			Against:  c.against,
			Baseline: summarize(baseline),
			Floor:    c.floor.text,
			Note:     c.note,
			Again:    attempt > 0,
		}
		r.Ratio = r.Product / r.Baseline
		r.OK = c.floor.ok == nil || c.floor.ok(r.Product, r.Baseline)

		verdict := "misses"
		if r.OK {
			verdict = "reaches"
		}

		fmt.Fprintf(os.Stderr, "bench: %s: %s against %s %s, ratio %.2f (%s %s)\n", r.Name, figure(r.Product),
			figure(r.Baseline), r.Unit, r.Ratio, verdict, cmp.Or(r.Floor, "no floor"))
		fmt.Fprintf(os.Stderr, "bench:   product %.4g\nbench:   baseline %.4g\n", product, baseline)

		if attempt > 0 {
			// The first result stays in the table, above this one.
			b.out.Rows[len(b.out.Rows)-1].Floor = ""
			b.out.Rows[len(b.out.Rows)-1].Note = "missed " + c.floor.text + "; measured again"
		}

		b.out.Rows = append(b.out.Rows, r)
		if r.OK {
			break
		}
	}

	return nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))

	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}

	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// p99 is the 99th percentile.
func p99(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, len(sorted)*99/100)]
}
