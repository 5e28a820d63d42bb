// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// cmdExits is `exits CODE PROGRAM ARG…`: exec with an expected exit code.
func cmdExits(ts *testscript.TestScript, _ bool, args []string) {
	checkCode(ts, args[0], ts.Exec(args[1], args[2:]...))
}

func checkCode(ts *testscript.TestScript, want string, err error) {
	code := 0
	if err != nil {
		e, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		code = e.ExitCode()
	}

	if strconv.Itoa(code) != want {
		ts.Fatalf("exit code %d, want %s", code, want)
	}
}

// command returns a process with the environment of the script.
func command(ts *testscript.TestScript, args []string) *exec.Cmd {
	path := args[0]
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if p := filepath.Join(dir, args[0]); !strings.Contains(path, "/") && isFile(p) {
			path = p
		}
	}

	c := exec.Command(path, args[1:]...)

	c.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "CLUSTERM_URL", "TZ", "TERM", "NO_COLOR", "HOME", "GORACE"} {
		if v := ts.Getenv(name); v != "" {
			c.Env = append(c.Env, name+"="+v)
		}
	}

	return c
}

func isFile(path string) bool {
	i, err := os.Stat(path)
	return err == nil && i.Mode().IsRegular()
}

// program is the one program of a script that runs beside the script.
type program struct {
	cmd       *exec.Cmd
	out, errs syncBuffer
	stdin     *os.File
	close     func()
}

func programOf(ts *testscript.TestScript) *program { return ts.Value("program").(*program) }

// cmdStart is `start PROGRAM ARG…`: it starts a program with a stdin that holds "{"
// and never ends. Each start needs an interrupt or an ends.
func cmdStart(ts *testscript.TestScript, _ bool, args []string) {
	stdin, keep, err := os.Pipe()
	ts.Check(err)
	_, err = keep.WriteString("{")
	ts.Check(err)

	c := command(ts, args)
	p := programOf(ts)
	*p = program{cmd: c, stdin: stdin, close: func() { _ = stdin.Close(); _ = keep.Close() }}
	c.Stdin, c.Stdout, c.Stderr = stdin, &p.out, &p.errs
	ts.Check(c.Start())

	// A script that fails in between leaves its program running.
	ts.Defer(func() { _ = c.Process.Kill() })
}

// cmdShows is `shows PATTERN`: it waits until stdout or stderr of the program match.
func cmdShows(ts *testscript.TestScript, _ bool, args []string) {
	p := programOf(ts)
	pattern := regexp.MustCompile("(?m)" + args[0])

	if err := poll(func() bool {
		return pattern.MatchString(p.out.String()) || pattern.MatchString(p.errs.String())
	}); err != nil {
		ts.Fatalf("the program never showed %s: %v\n%s%s", pattern, err, p.out.String(), p.errs.String())
	}
}

// cmdReads is `reads`: it waits until the program has read its stdin.
func cmdReads(ts *testscript.TestScript, _ bool, _ []string) {
	p := programOf(ts)

	ts.Check(poll(func() bool {
		left, err := unix.IoctlGetInt(int(p.stdin.Fd()), unix.TIOCINQ)
		return err == nil && left == 0
	}))
}

// cmdInterrupt is `interrupt CODE`: it sends SIGINT to the program, and waits for it
// as ends does.
func cmdInterrupt(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(programOf(ts).cmd.Process.Signal(os.Interrupt))
	cmdEnds(ts, false, args)
}

// cmdRemedy is `remedy CODE PATTERN`: it runs the command line in the output that matches the pattern, as it was
// printed, with an expected exit code.
func cmdRemedy(ts *testscript.TestScript, _ bool, args []string) {
	pattern := regexp.MustCompile(args[1])

	for line := range strings.Lines(ts.ReadFile("stderr") + ts.ReadFile("stdout")) {
		_, remedy, found := strings.Cut(strings.TrimRight(line, "\n"), "clusterctl ")
		if found && pattern.MatchString(remedy) {
			checkCode(ts, args[0], ts.Exec("sh", "-c", "clusterctl "+remedy))
			return
		}
	}

	ts.Fatalf("no remedy matches %s", pattern)
}

// cmdEnds is `ends CODE`: it waits for the end of the program, and leaves its output
// in $WORK/out and $WORK/err.
func cmdEnds(ts *testscript.TestScript, _ bool, args []string) {
	p := programOf(ts)
	err := waitFor(p.cmd)
	p.close()
	ts.Check(os.WriteFile(ts.MkAbs("out"), []byte(p.out.String()), 0o644))
	ts.Check(os.WriteFile(ts.MkAbs("err"), []byte(p.errs.String()), 0o644))
	ts.Logf("[output of the program]\n%s%s", p.out.String(), p.errs.String())
	checkCode(ts, args[0], err)
}

// masks replace the varying parts of an output. A replacement in a table has the width
// of the original, or spaces to fill its column.
var masks = []struct {
	pattern *regexp.Regexp
	replace func(match []string) string
}{
	// A client that polls may miss a phase of a short job.
	{regexp.MustCompile(`(?m)^job \d+ is (queued|running).*\n`), constant("")},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`), constant("YYYY-MM-DD hh:mm:ss")},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), constant("YYYY-MM-DDThh:mm:ssZ")},
	{regexp.MustCompile(`([Rr]evision"?:? +)\d+`), func(m []string) string { return m[1] + "N" }},
	{regexp.MustCompile(`\b[0-9a-f]{12,}\b`), constant("DIGEST")},
	// Of the variables, with a key that each manager has of its own.
	{regexp.MustCompile(`\b[0-9a-f]{8}-DIGEST\b`), constant("KEY-DIGEST")},
	{regexp.MustCompile(`\b[0-9a-f]{8}/[0-9a-f]{8}\b`), constant("PLAYBOOK/VARIABLE")},
	// Twice, for durations in neighbouring columns: a match takes the spaces of the next.
	{duration, sameWidth},
	{duration, sameWidth},
}

// duration matches a duration with the space before and the spaces after it.
var duration = regexp.MustCompile(`(?m)( )(?:\d+(?:\.\d+)?(?:ms|[dhms]))+( +|\b)`)

// sameWidth replaces a duration without a change of the columns after it.
func sameWidth(m []string) string {
	width := max(len(m[0]), len(" Ns"))
	if m[2] == "" {
		width = len(" Ns")
	}
	return fmt.Sprintf("%-*s", width, " Ns")
}

func constant(text string) func([]string) string { return func([]string) string { return text } }

// cmdMask is `mask FILE`: it writes the file, with fixed text for times, durations,
// revisions and digests, to $WORK/masked, for cmp.
func cmdMask(ts *testscript.TestScript, _ bool, args []string) {
	text := ts.ReadFile(args[0])
	for _, m := range masks {
		text = m.pattern.ReplaceAllStringFunc(text, func(s string) string {
			return m.replace(m.pattern.FindStringSubmatch(s))
		})
	}

	ts.Check(os.WriteFile(ts.MkAbs("masked"), []byte(text), 0o644))
}

// patience bounds every wait for a program. A wait ends as soon as its condition
// holds.
const patience = time.Minute

// poll waits until cond holds, for a bounded time.
func poll(cond func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the condition did not hold within %s", patience)
		}
	}

	return nil
}

// waitFor waits for a process, and kills it after patience.
func waitFor(c *exec.Cmd) error {
	t := time.AfterFunc(patience, func() { _ = c.Process.Kill() })
	defer t.Stop()
	return c.Wait()
}

// syncBuffer is a buffer for one writer and concurrent readers.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *syncBuffer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(b)
}

func (w *syncBuffer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}
