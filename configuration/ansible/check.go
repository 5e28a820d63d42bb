// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"bytes"
	"cmp"
	"context"
	"errors"
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

// MinVersion is the oldest ansible-core that a run works with.
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

// Check finds ansible-playbook (a path, a name in PATH, or "" for the usual
// name) and returns its version. Missing, broken and too old are errors that
// say what to do.
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
		return Version{}, inventory.Errorf(inventory.KindUnavailable, "%s --version printed %q, not a version", path, firstBytes(out, 80)).
			Do("install ansible-core %s or later", MinVersion)
	}

	var v Version
	for i, to := range []*int{&v.Major, &v.Minor, &v.Patch} {
		*to, _ = strconv.Atoi(string(m[i+1])) // the pattern lets only digits through; an absent patch is 0
	}

	if v.Less(MinVersion) {
		return v, inventory.Errorf(inventory.KindUnavailable, "%s is ansible-core %s, which is too old", path, v).
			Do("install ansible-core %s or later", MinVersion)
	}

	return v, nil
}

func lookPath(command string) (string, error) {
	path, err := exec.LookPath(cmp.Or(command, defaultPlaybookCommand))
	if err == nil {
		path, err = filepath.Abs(path)
	}

	if err != nil {
		return "", inventory.Errorf(inventory.KindUnavailable, "ansible-playbook cannot be run: %w", err).
			Do("install ansible-core %s or later (on Debian: apt install ansible-core), or configure the path of ansible-playbook", MinVersion)
	}

	return path, nil
}

// runShort runs a command that should end soon and returns what it prints. Its
// whole process group ends with ctx. The error holds the end of stderr.
func runShort(ctx context.Context, dir string, env []string, path string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, shortCommandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	cmd.Env = append(passEnv(nil), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr

	err := cmd.Run()
	switch {
	case err == nil:
		return stdout.Bytes(), nil
	case context.Cause(ctx) != nil:
		return nil, fmt.Errorf("no answer: %w", context.Cause(ctx))
	}

	if said := strings.TrimSpace(stderr.String()); said != "" {
		return stdout.Bytes(), &commandError{err, said}
	}

	return stdout.Bytes(), err
}

type commandError struct {
	err  error
	said string // stderr, trimmed
}

func (e *commandError) Error() string { return e.err.Error() + ": " + firstBytes([]byte(e.said), 2048) }
func (e *commandError) Unwrap() error { return e.err }

func firstBytes(b []byte, n int) string {
	if len(b) > n {
		return strings.ToValidUTF8(string(b[:n]), "") + "…"
	}

	return string(b)
}

// passedEnv are the names of what ansible-playbook is given of the daemon's
// environment. Nothing else reaches it, ANSIBLE_… least of all.
var passedEnv = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TZ",
	"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy",
	"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY",
}

// passEnv picks passedEnv and more of this process's environment. The locale
// is always C.UTF-8: Ansible insists on UTF-8, and messages are read in English.
func passEnv(more []string) []string {
	var env []string
	for _, name := range slices.Concat(passedEnv, more) {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}

	if os.Getenv("PATH") == "" {
		env = append(env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}

	if os.Getenv("HOME") == "" {
		if u, err := user.Current(); err == nil {
			env = append(env, "HOME="+u.HomeDir)
		}
	}

	return append(
		env,
		"LANG=C.UTF-8",
		"LC_ALL=C.UTF-8",
		"PYTHONUNBUFFERED=1",
		"PYTHONDONTWRITEBYTECODE=1",
		"ANSIBLE_NOCOLOR=1",
	)
}

var errNotSafePath = errors.New("is not an absolute path of letters, digits and ._/@+,=-")

var safePathPattern = regexp.MustCompile(`^/[A-Za-z0-9._/@+=,-]*$`)

// safePath accepts what can stand unquoted in ansible.cfg, in ssh's options and
// in a list of paths.
func safePath(what, path string) error {
	if !safePathPattern.MatchString(path) || filepath.Clean(path) != path {
		return fmt.Errorf("%s %q %w", what, path, errNotSafePath)
	}

	return nil
}
