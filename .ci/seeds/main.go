// SPDX-License-Identifier: Apache-2.0

// Seeds plants known bugs, one at a time, and expects a test to find each by an assertion. Names as
// arguments choose single seeds, and -part N every eighth one, others for each of eight numbers N in turn. With -overlay
// DIR NAME it runs no test, and prints a file for go build -overlay that has the bug.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The time of one seed. The test binary ends by itself first, so that it tells where it hung.
const (
	testTime = time.Minute
	seedTime = 3 * time.Minute // with the build
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Args[1:])

	stop()

	if err != nil {
		fmt.Fprintln(os.Stderr, "seeds:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, names []string) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("finding the module: %w", err)
	}

	if len(names) == 3 && names[0] == "-overlay" {
		return overlayOf(out, strings.TrimSpace(string(root)), names[1], names[2])
	}

	dir, err := os.MkdirTemp("", "seeds-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	chosen, err := choose(names)
	if err != nil {
		return err
	}

	// Those that have no turn can be planted, at least.
	for _, s := range seeds {
		if _, err := s.overlay(strings.TrimSpace(string(root)), dir); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}

	var survived []string

	for _, s := range chosen {
		begun := time.Now()

		verdict, err := s.plant(ctx, strings.TrimSpace(string(root)), dir)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if verdict != found {
			survived = append(survived, s.name)
		}

		fmt.Fprintf(out, "%4.0f s  %-40s %s\n", time.Since(begun).Seconds(), s.name, verdict)
	}

	fmt.Fprintf(out, "%d of %d seeds were found\n", len(chosen)-len(survived), len(chosen))

	if len(survived) > 0 {
		return fmt.Errorf("no assertion found: %s", strings.Join(survived, ", "))
	}

	return nil
}

// parts is how many commits it takes until each seed was planted.
const parts = 8

// choose returns the seeds of the arguments.
func choose(args []string) (chosen []seed, err error) {
	part := -1
	if len(args) == 2 && args[0] == "-part" {
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return nil, fmt.Errorf("-part: %w", err)
		}
		part, args = n%parts, nil
	}

	for i, s := range seeds {
		if part < 0 && (len(args) == 0 || slices.Contains(args, s.name)) || i%parts == part {
			chosen = append(chosen, s)
		}
	}

	if len(chosen) < max(len(args), 1) {
		return nil, fmt.Errorf("no such seed among %q", args)
	}

	return chosen, nil
}

// found is the verdict on a seed that an assertion found.
const found = "found"

// overlayOf writes the overlay of a seed into a folder, and prints its path.
func overlayOf(out io.Writer, root, dir, name string) error {
	i := slices.IndexFunc(seeds, func(s seed) bool { return s.name == name })
	if i < 0 {
		return fmt.Errorf("no such seed: %q", name)
	}

	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return fmt.Errorf("the folder of the overlay: %w", err)
	}

	overlay, err := seeds[i].overlay(root, dir)
	if err == nil {
		fmt.Fprintln(out, overlay)
	}

	return err
}

// overlay writes a copy of the seed's file with the bug, and what puts it in place of the file.
func (s seed) overlay(root, dir string) (path string, err error) {
	path = filepath.Join(root, s.file)

	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if n := bytes.Count(text, []byte(s.is)); n != 1 {
		return "", fmt.Errorf("%s has %d times, not once: %s", s.file, n, s.is)
	}

	copied, overlay := filepath.Join(dir, filepath.Base(path)), filepath.Join(dir, "overlay.json")

	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: copied}})
	if err != nil {
		return "", err
	}

	return overlay, errors.Join(
		os.WriteFile(copied, bytes.Replace(text, []byte(s.is), []byte(s.becomes), 1), 0o600),
		os.WriteFile(overlay, replace, 0o600),
	)
}

// plant runs the test of the seed on a copy of its file with the bug.
func (s seed) plant(ctx context.Context, root, dir string) (verdict string, err error) {
	overlay, err := s.overlay(root, dir)
	if err != nil {
		return "", err
	}

	ctx, cancel := context.WithTimeout(ctx, seedTime)
	defer cancel()

	cmd := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-vet=off", "-count=1", "-failfast",
		"-timeout", testTime.String(), "-run", "^("+s.test+")$", "./"+s.pkg)
	cmd.Dir = root
	// The test is a child of go test, and has to end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second

	output, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && ctx.Err() == nil && !errors.As(err, &exit) {
		return "", err
	}
	return judge(string(output), err != nil, ctx.Err() != nil), nil
}

// judge returns found, or what happened instead.
func judge(output string, failed, late bool) string {
	switch {
	case late:
		return "did not end in time"
	case strings.Contains(output, "panic: test timed out"):
		return "the test hung:\n" + head(output)
	case strings.Contains(output, "\npanic: "), strings.Contains(output, "\nfatal error: "):
		return "the test panicked:\n" + head(output)
	case strings.Contains(output, "no tests to run"):
		return "there is no such test"
	case failed && strings.Contains(output, "--- FAIL: "):
		return found
	case failed:
		return "no test ran:\n" + head(output)
	}

	return "survived"
}

// head returns the first lines of the output, which have the cause.
func head(output string) string {
	lines := strings.Split(output, "\n")
	return strings.Join(lines[:min(len(lines), 20)], "\n")
}
