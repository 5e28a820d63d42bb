// SPDX-License-Identifier: Apache-2.0

// Command bench measures clusterm against its building blocks. Each row of its table
// compares a figure of the product with one of a baseline; both are taken in the same
// run, on the same machine, in turn. `make bench` runs it, and docs/benchmarks.md
// describes the rows.
//
// The product is the built binary, started as a process with its own directory and
// with fsync on. A row is the median over its rounds. A row that misses its floor is
// measured once more: both results are printed, and the second one counts.
package main

import (
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
	"time"
)

// group is a set of rows that are measured together. BENCH= selects groups by name.
type group struct {
	name  string
	title string
	// rows sets up what the rows need, and returns them.
	rows func(ctx context.Context, b *bench) []row
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
	{"import", "machines from a list to nodes", imports},
	{"ready", "machines from a list until they are offered for use", readied},
	{"power", "the power of simulated machines, by their BMCs", powers},
	{"report", "reports of one node to a request", reported},
	{"watch", "from an event to a watch", watch},
	{"log", "output of a job", logs},
	{"start", "start with all nodes in the store", start},
	{"fetch", "the fetch of a repository of playbooks in which one file has changed", fetches},
	{"cli", "clusterctl nodes get", cli},
	{"memory", "memory of daemon and etcd", memory},
	{"job", "jobs on lab hosts against plain ansible-playbook", job},
	{"verify", "verifications of lab hosts against plain ansible-playbook", verify},
	{"inspect", "inspections of lab hosts against Ansible's module setup", inspected},
}

// limit is the time of a whole run.
const limit = 40 * time.Minute

// sizes are the sizes of what is measured.
type sizes struct {
	nodes   int // in a full world
	lines   int // of the playbook in the row log
	waiting int // jobs in the queue
	rollout int // nodes of a rollout
	reports int // in a round of the row report
	events  int // in a round of the row watch
	files   int // of the repository in the row fetch
	hosts   int // of the lab
	bmcs    int // machines of a list, and simulated BMCs
	rounds  int // of every row, and no row is measured again; 0: as the row says
}

var usual = sizes{
	nodes: 10_000, lines: 200_000, waiting: 1000, rollout: 1000, reports: 500, events: 200, files: 1000, hosts: 20,
	bmcs: 1000,
}

// bench is shared by all rows.
type bench struct {
	sizes

	top  string // the top of the repository; "": the working directory
	dir  string // scratch, removed at the end
	bin  string // directory of the built clusterm and clusterctl
	out  report
	undo []func() // ends what the rows needed, the last first
}

// cleanup adds what is to be done after the measurement of the rows.
func (b *bench) cleanup(do func()) { b.undo = append(b.undo, do) }

// measureAll sets rows up, measures them, and cleans up.
func (b *bench) measureAll(setUp func() []row) {
	outer := len(b.undo)
	defer func() {
		for _, do := range slices.Backward(b.undo[outer:]) {
			do()
		}

		b.undo = b.undo[:outer]
	}()

	for _, r := range setUp() {
		b.measure(r)
	}
}

// run measures the rows of a group.
func (b *bench) run(ctx context.Context, g group) error {
	return try(func() { b.measureAll(func() []row { return g.rows(ctx, b) }) })
}

func main() {
	status, ok := helper(os.Args[1:])
	if !ok {
		status = program()
	}
	os.Exit(status)
}

// helper is this program as a helper process of a row. It reports whether the
// arguments ask for one.
func helper(args []string) (status int, ok bool) {
	var err error

	switch {
	case len(args) > 0 && args[0] == "serve-bytes":
		err = try(serveBytes)
	case len(args) > 2 && args[0] == "emit":
		err = try(func() { emit(args[1], args[2], args[3:]) })
	default:
		return 0, false
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2, true
	}

	return 0, true
}

func program() int {
	b := &bench{sizes: usual}
	rows := flag.String("rows", "", "the rows to measure, comma-separated; empty: all ("+names()+")")
	file := flag.String("json", "", "the file to write the figures to, as JSON")
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

	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	err := try(func() {
		b.dir = must(os.MkdirTemp(os.Getenv("BENCH_DIR"), "bench"))
		defer os.RemoveAll(b.dir)

		b.bin = filepath.Join(b.dir, "bin")
		b.build(ctx)

		b.out = report{Time: time.Now().UTC().Truncate(time.Second), Machine: machine(), Nodes: b.nodes}

		// A group that fails does not keep the others from being measured.
		for _, g := range groups {
			if len(wanted) > 0 && !slices.Contains(wanted, g.name) {
				continue
			}

			fmt.Fprintf(os.Stderr, "bench: %s: %s\n", g.name, g.title)

			if err := b.run(ctx, g); err != nil {
				fmt.Fprintf(os.Stderr, "bench: %s: %v\n", g.name, err)
				b.out.Failures = append(b.out.Failures, g.name+": "+err.Error())
			}
		}

		b.out.print(os.Stdout)

		if *file != "" {
			check(os.WriteFile(*file, append(must(json.MarshalIndent(b.out, "", "  ")), '\n'), 0o644))
		}
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}

	missed := slices.ContainsFunc(b.out.Rows, func(r row) bool { return r.Floor != "" && !r.OK })
	if missed || len(b.out.Failures) > 0 {
		return 1
	}

	return 0
}

func names() string {
	var out []string
	for _, g := range groups {
		out = append(out, g.name)
	}

	return strings.Join(out, ", ")
}

// build builds the programs at the top of the repository.
func (b *bench) build(ctx context.Context) {
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", b.bin+"/",
		"./cmd/clusterm", "./cmd/clusterctl")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false")

	if out, err := cmd.CombinedOutput(); err != nil {
		fail("go build (run bench at the top of the repository): %w\n%s", err, out)
	}
}

// machine describes this machine.
func machine() string {
	model := ""

	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value) + ", "
		}
	}

	return fmt.Sprintf("%s%d processors, %s/%s, %s",
		model, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}
