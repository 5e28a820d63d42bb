// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/contiv/cluster/inventory"
)

// Version is a version of ansible-core.
type Version struct{ Major, Minor, Patch int }

// MinVersion is the oldest supported version of ansible-core.
var MinVersion = Version{2, 14, 0}

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// Less reports whether v is older than w.
func (v Version) Less(w Version) bool {
	return cmp.Or(cmp.Compare(v.Major, w.Major), cmp.Compare(v.Minor, w.Minor), cmp.Compare(v.Patch, w.Patch)) < 0
}

const (
	defaultPlaybookCommand = "ansible-playbook"
	shortCommandTimeout    = time.Minute
)

var versionLine = regexp.MustCompile(`^ansible-playbook (?:\[core )?(\d+)\.(\d+)(?:\.(\d+))?`)

// Check finds ansible-playbook (a path, a name in PATH, or "" for the default
// name) and returns its version. It starts a process and may take up to a
// minute. An ansible-playbook that is missing, broken or older than MinVersion
// is an error of kind unavailable.
func Check(ctx context.Context, ansiblePlaybook string) (Version, error) {
	path, err := lookPath(ansiblePlaybook)
	if err != nil {
		return Version{}, err
	}
	out, err := runShort(ctx, "", nil, path, "--version")
	if err != nil {
		return Version{}, inventory.Errorf(inventory.KindUnavailable, "%s --version failed: %w", path, err).
			Do("run it by hand and repair the installation")
	}

	m := versionLine.FindSubmatch(out)
	if m == nil {
		printed := firstBytes(out, 80)
		return Version{}, unavailable("%s --version printed %q, not a version", path, printed)
	}

	// The pattern matches digits only; a missing patch level is 0.
	var v Version
	for i, part := range []*int{&v.Major, &v.Minor, &v.Patch} {
		*part, _ = strconv.Atoi(string(m[i+1]))
	}

	if v.Less(MinVersion) {
		return v, unavailable("%s is ansible-core %s, which is too old", path, v)
	}

	return v, nil
}

func unavailable(format string, args ...any) error {
	return inventory.Errorf(inventory.KindUnavailable, format, args...).
		Do("install ansible-core %s or later", MinVersion)
}

func lookPath(command string) (string, error) {
	path, err := exec.LookPath(cmp.Or(command, defaultPlaybookCommand))
	if err == nil {
		path, err = filepath.Abs(path)
	}

	if err != nil {
		const remedy = "install ansible-core %s or later (on Debian: apt install ansible-core), " +
			"or configure the path of ansible-playbook"

		return "", inventory.Errorf(inventory.KindUnavailable, "ansible-playbook cannot be run: %w", err).
			Do(remedy, MinVersion)
	}

	return path, nil
}

// runShort is runFor with shortCommandTimeout.
func runShort(ctx context.Context, dir string, env []string, path string, args ...string) ([]byte, error) {
	return runFor(ctx, shortCommandTimeout, dir, env, path, args...)
}

// runFor runs a command for at most a time and returns its stdout. The command's
// process group is killed when ctx ends. If the command fails with output on
// stderr, the error is a commandError.
func runFor(
	ctx context.Context, limit time.Duration, dir string, env []string, path string, args ...string,
) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	var stdout, stderr bytes.Buffer

	//nolint:gosec // path is set in the configuration file only
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	cmd.Env = append(runEnv(nil), env...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr

	// A group of its own, so that the children of a script die with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second

	err := cmd.Run()
	switch {
	case err == nil:
		return stdout.Bytes(), nil
	case context.Cause(ctx) != nil:
		return nil, fmt.Errorf("no answer: %w", context.Cause(ctx))
	}

	if message := strings.TrimSpace(stderr.String()); message != "" {
		err = &commandError{err, message}
	}

	return stdout.Bytes(), err
}

// commandError is the failure of a command with its stderr, trimmed.
type commandError struct {
	err    error
	stderr string
}

func (e *commandError) Error() string {
	return e.err.Error() + ": " + firstBytes([]byte(e.stderr), 2048)
}
func (e *commandError) Unwrap() error { return e.err }

func firstBytes(b []byte, n int) string {
	if len(b) > n {
		return strings.ToValidUTF8(string(b[:n]), "") + "…"
	}
	return string(b)
}

// inheritedEnv names the variables of the daemon's environment that
// ansible-playbook inherits. No others reach it, ANSIBLE_… least of all.
var inheritedEnv = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TZ",
	"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy",
	"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY",
}

// runEnv returns the environment for ansible-playbook: the variables named in
// inheritedEnv and more, and a fixed locale.
func runEnv(more []string) []string {
	var env []string
	for _, name := range slices.Concat(inheritedEnv, more) {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}

	// A service manager may start the daemon without these.
	if os.Getenv("PATH") == "" {
		env = append(env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}

	if os.Getenv("HOME") == "" {
		if u, err := user.Current(); err == nil {
			env = append(env, "HOME="+u.HomeDir)
		}
	}

	// Ansible requires UTF-8, and the daemon parses messages in English.
	return append(
		env,
		"LANG=C.UTF-8",
		"LC_ALL=C.UTF-8",
		"PYTHONUNBUFFERED=1",
		"PYTHONDONTWRITEBYTECODE=1",
		"ANSIBLE_NOCOLOR=1",
	)
}
