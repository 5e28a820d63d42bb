// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"slices"
	"strings"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
)

func trustRows() rows {
	return rows{
		"nodes trust": {selects: true, names: true, formats: tableFormats, run: trustNodes},
	}
}

func trustNodes(ctx context.Context, c *call) error {
	if err := c.selectEach(ctx); err != nil {
		return err
	}

	given := api.HostKeyTrust{
		Key: c.String("host-key"), Fingerprint: c.String("fingerprint"), Reason: c.String("reason"),
		SetAside: c.Bool("set-aside"),
	}
	isGiven := c.IsSet("host-key") || c.IsSet("fingerprint")

	switch {
	case given.SetAside && given.Reason == "":
		return exit.Usagef("--set-aside needs a reason").Try("give --reason")
	case c.IsSet("host-key") && c.IsSet("fingerprint"):
		return exit.Usagef("--host-key and --fingerprint exclude each other").Try("give one of them")
	case isGiven && len(c.args) > 1:
		return exit.Usagef("a given key belongs to one node, and %d are named", len(c.args)).
			Try("repeat the command for each node")
	}

	list := api.List[api.Node]{Items: []api.Node{}}

	for _, name := range c.args {
		trust := given
		if !isGiven {
			key, err := c.compareHostKey(ctx, name, given.SetAside)
			if err != nil {
				return err
			}
			trust.Fingerprint = key
		}

		n, err := c.trustNode(ctx, name, trust)
		if err != nil {
			return err
		}
		list.Items = append(list.Items, n)
		list.Total, list.Revision = len(list.Items), n.Revision
	}

	return c.showNodes(list, list.Items, print.HostKeyDetails)
}

// compareHostKey shows the recorded and the present keys of a node, and asks. It
// returns the fingerprint to trust, or "" if the node shows its recorded key, unless
// that is to be trusted again.
func (c *call) compareHostKey(ctx context.Context, name string, again bool) (string, error) {
	keys, err := c.manager.ScanHostKeys(ctx, name)
	if err != nil {
		return "", err
	}
	isRecorded := func(k api.HostKey) bool { return slices.Contains(keys.Recorded, k) }
	if i := slices.IndexFunc(keys.Shown, isRecorded); i >= 0 && again {
		return keys.Shown[i].Fingerprint, nil
	} else if i >= 0 || len(keys.Shown) == 0 {
		return "", nil
	}

	c.say("%s at %s", keys.Node, keys.Addr)
	c.say("  recorded: %s", fingerprints(keys.Recorded))
	c.say("  shown:    %s", fingerprints(keys.Shown))

	refusal := exit.Errorf(exit.Failed, "the ssh host key of %s was not compared; nothing was changed", keys.Node).
		Try("if it is the right one: %s nodes trust %s --fingerprint %s",
			c.self(), keys.Node, keys.Shown[0].Fingerprint)

	err = c.approve(ctx, "record "+fingerprints(keys.Shown[:1])+" for "+keys.Node, refusal)

	return keys.Shown[0].Fingerprint, err
}

// trustNode records the key. Without one it returns the node as it is.
func (c *call) trustNode(ctx context.Context, name string, t api.HostKeyTrust) (api.Node, error) {
	if t.Key == "" && t.Fingerprint == "" && !c.IsSet("host-key") && !c.IsSet("fingerprint") {
		c.say("%s shows its recorded host key; nothing was changed", name)
		return c.manager.Node(ctx, name)
	}

	return c.manager.TrustHostKey(ctx, name, t)
}

// fingerprints returns the types and the fingerprints of keys.
func fingerprints(keys []api.HostKey) string {
	if len(keys) == 0 {
		return "none"
	}

	words := make([]string, len(keys))
	for i, k := range keys {
		kind, _, _ := strings.Cut(k.Key, " ")
		words[i] = kind + " " + k.Fingerprint
	}

	return strings.Join(words, ", ")
}
