// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/clusterctl/bootstrap"
	"github.com/contiv/cluster/clusterctl/contexts"
	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
)

func bootstrapRows() rows {
	return rows{
		"bootstrap":    {local: true, formats: []string{}, complete: nothing, run: bootstrapFirst},
		"instance add": {formats: []string{}, complete: nothing, run: addInstance},
	}
}

// joinedWithin bounds the wait for a new instance to be alive for the manager.
const joinedWithin = 2 * time.Minute

// bootstrapFirst makes the first instance of a manager, and logs in to it.
func bootstrapFirst(ctx context.Context, c *call) error {
	if urlOnCommandLine(c.String("url")) {
		return exit.Usagef("bootstrap makes a new manager, and takes no --url").Try("drop --url")
	}

	target := c.args[0][strings.LastIndexByte(c.args[0], '@')+1:]
	name := cmp.Or(c.String("context"), target)

	if err := contexts.CheckName(name); err != nil {
		return exit.Usagef("%s", exit.Message(err)).Try("give the context another name: --context NAME")
	}

	h, err := bootstrap.Dial(ctx, c.bootstrapOptions(false))
	if err != nil {
		return err
	}
	defer h.Close()

	if err := h.Install(ctx); err != nil {
		return err
	}

	m, err := h.First(ctx, tokenName(time.Now()))
	if err != nil {
		return err
	}

	entry := contexts.Context{Name: name, URL: m.URL, Fingerprint: m.Fingerprint, Token: m.Token}

	// Only this answer has the token, so it is stored before anything else can fail.
	store := func(f *contexts.File) error {
		f.Set(entry)
		return nil
	}
	if err := updateContexts(store, func() {}); err != nil {
		return exit.Errorf(exit.Code(err), "the manager runs on %s, but its token cannot be stored: %s",
			target, exit.Message(err)).
			Try("mend that, and repeat the command, which makes another token; or make one on %s, as root: "+
				"clusterctl token create --role admin", target)
	}

	if err := c.logIn(ctx, entry); err != nil {
		return exit.Errorf(exit.Code(err), "the manager runs on %s, but the login failed: %s",
			target, exit.Message(err)).
			Try("its CA and the token are stored; open its port for this host, and then use them: "+
				"clusterctl context use %s", name)
	}

	c.say("the manager logs in to hosts with this key; add it to their ~/.ssh/authorized_keys, and then: "+
		"clusterctl discover ADDRESS…\n%s", m.Key)

	return nil
}

// addInstance makes a host a further instance of the manager.
func addInstance(ctx context.Context, c *call) error {
	h, err := bootstrap.Dial(ctx, c.bootstrapOptions(true))
	if err != nil {
		return err
	}
	defer h.Close()

	switch id, err := h.Identity(ctx); {
	case err != nil:
		return err
	case id != "":
		return c.keepInstance(ctx, h, id)
	}

	if err := h.Install(ctx); err != nil {
		return err
	}

	invitation, err := c.manager.Invite(ctx, api.InviteRequest{Expires: "15m"})
	if err != nil {
		return err
	}

	id, err := h.Join(ctx, invitation)
	if err != nil {
		return err
	}

	if err := c.awaitMember(ctx, id); err != nil {
		return err
	}

	return c.learnInstances(ctx)
}

// keepInstance leaves a host as it is that is an instance of the manager already, and starts it if it is not alive. It
// refuses one of another manager.
func (c *call) keepInstance(ctx context.Context, h *bootstrap.Host, id string) error {
	host := c.args[0]

	members, err := c.manager.Members(ctx)
	if err != nil {
		return err
	}

	i := slices.IndexFunc(members.Items, func(m api.Member) bool { return m.ID == id })

	switch {
	case i < 0:
		return exit.Errorf(exit.Refused, "%s is an instance already (%s), and this manager has none with its id: it "+
			"belongs to another manager, or was removed from this one; nothing was changed", host, print.Inline(id)).
			Try("add another host; or, to give up its nodes and jobs, run there as root, and repeat the command: " +
				"systemctl disable --now clusterm && mv /var/lib/clusterm /var/lib/clusterm.old")
	case members.Items[i].Alive:
		c.say("%s is the instance %s of this manager already; nothing was changed there", host, id)
		return c.learnInstances(ctx)
	}

	c.say("%s is the instance %s of this manager already, and is not alive: starting clusterm there", host, id)

	if err := h.Start(ctx); err != nil {
		return err
	}

	if err := c.awaitMember(ctx, id); err != nil {
		return err
	}

	return c.learnInstances(ctx)
}

// learnInstances adds what instances there are to the context in use, so that its commands outlive the loss of one.
func (c *call) learnInstances(ctx context.Context) error {
	used, err := place(c.String("url"), c.String("context"), urlOnCommandLine(c.String("url")))
	if err != nil || used.Token == "" {
		return err
	}

	path, err := contexts.Path()
	if err != nil {
		return err
	}

	f, err := contexts.Load(path)
	if err != nil {
		return err
	}

	i := slices.IndexFunc(
		f.Contexts,
		func(e contexts.Context) bool { return e.URL == used.URL && e.Token == used.Token },
	)
	if i < 0 {
		return nil
	}

	entry := f.Contexts[i]
	if _, err := c.tryLogin(ctx, &entry); err != nil {
		return err
	}

	return updateContexts(func(f *contexts.File) error {
		f.Set(entry)
		return nil
	}, func() {})
}

// awaitMember waits until the instance is alive.
func (c *call) awaitMember(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, joinedWithin)
	defer cancel()

	tick := time.NewTicker(time.Second)
	defer tick.Stop()

	for {
		list, err := c.manager.Members(ctx)

		i := slices.IndexFunc(list.Items, func(m api.Member) bool {
			return m.ID == id && m.Alive && (m.Etcd == api.EtcdVoter || m.Etcd == api.EtcdLearner)
		})
		if err == nil && i >= 0 {
			c.say("the instance %s on %s runs; etcd: %s", id, list.Items[i].Node, list.Items[i].Etcd)
			return nil
		}

		select {
		case <-ctx.Done():
			return cmp.Or(err, errors.New("the instance "+id+" joined, but is not alive for the manager"))
		case <-tick.C:
		}
	}
}

func (c *call) bootstrapOptions(further bool) bootstrap.Options {
	return bootstrap.Options{
		Target: c.args[0], SSH: c.StringSlice("ssh-option"), Package: c.String("package"), Config: c.String("config"),
		Port: c.text("port", "9443"), Further: further, Say: c.say,
	}
}

// tokenName returns a name that tells whose token it is, and is new.
func tokenName(now time.Time) string {
	who, host := "somebody", "somewhere"
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	if name, err := os.Hostname(); err == nil {
		host = name
	}

	return fmt.Sprintf("%s-%s-%s", who, host, now.UTC().Format("20060102-150405"))
}
