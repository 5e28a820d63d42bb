// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/contiv/cluster/configuration"
)

// hostKeyTypes are the types of host keys that are asked for, the preferred one first.
var hostKeyTypes = []string{
	"ssh-ed25519",
	"ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521",
	"rsa-sha2-512,rsa-sha2-256",
}

// HostKeys returns the host keys that a host shows, in the form of
// configuration.Host.HostKeys, the preferred one first. It reaches the host with its
// connection settings, offers no credential, and neither reads nor records a key. It
// blocks until the host has answered or has run into a timeout, or ctx ends.
func (p *Prober) HostKeys(ctx context.Context, h configuration.Host) ([]string, error) {
	h.HostKeys, h.HostCAs, h.Taken = nil, nil, nil

	// The port first: its failures have a plain reason.
	if h.Connection.Jump == "" {
		if r := p.probePort(ctx, h); r.Port != "" {
			return nil, errors.New(r.Port)
		}
	}

	shown := make([][]string, len(hostKeyTypes))
	failed := make([]error, len(hostKeyTypes))

	var asking sync.WaitGroup
	for i, types := range hostKeyTypes {
		asking.Go(func() { shown[i], failed[i] = p.keysOfType(ctx, h, types) })
	}

	asking.Wait()

	// A host has no key of some types.
	if keys := slices.Concat(shown...); len(keys) > 0 {
		return keys, nil
	}

	return nil, cmp.Or(failed[0], errors.New("it showed no host key"))
}

// keysOfType returns the key of one of the types that the host proves to have.
func (p *Prober) keysOfType(ctx context.Context, h configuration.Host, types string) ([]string, error) {
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

	args := append([]string{
		"-o", "HostKeyAlgorithms=" + types, "-o", "PreferredAuthentications=none", "-o", "PubkeyAuthentication=no",
	}, loginArgs(dir, h)...)
	login, _ := p.login(ctx, h, append(args, "--", h.Addr, "true"), nil, nil)

	// The login is denied, but ssh has recorded the key before.
	b, err := os.ReadFile(filepath.Join(dir, fileKnownHosts))
	if err != nil {
		return nil, err
	}
	keys := configuration.ParseKnownHosts(b)[strings.ToLower(h.Name)]
	if len(keys) == 0 && !login.OK() {
		return nil, errors.New(login.Login)
	}
	return keys, nil
}
