// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/contiv/cluster/configuration"
)

// Script runs a script of sh as root on a host, over ssh with the settings of a run, and
// gives it input. The script is visible in the process list of the host, and the input
// is not. Script blocks until the script has ended or run into a timeout of some
// seconds, or ctx ends.
func (p *Prober) Script(ctx context.Context, h configuration.Host, script string, input []byte) error {
	command := "sh -c " + quote(script)
	if becomes(h) {
		command = "sudo -n -u " + cmp.Or(h.Connection.BecomeUser, "root") + " " + command
	}
	_, err := p.command(ctx, h, command, input)

	return err
}

// becomes reports whether the plays on a host become another account.
func becomes(h configuration.Host) bool { return h.Connection.Become != nil && *h.Connection.Become }

// maxOutput bounds the output of a command on a host, in bytes. It is larger than an
// authorized_keys file with the greetings of the account's shell.
const maxOutput = configuration.MaxAuthorizedKeys + 64<<10

// command runs a command line on a host, gives it input, and returns its output.
func (p *Prober) command(ctx context.Context, h configuration.Host, line string, input []byte) ([]byte, error) {
	// A host that is down takes no slot from the others.
	if h.Connection.Jump == "" {
		if r := p.probePort(ctx, h); r.Port != "" {
			return nil, errors.New(r.Port)
		}
	}

	release, err := p.slot(ctx)
	if err != nil {
		return nil, err
	}
	defer release()

	dir, remove, err := p.makeDir(h)
	if err != nil {
		return nil, err
	}
	defer remove()

	output := beginning{limit: maxOutput}
	r, failed := p.login(ctx, h, append(loginArgs(dir, h), "--", h.Addr, line), bytes.NewReader(input), &output)

	switch {
	case !r.OK():
		return nil, errors.New(r.Login)
	case failed == nil && output.more:
		return nil, fmt.Errorf("the host has answered with more than %d bytes", maxOutput)
	}

	return output.Bytes(), failed
}

// quote returns a word of the shell on the host.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
