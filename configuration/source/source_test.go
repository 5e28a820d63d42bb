// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
)

func TestFile(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		content string
		mode    os.FileMode
		value   string
		problem string
	}{
		"a line":      {"s3cret\n", 0o600, "s3cret", ""},
		"two lines":   {"one\ntwo\n\n", 0o400, "one\ntwo\n", ""},
		"largest":     {strings.Repeat("x", MaxBytes) + "\n", 0o600, strings.Repeat("x", MaxBytes), ""},
		"empty":       {"\n", 0o600, "", "empty"},
		"too long":    {strings.Repeat("x", MaxBytes+1), 0o600, "", "longer than"},
		"binary":      {"s3cret\x00", 0o600, "", "not text"},
		"not UTF-8":   {"s3cret\xff", 0o600, "", "not text"},
		"group reads": {"s3cret", 0o640, "", "others can read"},
	} {
		path := filepath.Join(t.TempDir(), "secret")
		errtest.None(t, os.WriteFile(path, []byte(c.content), c.mode))
		got, err := File(path)
		if got != c.value || (err == nil) != (c.problem == "") {
			t.Errorf("%s: %.20q, %v", name, got, err)
		}

		if err != nil && (!strings.Contains(err.Error(), c.problem) || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%s: %v", name, err)
		}
	}

	if _, err := File(t.TempDir()); err == nil {
		t.Error("a folder was read")
	}
}

func TestCommand(t *testing.T) {
	t.Setenv("CANARY_OF_THE_DAEMON", "1")

	for script, want := range map[string]string{
		"echo s3cret": "s3cret",
		`printf '%s' "$CANARY_OF_THE_DAEMON-$PWD-$1"`: "-/-argument",
	} {
		if got, err := Command(t.Context(), "/bin/sh", "-c", script, "sh", "argument"); got != want || err != nil {
			t.Errorf("%s: %q, %v", script, got, err)
		}
	}

	for script, want := range map[string]string{
		"exit 3": "exit status 3",
		"echo s3cret; echo bad s3cret >&2; exit 1": "exit status 1: bad (hidden)",
		"true":                                 "empty",
		"yes":                                  "did not end within",
		"sleep 1000 & echo $! >&2; sleep 1000": "did not end within",
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if want == "did not end within" {
			ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
		}

		begun := time.Now()
		_, err := Command(ctx, "/bin/sh", "-c", script)
		cancel()

		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", script, err)
		}

		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("%s: it took %s", script, took)
		}
	}

	if _, err := Command(t.Context(), "/nonexistent/program"); err == nil {
		t.Error("a missing program gave a value")
	}
}

func TestCheck(t *testing.T) {
	t.Setenv("CANARY_OF_THE_DAEMON", "1")

	env := []string{"NODE=a-1"}

	for script, want := range map[string]string{
		"true":    "",
		"exit 3":  "exit status 3",
		"sleep 9": "did not end within 300ms",
		`test "$CANARY_OF_THE_DAEMON-$PWD-$NODE-$1" = -/-a-1-argument`: "",
	} {
		err := Check(t.Context(), 300*time.Millisecond, env, "/bin/sh", "-c", script, "sh", "argument")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
}

// TestBackground: a program that leaves a process behind, with its output, has ended as its exit
// status says, and the process ends with the call.
func TestBackground(t *testing.T) {
	t.Parallel()

	for status, want := range map[string]string{"0": "", "3": "exit status 3"} {
		path := filepath.Join(t.TempDir(), "alive")
		errtest.None(t, syscall.Mkfifo(path, 0o600))
		alive, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		errtest.None(t, err)
		defer alive.Close()

		got, err := Command(
			t.Context(), "/bin/sh", "-c", `exec 3>"$1"; echo s3cret; sleep 1000 & exit "$2"`, "sh", path, status)
		if want == "" && (got != "s3cret" || err != nil) ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %q, %v, want %q", status, got, err, want)
		}

		// The end of the last process that has it open for writing is its end.
		errtest.None(t, alive.SetReadDeadline(time.Now().Add(20*time.Second)))

		if _, err := io.ReadAll(alive); err != nil {
			t.Errorf("%s: a process outlives the call: %v", status, err)
		}
	}
}

// TestOwnSession: a process in a session of its own holds nothing up.
func TestOwnSession(t *testing.T) {
	t.Parallel()

	begun := time.Now()
	pid := filepath.Join(t.TempDir(), "pid")

	err := Check(t.Context(), time.Minute, nil, "/bin/sh", "-c",
		`setsid sh -c 'echo $$ >"$1.new"; mv "$1.new" "$1"; exec sleep 60' sh "$1" &
		until test -e "$1"; do sleep 0.01; done`, "sh", pid)
	if took := time.Since(begun); err != nil || took > 30*time.Second {
		t.Errorf("%v after %s", err, took)
	}

	text, err := os.ReadFile(pid)
	errtest.None(t, err)
	id, err := strconv.Atoi(strings.TrimSpace(string(text)))
	errtest.None(t, err)
	if err := syscall.Kill(id, syscall.SIGKILL); err != nil {
		t.Errorf("it has ended: %v", err)
	}
}
