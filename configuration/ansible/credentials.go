// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

// Credentials logs in on a host with the settings of a run, and becomes the account of its plays, if they become one.
// It changes nothing there. keys are the ssh host keys of a first contact. The error has the cause and a remedy.
// Credentials blocks as Probe does.
func (p *Prober) Credentials(ctx context.Context, h configuration.Host) (keys []string, err error) {
	failed := func(format string, args ...any) *inventory.Error {
		return inventory.Errorf(inventory.KindUnavailable, format, args...)
	}

	if ctx.Err() != nil {
		return nil, failed("ssh to %s: %s", h.Addr, noAttempt(ctx).Login)
	}

	// A host that is down takes no slot from the others.
	if h.Connection.Jump == "" {
		if r := p.probePort(ctx, h); r.Port != "" {
			return nil, failed("ssh to %s: %s", h.Addr, r.Port).
				Do("check the host, its address and the port of its sshd")
		}
	}

	release, err := p.slot(ctx)
	if err != nil {
		return nil, failed("ssh to %s: %w", h.Addr, err)
	}
	defer release()

	dir, remove, err := p.makeDir(h)
	if err != nil {
		return nil, failed("ssh to %s: %w", h.Addr, err)
	}
	defer remove()

	command, account := "true", cmp.Or(h.Connection.BecomeUser, "root")
	if becomes(h) {
		command = "sudo -n -u " + account + " true"
	}

	// An explained reason has the remedy in words.
	r, refused := p.login(ctx, h, append(loginArgs(dir, h), "--", h.Addr, command), nil, nil)

	switch {
	case !r.OK():
		return nil, failed("ssh to %s: %s", h.Addr, r.Login)
	case refused != nil && becomes(h):
		return nil, failed("ssh to %s works, but sudo to %s fails: %w", h.Addr, account, refused).
			Do("allow sudo without a password (NOPASSWD) to the account, or change become of the connection")
	case refused != nil:
		return nil, failed("ssh to %s works, but the account can run no command: %w", h.Addr, refused).
			Do("give the account a shell")
	case len(h.HostKeys) > 0:
		return nil, nil
	}

	// ssh has recorded the key that it saw.
	shown, err := os.ReadFile(filepath.Join(dir, fileKnownHosts))
	if err != nil {
		return nil, failed("ssh to %s: its host key is lost: %w", h.Addr, err)
	}

	return configuration.ParseKnownHosts(shown)[strings.ToLower(h.Name)], nil
}
