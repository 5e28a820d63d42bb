// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/contiv/cluster/configuration"
)

// Script runs a script of sh as root on a host, over ssh with the settings of a run, and
// gives it input. The script is visible in the process list of the host, and the input
// is not. Script blocks until the script has ended or run into a timeout of some
// seconds, or ctx ends.
func (p *Prober) Script(ctx context.Context, h configuration.Host, script string, input []byte) error {
	p.once.Do(p.makeSlots)

	// A host that is down takes no slot from the others.
	if h.Connection.Jump == "" {
		if r := probePort(ctx, h); r.Port != "" {
			return errors.New(r.Port)
		}
	}

	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return errors.New(noAttempt(ctx).Login)
	}

	dir, remove, err := p.makeDir(h)
	if err != nil {
		return err
	}
	defer remove()

	command := "sh -c " + quote(script)
	if h.Connection.Become != nil && *h.Connection.Become {
		command = "sudo -n -u " + cmp.Or(h.Connection.BecomeUser, "root") + " " + command
	}

	r, failed := p.login(ctx, h, append(loginArgs(dir, h), "--", h.Addr, command), bytes.NewReader(input))
	if !r.OK() {
		return errors.New(r.Login)
	}

	return failed
}

// quote returns a word of the shell on the host.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
