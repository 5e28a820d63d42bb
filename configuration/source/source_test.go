// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
		if err := os.WriteFile(path, []byte(c.content), c.mode); err != nil {
			t.Fatal(err)
		}

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
