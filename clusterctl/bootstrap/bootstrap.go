// SPDX-License-Identifier: Apache-2.0

// Package bootstrap makes a fresh host the first instance of a manager, or a further one, over ssh. It uses the ssh of
// this host, so its configuration, agent and known hosts count. Every step may be repeated: a host that is an
// instance already is left as it is.
package bootstrap

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/management/api"
)

// Times of the steps. An installation loads packages.
const (
	shortStep   = time.Minute
	startStep   = 3 * time.Minute
	installStep = 15 * time.Minute

	maxOutput = 64 << 10 // bytes that are kept of the output of a step
)

// steps are the functions of the shell that run on the host.
//
//go:embed steps.sh
var steps string

// Options are the parameters of a bootstrap.
type Options struct {
	Target  string   // of ssh: [USER@]HOST, or a name in its configuration
	SSH     []string // further options of ssh, such as -p 2222
	Package string   // a .deb or .rpm file of clusterm
	Config  string   // the file for /etc/clusterm/clusterm.yaml; empty: the packaged one, which listens on Port
	Port    string   // of the API
	Further bool     // it becomes a further instance
	Say     func(format string, args ...any)
}

// Host is a connection to the host.
type Host struct {
	o    Options
	dir  string // of the socket of the connection that all steps share
	sudo bool
}

// Manager is what a client needs to know of a new manager.
type Manager struct {
	URL, Fingerprint, Token string
	Key                     string // the public key with which it logs in to hosts
}

// Dial checks the files and the host, and changes nothing.
func Dial(ctx context.Context, o Options) (*Host, error) {
	// ssh would take it for an option.
	if o.Target == "" || strings.HasPrefix(o.Target, "-") {
		return nil, exit.Usagef("%q is no host", o.Target).Try("write root@HOST")
	}

	if _, err := o.remotePackage(); err != nil {
		return nil, err
	}

	for _, path := range []string{o.Package, o.Config} {
		if path == "" {
			continue
		}
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return nil, exit.Usagef("there is no file %s", path).
				Try("on a machine with a clone of the project, make deb writes the package to dist/")
		}
	}

	dir, err := os.MkdirTemp("", "clusterctl-")
	if err != nil {
		return nil, err
	}
	h := &Host{o: o, dir: dir}

	if err := h.check(ctx); err != nil {
		h.Close()
		return nil, err
	}

	return h, nil
}

// check looks at the host.
func (h *Host) check(ctx context.Context) error {
	user, err := h.run(ctx, shortStep, "id -u", nil)
	if err != nil {
		return err
	}
	h.sudo = strings.TrimSpace(user) != "0"

	becomes := "first"
	if h.o.Further {
		becomes = "further"
	}
	_, err = h.step(ctx, shortStep, nil, "check", filepath.Ext(h.o.Package), becomes)

	return err
}

// remotePackage returns where the package is put on the host.
func (o Options) remotePackage() (string, error) {
	switch kind := filepath.Ext(o.Package); kind {
	case ".deb", ".rpm":
		return "/var/cache/clusterm-bootstrap" + kind, nil
	default:
		return "", exit.Usagef("%q is no package", o.Package).
			Try("give a .deb or .rpm file of clusterm: --package FILE")
	}
}

// Close ends the connection.
func (h *Host) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	_ = h.ssh(ctx, h.args("-O", "exit")).Run() // there may be none
	_ = os.RemoveAll(h.dir)
}

// Install installs the package and the configuration, and starts nothing.
func (h *Host) Install(ctx context.Context) error {
	remote, err := h.o.remotePackage()
	if err != nil {
		return err
	}

	h.o.Say("%s: copying %s", h.o.Target, filepath.Base(h.o.Package))
	if err := h.put(ctx, h.o.Package, "put", remote); err != nil {
		return err
	}

	h.o.Say("%s: installing it, and what it needs", h.o.Target)
	if _, err := h.step(ctx, installStep, nil, "install_package", remote); err != nil {
		return err
	}

	if h.o.Config != "" {
		return h.put(ctx, h.o.Config, "configure")
	}
	_, err = h.step(ctx, shortStep, nil, "listen", net.JoinHostPort("0.0.0.0", h.o.Port))

	return err
}

// put gives a file of this host to a step.
func (h *Host) put(ctx context.Context, path, step string, args ...string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()

	_, err = h.step(ctx, installStep, f, step, args...)

	return err
}

