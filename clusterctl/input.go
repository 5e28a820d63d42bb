// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/management/api"
)

// maxInput bounds what is read from a file or from stdin, in bytes. The manager
// has a limit of its own, which is lower and configurable.
const maxInput = 64 << 20

func extraVarsFlag(usage string) cli.Flag {
	return &cli.StringSliceFlag{Name: "extra-vars", Aliases: []string{"e"},
		Usage: usage + ": `OBJECT` in JSON or YAML, @FILE, or @- for stdin; of several, a later one's keys win"}
}

// extraVars are the objects of every -e, merged key by key; nil where none is
// given, or all are empty text, as that of a shell variable which is not set.
func (c *call) extraVars(ctx context.Context) (api.Vars, error) {
	var merged api.Vars
	for _, text := range c.StringSlice("extra-vars") {
		vars, err := c.object(ctx, text)
		if err != nil {
			return nil, err
		}

		if merged == nil {
			merged = vars
			continue
		}

		maps.Copy(merged, vars)
	}

	return merged, nil
}

// object reads one value of -e; nil: it is empty, which {} is not.
func (c *call) object(ctx context.Context, arg string) (api.Vars, error) {
	text, from := arg, "the value of -e"
	if name, ok := strings.CutPrefix(arg, "@"); ok {
		var b []byte

		var err error
		if name == "-" {
			from = "what stdin gave for -e"
			b, err = c.readStdin(ctx)
		} else {
			from = name
			b, err = readFile(name)
		}

		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}

		if err != nil {
			return nil, usagef(
				"cannot read the variables: %v",
				err,
			).do("give -e '{\"KEY\": \"VALUE\"}', -e @FILE, or -e @- for stdin")
		}

		text = string(b)
	}

	vars, err := configuration.ParseVars([]byte(text))
	if err != nil {
		f := usagef("%s: %s", from, strings.TrimSpace(err.Error()))
		if strings.Contains(text, "=") && !strings.ContainsAny(text, ":{") {
			return nil, f.do("write KEY: VALUE or {\"KEY\": \"VALUE\"} instead of KEY=VALUE")
		}

		return nil, f.do("give an object: -e '{\"KEY\": \"VALUE\"}' or -e 'KEY: VALUE'")
	}

	if len(vars) > 0 {
		return api.Vars(vars), nil
	}

	for line := range strings.Lines(text) {
		if code, _, _ := strings.Cut(line, "#"); strings.Contains(code, "{") {
			return api.Vars{}, nil
		}
	}

	return nil, nil
}

// readStdin reads to the end of stdin, or until ctx is done. A read of a
// terminal cannot be called off: its goroutine then stays until the process ends.
func (c *call) readStdin(ctx context.Context) ([]byte, error) {
	type result struct {
		b   []byte
		err error
	}

	done := make(chan result, 1)
	go func() {
		b, err := io.ReadAll(io.LimitReader(c.Stdin, maxInput))
		done <- result{b, err}
	}()

	select {
	case r := <-done:
		return r.b, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	return io.ReadAll(io.LimitReader(f, maxInput))
}

// assignments reads KEY=VALUE arguments.
func assignments(args []string) (api.Vars, error) {
	vars := api.Vars{}
	for _, arg := range args {
		key, text, ok := strings.Cut(arg, "=")
		if !ok || key == "" {
			return nil, usagef("%q is not KEY=VALUE", arg).do("write it like retries=3, or 'greeting=two words'")
		}

		if _, twice := vars[key]; twice {
			return nil, usagef("%s is given twice", key)
		}

		v, err := value(text)
		if err != nil {
			return nil, usagef(
				"the value of %s does not parse: %v",
				key,
				err,
			).do("quote it twice to keep it as text: %s", shellWord(key+`="…"`))
		}

		if v == nil {
			return nil, usagef(
				"%s cannot be set to null",
				key,
			).do("use unset to remove it, or %s for the word", shellWord(key+`="`+text+`"`))
		}

		vars[key] = v
	}

	return vars, nil
}

var (
	jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
	yamlTrue   = regexp.MustCompile(`^(true|True|TRUE)$`)
	yamlFalse  = regexp.MustCompile(`^(false|False|FALSE)$`)
	yamlNull   = regexp.MustCompile(`^(null|Null|NULL|~)$`)
)

// value reads the VALUE of KEY=VALUE as YAML does: true, false, null, a number,
// a quoted string, a list in [] or an object in {}. Everything else is text as
// it stands, so that no address, path or time needs quotes; so is a number that
// JSON could not carry unchanged, e.g. 007.
func value(text string) (any, error) {
	switch {
	case yamlTrue.MatchString(text):
		return true, nil
	case yamlFalse.MatchString(text):
		return false, nil
	case yamlNull.MatchString(text):
		return nil, nil
	case jsonNumber.MatchString(text):
		return json.Number(text), nil
	case text != "" && strings.ContainsAny(text[:1], `"'[{`) && !strings.HasPrefix(text, "{{"):
		vars, err := configuration.ParseVars([]byte("value: " + text))
		return vars["value"], err
	}

	return text, nil
}

// raw encodes variables for a request; nil stays absent.
func raw(v api.Vars) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}

	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)

	if err := e.Encode(v); err != nil {
		return nil, usagef("the variables cannot be sent: %v", err)
	}

	return bytes.TrimSpace(b.Bytes()), nil
}

// number reads a flag that holds a whole number of at least low; 0: it is not set.
func number(c *call, flag string, low int) (int, error) {
	if !c.IsSet(flag) {
		return 0, nil
	}

	n, err := strconv.Atoi(c.String(flag))
	if err != nil || n < low {
		return 0, usagef("--%s needs a whole number of at least %d, not %q", flag, low, c.String(flag))
	}

	return n, nil
}
