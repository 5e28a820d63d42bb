// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/clusterctl/contexts"
	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

func loginRows() rows {
	return rows{
		"login": {local: true, formats: []string{}, complete: nothing, run: login},
		"logout": {
			local:   true,
			formats: []string{},
			run: func(_ context.Context, c *call) error {
				name := cmp.Or(c.String("context"), os.Getenv(envContext))

				return updateContexts(func(f *contexts.File) error {
					if name = cmp.Or(name, f.Current, contexts.Local); name == contexts.Local {
						return exit.Usagef("the manager on this host has no token").
							Try("name a context: clusterctl logout --context NAME")
					}

					entry, err := f.Get(name)
					if err != nil {
						return err
					}
					entry.Token = ""
					f.Set(entry)

					return nil
				}, func() { c.say("logged out of %s", name) })
			},
		},
	}
}

func login(ctx context.Context, c *call) error {
	urls, name, err := c.loginTarget()
	if err != nil {
		return err
	}
	entry := contexts.Context{Name: name, URL: strings.Join(urls, ",")}
	if err := c.trust(ctx, &entry); err != nil {
		return err
	}
	if entry.Token, err = c.token(ctx); err != nil {
		return err
	}

	return c.logIn(ctx, entry)
}

// logIn tries a context, and makes it the one in use.
func (c *call) logIn(ctx context.Context, entry contexts.Context) error {
	version, err := c.tryLogin(ctx, &entry)
	if err != nil {
		return err
	}

	return updateContexts(func(f *contexts.File) error {
		f.Set(entry)
		f.Current = entry.Name
		return nil
	}, func() { c.say("logged in to clusterm %s at %s as context %s", version, entry.URL, entry.Name) })
}

// loginTarget returns the URLs to log in to, and the name of their context.
func (c *call) loginTarget() (urls []string, name string, err error) {
	for _, given := range client.URLs(strings.Join(c.args, ",")) {
		address := given
		if !strings.Contains(address, "://") {
			address = "https://" + address
		}
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "https" || u.Hostname() == "" {
			return nil, "", exit.Usagef("%q is not the URL of a manager", print.Inline(given)).
				Try("write https://HOST:PORT, with the port of the key listen in the manager's clusterm.yaml")
		}

		urls = append(urls, strings.TrimSuffix(address, "/"))
		name = cmp.Or(name, u.Hostname())
	}

	if len(urls) == 0 {
		return nil, "", exit.Usagef("the URL of the manager is empty").Try("write https://HOST:PORT")
	}

	if urlOnCommandLine(c.String("url")) {
		return nil, "", exit.Usagef("login takes its URL as an argument, and no --url").Try("drop --url")
	}

	name = cmp.Or(c.String("context"), name)

	return urls, name, contexts.CheckName(name)
}

// tryLogin tries a context at each of its URLs: one without a working token helps nobody. It adds the other instances
// of the manager, and returns the manager's version.
func (c *call) tryLogin(ctx context.Context, entry *contexts.Context) (version string, err error) {
	var (
		instances []api.Instance
		down      error
	)

	known := map[string]bool{} // ids of instances

	for _, at := range client.URLs(entry.URL) {
		m, err := c.managerAt(*entry, at)
		if err != nil {
			return "", err
		}

		v, err := m.Version(ctx)
		if down = cmp.Or(down, err); inventory.KindOf(err) == inventory.KindUnavailable {
			c.say("warning: %s", exit.Message(err))
			continue
		}

		if err != nil {
			return "", err
		}
		version = v.Version

		// A role that may not list the instances has those that it names.
		if list, err := m.Instances(ctx); err == nil {
			instances = list.Items
		}

		if h, err := m.Health(ctx); err == nil {
			known[h.Instance] = true
		}
	}

	if version == "" {
		return "", down
	}

	for _, i := range instances {
		if !known[i.ID] {
			c.addInstance(ctx, entry, i)
		}
	}

	return version, nil
}

// addInstance adds an instance to a context if the manager's record of it is true: its URL answers with the CA that the
// record names.
func (c *call) addInstance(ctx context.Context, entry *contexts.Context, i api.Instance) {
	for _, at := range i.API {
		if !strings.HasPrefix(at, "https://") || slices.Contains(client.URLs(entry.URL), at) {
			continue
		}

		with := *entry
		with.URL += "," + at

		if entry.Fingerprint != "" && i.CA != "" {
			pins, err := client.ParseFingerprint(entry.Fingerprint + "," + i.CA)
			if err != nil {
				continue
			}
			with.Fingerprint = pins
		}

		m, err := c.managerAt(with, at)
		if err == nil {
			_, err = m.Version(ctx)
		}

		if err != nil {
			c.say("the instance on %s is left out: %s", print.Inline(i.Node), exit.Message(err))
			continue
		}

		*entry = with
		c.say("added the instance on %s: %s", print.Inline(i.Node), at)
	}
}

// loginTime bounds each request of a login.
const loginTime = 10 * time.Second