// First makes the host the first instance. The token is of the role admin, and has the name for the lists.
func (h *Host) First(ctx context.Context, tokenName string) (m Manager, err error) {
	h.o.Say("%s: starting clusterm", h.o.Target)

	if m.Key, err = h.step(ctx, startStep, nil, "first"); err != nil {
		return m, err
	}
	if m.Fingerprint, err = h.step(ctx, shortStep, nil, "fingerprint"); err != nil {
		return m, err
	}

	name, err := h.name(ctx)
	if err != nil {
		return m, err
	}
	m.URL = "https://" + net.JoinHostPort(name, h.o.Port)

	m.Token, err = h.step(ctx, shortStep, nil, "token", tokenName)

	return m, err
}

// Identity returns the id of the instance that the host is, or "" if it is none.
func (h *Host) Identity(ctx context.Context) (string, error) {
	return h.step(ctx, shortStep, nil, "identity")
}

// Start starts clusterm on a host that is an instance, and waits until it is healthy.
func (h *Host) Start(ctx context.Context) error {
	_, err := h.step(ctx, startStep, nil, "start")
	return err
}

// Join makes the host a further instance, and returns its id. The invitation is of the manager.
func (h *Host) Join(ctx context.Context, invitation api.Invite) (id string, err error) {
	urls := strings.Join(invitation.URLs, ",") // the first one may be down
	h.o.Say("%s: joining the manager at %s", h.o.Target, urls)

	return h.step(ctx, 5*time.Minute, strings.NewReader(invitation.Token+"\n"), "join",
		urls, invitation.Fingerprint)
}

// name returns the name or the address at which ssh reaches the host.
func (h *Host) name(ctx context.Context) (string, error) {
	out, err := h.ssh(ctx, h.args("-G")).Output()
	if err != nil {
		return "", fmt.Errorf("ssh does not know the address of %s: %w", h.o.Target, err)
	}

	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(line, "hostname "); ok {
			return strings.TrimSpace(name), nil
		}
	}

	return "", fmt.Errorf("ssh does not know the address of %s", h.o.Target)
}

// args are the arguments of ssh before the command, which runs over one connection for all steps.
func (h *Host) args(more ...string) []string {
	args := []string{
		"-o", "ControlMaster=auto", "-o", "ControlPath=" + filepath.Join(h.dir, "s"), "-o", "ControlPersist=60",
		"-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=10", "-T",
	}
	args = append(args, h.o.SSH...)
	args = append(args, more...)

	return append(args, "--", h.o.Target)
}

func (h *Host) ssh(ctx context.Context, args []string) *exec.Cmd {
	return exec.CommandContext(ctx, "ssh", args...) //nolint:gosec // the options are the operator's own
}

// step runs a function of steps.sh as root.
func (h *Host) step(ctx context.Context, limit time.Duration, in io.Reader, function string, args ...string) (
	string, error,
) {
	command := "sh -c " + api.ShellQuote(steps+"\n\"$@\"") + " clusterctl " + function
	for _, a := range args {
		command += " " + api.ShellQuote(a)
	}

	if h.sudo {
		command = "sudo -n " + command
	}

	return h.run(ctx, limit, command, in)
}

// run runs a command on the host, and returns its output without the last newline.
func (h *Host) run(ctx context.Context, limit time.Duration, command string, in io.Reader) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	cmd := h.ssh(ctx, append(h.args(), command))
	cmd.Stdin = in
	cmd.WaitDelay = 5 * time.Second

	var out, problem tail
	cmd.Stdout, cmd.Stderr = &out, &problem

	err := cmd.Run()
	if err == nil {
		return strings.TrimSpace(out.String()), nil
	}

	if ctx.Err() != nil {
		return "", fmt.Errorf("%s: no end within %s: %w", h.o.Target, limit, context.Cause(ctx))
	}

	text := strings.TrimSpace(problem.String())
	if text == "" {
		text = err.Error()
	}

	failed := exit.Errorf(exit.Failed, "%s: %s", h.o.Target, text)

	var status *exec.ExitError
	if errors.As(err, &status) && status.ExitCode() == 255 { // of ssh itself
		return "", failed.Try("log in by hand first: ssh %s", h.o.Target)
	}

	return "", failed
}

// tail keeps the end of what is written.
type tail struct{ bytes.Buffer }

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	n, err := t.Buffer.Write(p)
	if t.Len() > maxOutput {
		t.Next(t.Len() - maxOutput)
	}

	return n, err
}
