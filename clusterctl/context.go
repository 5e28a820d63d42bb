// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"

	"github.com/contiv/cluster/clusterctl/contexts"
	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// envContext is the environment variable with the name of a context.
const envContext = "CLUSTERCTL_CONTEXT"

// place returns the connection that the options and the environment select, by the
// values of --url and --context. urlFlag is set if --url is on the command line.
func place(url, name string, urlFlag bool) (client.Options, error) {
	if name != "" && urlFlag {
		return client.Options{}, exit.Usagef("--url and --context exclude each other").
			Try("drop one of the two options")
	}

	// An option has precedence over the environment.
	if url != "" && name == "" {
		trust, err := trustFor(url)
		return client.Options{URL: url, Trust: trust}, err
	}

	c, err := selected(name)

	return client.Options{URL: c.URL, Trust: trustOf(c), Token: c.Token}, err
}

// trustFor returns the CAs for a URL that is given without a context. They are those of the context with the URL.
// Another URL may be that of another instance of the selected manager, so its CA counts beside those that this host
// trusts. Tokens are for the URLs of their contexts only.
func trustFor(url string) (client.Trust, error) {
	path, err := contexts.Path()
	if err != nil || !strings.Contains(url, "https://") {
		return client.Trust{}, nil //nolint:nilerr // a service without a home has no contexts
	}

	f, err := contexts.Load(path)
	if err != nil {
		return client.Trust{}, err
	}

	for _, c := range f.Contexts {
		has := func(u string) bool { return slices.Contains(client.URLs(c.URL), strings.TrimSuffix(u, "/")) }
		if slices.ContainsFunc(client.URLs(url), has) {
			return trustOf(c), nil
		}
	}

	c, err := selected("")
	trust := trustOf(c)
	trust.Host = true

	return trust, err
}

func trustOf(c contexts.Context) client.Trust {
	return client.Trust{Fingerprint: c.Fingerprint, CA: []byte(c.CA)}
}

// selected returns the context with the name. Without a name, it is that of the environment or the one in use. The
// manager on this host has an empty one.
func selected(name string) (contexts.Context, error) {
	path, err := contexts.Path()
	if err != nil && cmp.Or(name, os.Getenv(envContext)) == "" {
		return contexts.Context{}, nil // a service without a home has no contexts
	}

	if err != nil {
		return contexts.Context{}, err
	}

	if name = cmp.Or(name, os.Getenv(envContext)); name == contexts.Local {
		return contexts.Context{}, nil
	}

	f, err := contexts.Load(path)
	if err != nil {
		return contexts.Context{}, err
	}
	if name = cmp.Or(name, f.Current, contexts.Local); name == contexts.Local {
		return contexts.Context{}, nil
	}

	return f.Get(name)
}

// urlOnCommandLine reports whether --url has a value that is not from the
// environment.
func urlOnCommandLine(url string) bool { return url != "" && url != os.Getenv("CLUSTERM_URL") }

func contextRows() rows {
	return rows{
		"context list": {local: true, run: contextList},
		"context use": {
			local:    true,
			formats:  []string{},
			complete: func(context.Context, *completer, string) []candidate { return words(contextNames()...) },
			run: func(_ context.Context, c *call) error {
				name := c.args[0]

				return updateContexts(func(f *contexts.File) error {
					if name == contexts.Local {
						f.Current = ""
						return nil
					}

					_, err := f.Get(name)
					f.Current = name

					return err
				}, func() { c.say("commands now reach %s", name) })
			},
		},
		"context remove": {
			local:    true,
			formats:  []string{},
			complete: func(context.Context, *completer, string) []candidate { return words(contextNames()[1:]...) },
			run: func(_ context.Context, c *call) error {
				name := c.args[0]

				return updateContexts(func(f *contexts.File) error {
					_, err := f.Get(name)
					f.Remove(name)
					return err
				}, func() { c.say("removed: %s", name) })
			},
		},
	}
}

// updateContexts changes the file with the contexts, and then calls done.
func updateContexts(change func(*contexts.File) error, done func()) error {
	path, err := contexts.Path()
	if err != nil {
		return err
	}
	if err := contexts.Update(path, change); err != nil {
		return err
	}

	done()

	return nil
}

// contextRow is a context without its secrets.
type contextRow struct {
	Name        string `json:"name"`
	Current     bool   `json:"current"`
	URL         string `json:"url"`
	Fingerprint string `json:"ca_fingerprint,omitempty"`
	HasToken    bool   `json:"has_token"`
}

func contextList(ctx context.Context, c *call) error {
	path, err := contexts.Path()
	if err != nil {
		return err
	}
	f, err := contexts.Load(path)
	if err != nil {
		return err
	}
	current := cmp.Or(f.Current, contexts.Local)
	list := []contextRow{{Name: contexts.Local, Current: current == contexts.Local, URL: "unix://" + api.DefaultSocket}}

	for _, name := range f.Names()[1:] {
		x, err := f.Get(name)
		if err != nil {
			return err
		}
		list = append(list, contextRow{name, name == current, x.URL, x.Fingerprint, x.Token != ""})
	}

	known := listing[contextRow]{answer: map[string]any{"items": list}, items: list}

	return noun[contextRow]{
		columns: contextColumns, name: func(x contextRow) string { return x.Name },
		all: func(context.Context, *call) (listing[contextRow], error) { return known, nil },
	}.showAll(ctx, c)
}

var contextColumns = print.ColumnsOf(print.Cells[contextRow]{
	"used": func(_ print.Paint, x *contextRow) string {
		if x.Current {
			return "*"
		}
		return ""
	},
}, "used", "name", "url", "token=has_token", "CA=ca_fingerprint,wide")

// contextNames returns the names of all contexts, the local one first.
func contextNames() []string {
	path, err := contexts.Path()
	if err != nil {
		return []string{contexts.Local}
	}

	// A file that cannot be read only costs the candidates.
	f, _ := contexts.Load(path)

	return f.Names()
}