// managerAt returns a client of a context for one of its URLs.
func (c *call) managerAt(entry contexts.Context, at string) (*client.Client, error) {
	return client.New(client.Options{
		URL: at, Trust: client.Trust{Fingerprint: entry.Fingerprint, CA: []byte(entry.CA)}, Token: entry.Token,
		UserAgent: "clusterctl/" + c.app.Version.Version, Timeout: loginTime, Patience: impatient,
		Observe: c.observer(entry.URL),
	})
}

// trust sets the CAs of the manager: those of an option, those of this host, or the
// presented ones after a person has compared their fingerprints.
func (c *call) trust(ctx context.Context, entry *contexts.Context) error {
	pin, file := c.String("fingerprint"), c.String("ca-file")

	switch {
	case pin != "" && file != "":
		return exit.Usagef("--fingerprint and --ca-file exclude each other").Try("drop one of the two options")
	case pin != "":
		var err error
		entry.Fingerprint, err = client.ParseFingerprint(pin)
		return err
	case file != "":
		pem, err := readFile(file)
		if err != nil {
			return exit.Usagef("cannot read the CA: %v", err)
		}
		entry.CA = string(pem)
		return nil
	}

	var pins []string

	for _, at := range client.URLs(entry.URL) {
		ca, trusted, err := client.Certificate(ctx, at)
		if err != nil {
			return err
		}

		if pin := client.Fingerprint(ca); !trusted && !slices.Contains(pins, pin) {
			pins = append(pins, pin)
			c.say("the CA of %s has the fingerprint\n  %s", at, pin)
			c.warnOfNewCA(entry.Name, pin)
		}
	}

	entry.Fingerprint = strings.Join(pins, ",")
	if len(pins) == 0 {
		return nil
	}

	if !c.atTerminal() {
		return exit.Usagef("the fingerprint of the CA needs a confirmation, which takes a terminal").
			Try("compare it with `clusterm ca fingerprint` on the manager's host; then add --fingerprint %s",
				entry.Fingerprint)
	}

	question := "is it the output of `clusterm ca fingerprint` on the manager's host"
	if len(pins) > 1 {
		question = "is each of them the output of `clusterm ca fingerprint` on its host"
	}

	yes, err := c.ask(ctx, question)
	if err != nil || yes {
		return err
	}

	return exit.Errorf(exit.Failed, "not confirmed; nothing was sent or stored").
		Try("if the fingerprints differ, the connection is intercepted, or the address is that of another host")
}

// warnOfNewCA warns if the context pinned other CAs so far.
func (c *call) warnOfNewCA(name, pin string) {
	path, err := contexts.Path()
	if err != nil {
		return
	}
	f, err := contexts.Load(path)
	if err != nil {
		return
	}
	old, err := f.Get(name)
	if err == nil && old.Fingerprint != "" && !strings.Contains(old.Fingerprint, pin) {
		c.say("warning: the context %s pinned another CA so far:\n  %s", name,
			strings.ReplaceAll(old.Fingerprint, ",", "\n  "))
	}
}

// token reads the token from the file, from stdin, or from a terminal without echo.
// It is never an argument, which other accounts of this host could see.
func (c *call) token(ctx context.Context) (string, error) {
	var (
		text string
		err  error
	)

	switch name := c.String("token-file"); {
	case name == "-":
		var all []byte
		all, err = c.readStdin(ctx)
		text = string(all)
	case name != "":
		return client.ReadToken(name)
	case c.atTerminal():
		text, err = c.typeSecret(ctx, "token: ")
	default:
		return "", exit.Usagef("the token needs a terminal").
			Try("give --token-file FILE, or --token-file - for stdin")
	}

	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}

	if err != nil {
		return "", exit.Usagef("cannot read the token: %v", err)
	}

	token := strings.TrimSpace(text)
	if token == "" || len(token) > client.MaxToken {
		return "", exit.Usagef("the token is empty, or longer than %d bytes", client.MaxToken).
			Try("an admin makes one on the manager's host: clusterctl token create --role operator")
	}

	return token, nil
}

// typeSecret reads a line from the terminal without echo.
func (c *call) typeSecret(ctx context.Context, prompt string) (string, error) {
	f, ok := c.Stdin.(*os.File)
	if !ok {
		return "", os.ErrInvalid
	}

	// Before the question: what is typed at once must not show.
	show, err := hideTyping(int(f.Fd()))
	if err != nil {
		return "", err
	}
	defer show()

	fmt.Fprint(c.Stderr, prompt)
	defer fmt.Fprintln(c.Stderr)

	return c.readLine(ctx)
}

// hideTyping ends the echo of a terminal until show is called.
func hideTyping(fd int) (show func(), err error) {
	was, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	hidden := *was
	hidden.Lflag &^= unix.ECHO
	hidden.Lflag |= unix.ICANON | unix.ISIG

	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, was) }, unix.IoctlSetTermios(fd, unix.TCSETS, &hidden)
}
