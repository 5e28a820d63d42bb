// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
)

//go:embed run_program.sh
var runProgram string

// programMark begins the line before the output of a program: the shell of the account may print lines of its own.
const programMark = "clusterm-program "

// programTimeout bounds the login, the transfer and the run of a program.
const programTimeout = time.Minute

// RunProgram sends a program to a host, runs it there as the account of the plays, and removes it. It returns what the
// program has written. If the host could not be reached, r says why. RunProgram does not wait for a turn: the caller
// bounds how many run at a time. It blocks for at most two minutes, or until ctx ends.
func (p *Prober) RunProgram(
	ctx context.Context, h configuration.Host, program configuration.Program,
) (output []byte, r configuration.Reach, err error) {
	if h.Connection.Jump == "" {
		if r := p.probePort(ctx, h); !r.OK() {
			return nil, r, errors.New(r.Port)
		}
	}

	output, r, other, err := p.runProgram(ctx, h, program, program.Arch)
	if err == nil && other != "" {
		var again string
		if output, r, again, err = p.runProgram(ctx, h, program, other); again != "" {
			err = fmt.Errorf("the host is %q and %q by turns", other, again)
		}
	}

	return output, r, err
}

// runProgram runs the program for an architecture. other is the one of the host, if it is not that.
func (p *Prober) runProgram(
	ctx context.Context, h configuration.Host, program configuration.Program, arch string,
) (output []byte, r configuration.Reach, other string, err error) {
	content, err := program.For(arch)
	if err != nil {
		return nil, r, "", err
	}

	dir, remove, err := p.makeDir(h)
	if err != nil {
		return nil, r, "", err
	}
	defer remove()

	line := shell(runProgram, arch)
	if becomes(h) {
		line = "sudo -n -u " + cmp.Or(h.Connection.BecomeUser, "root") + " " + line
	}

	// The shell of the account may print a greeting first.
	const greeting = 64 << 10

	all := beginning{limit: program.Limit + greeting}
	r, failed := p.run(ctx, h, sshCall{
		args: append(loginArgs(dir, h), "--", h.Addr, line), stdin: bytes.NewReader(content), stdout: &all,
		within: programTimeout, late: "the program on the host has not ended within %s",
	})

	switch {
	case !r.OK():
		return nil, r, "", errors.New(r.Login)
	case failed != nil:
		return nil, r, "", failed
	case all.more:
		return nil, r, "", fmt.Errorf("the host has answered with more than %d bytes", program.Limit)
	}

	_, rest, found := bytes.Cut(append([]byte("\n"), all.Bytes()...), []byte("\n"+programMark))
	header, output, complete := bytes.Cut(rest, []byte("\n"))
	word, arch, _ := strings.Cut(string(header), " ")

	switch {
	case !found || !complete:
	case word == "output" && len(output) <= program.Limit:
		return output, r, "", nil
	case word == "arch" && arch != "" && len(arch) < 32:
		return nil, r, arch, nil
	}

	return nil, r, "", errors.New("the host has answered with something else than the output of the program")
}
