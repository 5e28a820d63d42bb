// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/management/api"
)

func secretsStatus(ctx context.Context, c *call) error {
	return c.showSecrets(c.manager.Secrets(ctx))
}

func secretsRotate(ctx context.Context, c *call) error {
	status, err := c.manager.RotateSecrets(ctx, c.Bool("abandon"))
	if err != nil {
		return err
	}
	c.say("all secrets are encrypted with key %s; back up %s of the manager's host", status.Key, status.KeyFile)

	if c.forPeople() {
		return nil
	}

	return c.showSecrets(status, nil)
}

func (c *call) showSecrets(status api.Secrets, err error) error {
	return view(c, (*print.Printer).Secrets, func(s api.Secrets) string { return s.Key })(status, err)
}

// secretAssignments reads the arguments of a command with --secret: KEY=VALUE,
// KEY=@FILE, KEY=- and KEY.
func (c *call) secretAssignments(ctx context.Context, args []string) (api.Vars, error) {
	vars := api.Vars{}
	stdin := ""

	for _, arg := range args {
		key, text, given := strings.Cut(arg, "=")
		if key == "" {
			return nil, exit.Usagef("an argument has no KEY").Try("for example: db_pin=@FILE, or db_pin=- for stdin")
		}
		if _, twice := vars[key]; twice {
			return nil, exit.Usagef("%s is given twice", key)
		}

		switch {
		case !given:
			vars[key] = configuration.Hidden
			continue
		case text == "-" && stdin != "":
			return nil, exit.Usagef("%s and %s both read stdin", stdin, key)
		case text == "-":
			stdin = key
		}

		value, err := c.secretText(ctx, key, text)
		if err != nil {
			return nil, err
		}
		vars[key] = value
	}

	return vars, nil
}

// secretText returns the text of a secret. Errors do not contain it.
func (c *call) secretText(ctx context.Context, key, text string) (string, error) {
	name, isFile := strings.CutPrefix(text, "@")
	content := []byte(text)

	if isFile || text == "-" {
		var err error

		content, _, err = c.readInput(ctx, name, "the value of "+key, "give KEY=@FILE, or KEY=- for stdin")
		if err != nil {
			return "", err
		}
	}

	value := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")

	switch {
	case value == "":
		return "", exit.Usagef("the value of %s is empty", key)
	case !utf8.ValidString(value):
		return "", exit.Usagef("the value of %s is not UTF-8 text", key).
			Try("to set binary data, encode it, for example with base64")
	}

	return value, nil
}
