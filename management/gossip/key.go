// SPDX-License-Identifier: Apache-2.0

package gossip

import (
	"context"
	"encoding/json"
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

// Keeper returns the keeper of the gossip key, with the rotation of an earlier process. The options have what is not
// about the gossip.
func (g *Gossip) Keeper(o gossipkey.Options, ssh *ansible.Prober) (*gossipkey.Keeper, error) {
	o.Records = rotationFile(filepath.Join(g.DataDir, "gossip-rotation.json"))
	o.Ring, o.Pusher, o.Generate, o.Finish = g.ring, keyPusher{ssh}, serf.GenerateKey, g.finishRotation

	k, err := gossipkey.New(o)
	if err == nil {
		g.set(func() { g.rotation = k.Rotation })
	}
	return k, err
}

// keyFile is the file of the key, unless the configuration names one.
func (g *Gossip) keyFile() string { return filepath.Join(g.DataDir, "gossip.key") }

// finishRotation stores the key for the next start. An operator's own file stays as it
// is; the keyring counts more, until that file is changed.
func (g *Gossip) finishRotation(key string) error {
	if c := g.Config; c.KeyFile != "" || c.RPC != "" {
		g.Logger.WithField("key_file", c.KeyFile).
			Warn("the gossip key was rotated; gossip.key_file still has the old one")

		return nil
	}

	return localfile.Replace(g.keyFile(), []byte(key+"\n"))
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
			return strings.Join(r.Keys(), "\n")
		}
	}

	return g.key
}

// rotationFile keeps the record of the newest rotation. It implements
// gossipkey.Records.
type rotationFile string

// Load reads the record.
func (f rotationFile) Load() (gossipkey.Rotation, error) {
	var r gossipkey.Rotation

	b, err := os.ReadFile(string(f))
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}

	if err != nil {
		return r, inventory.Errorf(inventory.KindInvalid,
			"the record of the rotation of the gossip key cannot be read: %s: %w", string(f), err).
			Do("move the file away; an unfinished rotation can then be begun anew")
	}

	return r, nil
}

// Save replaces the record, durably.
func (f rotationFile) Save(r gossipkey.Rotation) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return localfile.Replace(string(f), append(b, '\n'))
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
