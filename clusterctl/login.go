// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/clusterctl/contexts"
	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
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
	address, name, err := c.loginTarget()
	if err != nil {
		return err
	}
	entry := contexts.Context{Name: name, URL: address}
	if err := c.trust(ctx, &entry); err != nil {
		return err
	}
	if entry.Token, err = c.token(ctx); err != nil {
		return err
	}

	// A context with a token that does not work helps nobody.
	m, err := client.New(client.Options{
		URL: address, Trust: client.Trust{Fingerprint: entry.Fingerprint, CA: []byte(entry.CA)}, Token: entry.Token,
		UserAgent: "clusterctl/" + c.app.Version.Version, Patience: impatient, Observe: c.observer(),
	})
	if err != nil {
		return err
	}
	v, err := m.Version(ctx)
	if err != nil {
		return err
	}

	return updateContexts(func(f *contexts.File) error {
		f.Set(entry)
		f.Current = name
		return nil
	}, func() { c.say("logged in to clusterm %s at %s as context %s", v.Version, address, name) })
}

// loginTarget returns the URL to log in to, and the name of its context.
func (c *call) loginTarget() (address, name string, err error) {
	address = c.args[0]
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" {
		return "", "", exit.Usagef("%q is not the URL of a manager", print.Inline(c.args[0])).
			Try("write https://HOST:PORT, with the port of the key listen in the manager's clusterm.yaml")
	}

	if urlOnCommandLine(c.String("url")) {
		return "", "", exit.Usagef("login takes its URL as an argument, and no --url").Try("drop --url")
	}

	name = cmp.Or(c.String("context"), u.Hostname())

	return strings.TrimSuffix(address, "/"), name, contexts.CheckName(name)
}

// trust sets the CA of the manager: that of an option, that of this host, or the
// presented one after a person has compared its fingerprint.
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

	ca, trusted, err := client.Certificate(ctx, entry.URL)
	if err != nil || trusted {
		return err
	}
	entry.Fingerprint = client.Fingerprint(ca)
	c.say("the CA of %s has the fingerprint\n  %s", entry.URL, entry.Fingerprint)
	c.warnOfNewCA(*entry)

	if !c.atTerminal() {
		return exit.Usagef("the fingerprint of the CA needs a confirmation, which takes a terminal").
			Try("compare it with `clusterm ca fingerprint` on the manager's host; then add --fingerprint %s",
				entry.Fingerprint)
	}

	yes, err := c.ask(ctx, "is it the output of `clusterm ca fingerprint` on the manager's host")
	if err != nil || yes {
		return err
	}

	return exit.Errorf(exit.Failed, "not confirmed; nothing was sent or stored").
		Try("if the fingerprints differ, the connection is intercepted, or the address is that of another host")
}

// warnOfNewCA warns if the context pinned another CA so far.
func (c *call) warnOfNewCA(entry contexts.Context) {
	path, err := contexts.Path()
	if err != nil {
		return
	}
	f, err := contexts.Load(path)
	if err != nil {
		return
	}
	old, err := f.Get(entry.Name)
	if err == nil && old.Fingerprint != "" && old.Fingerprint != entry.Fingerprint {
		c.say("warning: the context %s pinned another CA so far:\n  %s", entry.Name, old.Fingerprint)
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
