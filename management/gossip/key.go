// SPDX-License-Identifier: Apache-2.0

package gossip

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/configuration/ansible"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
	"github.com/contiv/cluster/management/gossipkey"
	"github.com/contiv/cluster/monitor/serf"
)

// Keeper returns the keeper of the gossip key. The options have what is not about the gossip.
func (g *Gossip) Keeper(o gossipkey.Options, ssh *ansible.Prober) *gossipkey.Keeper {
	o.Former = filepath.Join(g.DataDir, "gossip-rotation.json")
	o.Ring, o.Pusher, o.Generate, o.Follow = g.ring, keyPusher{ssh}, serf.GenerateKey, g.follow

	k := gossipkey.New(o)
	g.set(func() { g.rotation = k.Rotation })

	return k
}

// keyFile is the file of the key, unless the configuration names one.
func (g *Gossip) keyFile() string { return filepath.Join(g.DataDir, KeyFile) }

// KeyFile is the name of the file with the gossip keys in the data directory.
const KeyFile = "gossip.key"

// follow replaces a key file whose key a rotation has replaced. An operator's own file stays as it
// is; the keyring counts more, until that file is changed.
func (g *Gossip) follow(r gossipkey.Rotation) error {
	if c := g.Config; c.Off || c.RPC != "" && c.KeyFile == "" {
		return nil
	}

	text, err := readKey(cmp.Or(g.Config.KeyFile, g.keyFile()), false)
	if err != nil {
		return err
	}

	first, _, _ := strings.Cut(text, "\n")

	switch {
	case !r.Supersedes(first):
		return nil
	case g.Config.KeyFile != "":
		g.Logger.WithField("key_file", g.Config.KeyFile).
			Warn("the gossip key was rotated; gossip.key_file still has the old one")

		return nil
	}

	keys, err := r.Keys()
	if err != nil {
		return err
	}
	return localfile.Replace(g.keyFile(), []byte(keys[0]+"\n"))
}

// readKey reads the key of the gossip. If create is set, it generates a missing one.
func readKey(path string, create bool) (string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && create {
		key := serf.GenerateKey()
		if err := localfile.Replace(path, []byte(key+"\n")); err != nil {
			return "", inventory.Errorf(inventory.KindUnavailable, "the gossip key cannot be written: %w", err)
		}
		return key, nil
	}

	if err != nil {
		return "", inventory.Errorf(inventory.KindInvalid, "the gossip key cannot be read: %w", err).
			Do("check gossip.key_file")
	}

	keys, err := serf.ParseKeys(string(data))
	if err != nil {
		return "", inventory.Errorf(inventory.KindInvalid, "%s holds no gossip key: %w", path, err)
	}
	return strings.Join(keys, "\n"), nil
}

// ring returns the gossip, with keys that can be rotated.
func (g *Gossip) ring() (gossipkey.Ring, error) {
	g.mu.Lock()
	defer g.mu.Unlock()

	switch {
	case g.agent != nil:
		return g.agent, nil
	case g.remote == nil:
		return nil, inventory.Errorf(inventory.KindRefused,
			"this manager is outside the gossip (gossip: off), so it has no gossip key to rotate").
			Do("rotate it with the tools of the gossip")
	}

	if self, err := g.remote.Self(); err == nil && !self.Encrypted {
		return nil, inventory.Errorf(inventory.KindRefused, "the gossip of the serf agent at %s is not encrypted",
			g.Config.RPC).Do("run the serf agents with encrypt_key")
	}

	return g.remote, nil
}

// Keys returns the gossip keys as the text of a key file; empty without any.
func (g *Gossip) Keys() []byte {
	g.mu.Lock()
	defer g.mu.Unlock()

	keys := g.keys()
	if keys == "" {
		return nil
	}
	return []byte(keys + "\n")
}

// keys returns the gossip keys for a host that joins now, one per line, the one that
// encrypts first. The caller holds the lock.
func (g *Gossip) keys() string {
	if g.agent != nil {
		if keys, err := g.agent.Keys(context.Background()); err == nil {
			return strings.Join(keys, "\n")
		}
	}

	// The key file of an existing agent does not follow a rotation.
	if g.rotation != nil {
		r := g.rotation()
		if first, _, _ := strings.Cut(g.key, "\n"); r.Supersedes(first) {
			if keys, err := r.Keys(); err == nil {
				return strings.Join(keys, "\n")
			}
		}
	}

	return g.key
}

// keyPusher implements gossipkey.Pusher with the login of a ping.
type keyPusher struct{ prober *ansible.Prober }

// rekey replaces the keys of an agent by those on its stdin, as the role agent writes
// them.
const rekey = `set -e
umask 077
cd /etc/clusterm
test -e gossip.key || { echo 'it has no agent of clusterm' >&2; exit 1; }
cat >gossip.key.new
test -s gossip.key.new
mv gossip.key.new gossip.key
systemctl try-restart clusterm-agent`

// PushKeys replaces the keys of the agent on a host.
func (p keyPusher) PushKeys(ctx context.Context, h configuration.Host, keys []string) error {
	return p.prober.Script(ctx, h, rekey, []byte(strings.Join(keys, "\n")+"\n"))
}
