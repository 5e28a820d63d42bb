// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strings"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// tokenEnv is the environment variable with a token.
const tokenEnv = "CLUSTERCTL_TOKEN" //nolint:gosec // a name, not a token

var tokens = noun[api.Token]{
	columns: print.TokenColumns,
	name:    func(t api.Token) string { return t.ID },
	empty:   "no tokens found",
	all:     every((*client.Client).Tokens),
}

func tokenRows() rows {
	return rows{
		"token create": {needs: "role", run: tokenCreate},
		"token list":   tokens.list(leaf{}),
		"token revoke": {
			complete: tokens.offer(func(t api.Token) candidate { return candidate{t.Name, t.Role} }),
			run:      onEach((*client.Client).RevokeToken, "the token %s is revoked"),
		},
	}
}

func tokenCreate(ctx context.Context, c *call) error {
	request := api.TokenRequest{Role: c.String("role"), Name: c.String("name"), Expires: c.text("expires", "720h")}
	// An empty flag, as of an unset variable, must not be every node.
	if c.IsSet("scope-group") || c.IsSet("scope-selector") {
		request.Scope = &api.Scope{Groups: c.StringSlice("scope-group"), Selector: c.String("scope-selector")}
	}

	made, err := createToken(ctx, c, request)
	if err != nil {
		return err
	}

	scope := ""
	if made.Record.Scope != nil {
		scope = " within the scope " + made.Record.Scope.String()
	}
	c.say("the token %s of the role %s%s expires at %s; it is not shown again",
		made.Record.Name, made.Record.Role, scope, made.Record.Expires.Format("2006-01-02 15:04:05 MST"))

	if c.IsSet("save") {
		c.say("it is in %s", c.String("save"))
		return nil
	}

	// A table is for people: only the token itself goes to a file.
	whole := func(p *print.Printer) { p.Printf("%s\n", made.Token) }

	return c.show(print.Answer{Wire: made, Names: []string{made.Record.ID}, Table: whole, Long: whole})
}

// createToken creates a token, and saves it if --save asks for that. The file comes
// first, so that no token is made that cannot be saved.
func createToken(ctx context.Context, c *call, r api.TokenRequest) (made api.NewToken, err error) {
	if !c.IsSet("save") {
		return c.manager.CreateToken(ctx, r)
	}

	path := c.String("save")

	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return made, inventory.Errorf(inventory.KindInvalid, "the token cannot be saved: %w", err).
			Do("name a file that does not exist yet, in a folder where you may write")
	}

	if made, err = c.manager.CreateToken(ctx, r); err == nil {
		_, err = file.WriteString(made.Token + "\n")
	}

	if err = errors.Join(err, file.Close()); err == nil {
		return made, nil
	}

	_ = os.Remove(path)

	// It may have been made.
	if made.Record.ID != "" {
		_, revokeErr := c.manager.RevokeToken(ctx, made.Record.ID)
		err = errors.Join(err, revokeErr)
	}

	return made, err
}

// useBearer sets the token to send: that of --token-file, or of the environment, or
// else that of the context.
func useBearer(o *client.Options, path string) error {
	if path == "" {
		o.Token = cmp.Or(os.Getenv(tokenEnv), o.Token)
		return nil
	}

	text, err := readFile(path)
	if err != nil {
		return exit.Usagef("cannot read the token: %v", err)
	}
	o.Token = strings.TrimSpace(string(text))
	if o.Token == "" || len(text) > client.MaxToken {
		return exit.Usagef("the file %s holds no token", path).
			Try("write the output of clusterctl token create to it")
	}

	return nil
}
