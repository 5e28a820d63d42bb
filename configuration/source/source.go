// SPDX-License-Identifier: Apache-2.0

// Package source reads the values of secrets from outside: from a file, or from the
// output of a command. It also runs other programs that the configuration names. The caller
// has checked the owner of the file or the program.
package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

// The bounds of one secret.
const (
	// Timeout bounds a command, with all processes of its group.
	Timeout = 30 * time.Second
	// MaxBytes bounds a value.
	MaxBytes = 64 << 10

	maxStderr = 1000 // bytes of a command's errors that are shown
)

// File returns the content of a file of this account, without a newline at its end. A
// file that other accounts can read is refused.
func File(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()

	info, err := f.Stat()

	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a file", path)
	case info.Mode().Perm()&0o077 != 0:
		return "", inventory.Errorf(inventory.KindRefused, "others can read %s (mode %04o)", path, info.Mode().Perm()).
			Do("chmod 600 %s", path)
	}

	content, err := io.ReadAll(io.LimitReader(f, MaxBytes+2))
	if err != nil {
		return "", err
	}
	return value(content)
}

// Command runs a program and returns its standard output, without a newline at its end.
// It runs in / with a minimal environment. Errors contain the beginning of its standard error,
// without any line of its output.
//
// Its process group is killed with it, a second later at most. A process that left the group, as
// with setsid, goes on without its output.
func Command(ctx context.Context, path string, args ...string) (string, error) {
	stdout, err := run(ctx, Timeout, nil, path, args)
	if err != nil {
		return "", err
	}
	return value(stdout)
}

// Check runs a program as Command does, for at most that long and with the further variables
// NAME=VALUE of the environment. It returns nil if the exit status is 0.
func Check(ctx context.Context, within time.Duration, env []string, path string, args ...string) error {
	_, err := run(ctx, within, env, path, args)
	return err
}

// run runs a program and returns its standard output.
func run(ctx context.Context, within time.Duration, env []string, path string, args []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()

	//nolint:gosec // only the configuration file of root names programs
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = "/"
	cmd.Env = append(environment(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	// The group, because a child would keep the pipes open.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second

	stdout, stderr := &bounded{limit: MaxBytes + 2}, &bounded{limit: 4 * maxStderr}
	cmd.Stdout, cmd.Stderr = stdout, stderr

	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}

	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // the exit status is 0
		return stdout.Bytes(), nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("%s did not end within %s%s", path, within, shown(stdout, stderr))
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}

	return nil, fmt.Errorf("%s failed: %w%s", path, err, shown(stdout, stderr))
}

// environment is the environment of a command: nothing of the daemon's but the paths.
func environment() []string {
	env := []string{"LC_ALL=C.UTF-8"}
	for _, name := range []string{"PATH", "HOME"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}

	return env
}

// value checks the text of a secret. Errors do not contain it.
func value(content []byte) (string, error) {
	content = bytes.TrimSuffix(bytes.TrimSuffix(content, []byte("\n")), []byte("\r"))

	switch {
	case len(content) == 0:
		return "", errors.New("the value is empty")
	case len(content) > MaxBytes:
		return "", fmt.Errorf("the value is longer than %d bytes", MaxBytes)
	case !utf8.Valid(content), bytes.IndexByte(content, 0) >= 0:
		return "", errors.New("the value is not text in UTF-8")
	}

	return string(content), nil
}

// shown returns the beginning of a command's errors for a message.
func shown(stdout, stderr *bounded) string {
	secret := configuration.Vars{"output": configuration.NewSecret(stdout.String())}
	texts := configuration.Secrets(nil).Values(secret)
	masked := configuration.NewMask(nil, texts).MaskText(stderr.String())

	text := strings.Join(strings.Fields(strings.ToValidUTF8(masked, "?")), " ")
	if text == "" {
		return ""
	}
	return ": " + inventory.Shorten(text, maxStderr)
}

// bounded keeps the first bytes that are written to it.
type bounded struct {
	bytes.Buffer

	limit int
}

func (b *bounded) Write(p []byte) (int, error) {
	keep := min(len(p), b.limit-b.Len())
	b.Buffer.Write(p[:keep])
	return len(p), nil
}
