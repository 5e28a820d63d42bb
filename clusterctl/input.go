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
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/management/api"
)

// maxInput bounds the input from a file or from stdin, in bytes. The limit of the
// manager is lower, and configurable.
const maxInput = 64 << 20

func extraVarsFlag(usage string) cli.Flag {
	return listFlag("extra-vars", usage+": `KEY=VALUE`, an object in JSON or YAML, @FILE, or @- for stdin; if "+
		"repeated, later keys win", "e")
}

// extraVars merges the objects of every -e, key by key. It returns nil if none is
// given, or if all are empty text: an unset variable of the operator's shell must
// not count as {}.
func (c *call) extraVars(ctx context.Context) (api.Vars, error) {
	var merged api.Vars
	for _, text := range c.StringSlice("extra-vars") {
		vars, err := c.object(ctx, text)
		if err != nil {
			return nil, err
		}

		// A later object overrides keys of an earlier one.
		if merged == nil {
			merged = vars
			continue
		}

		maps.Copy(merged, vars)
	}

	return merged, nil
}

// variable matches the start of KEY=VALUE, and severalVariables a value that goes
// on with another variable, as ansible-playbook reads it: a=1 b=2.
var (
	variable         = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
	severalVariables = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=[^"'\[{\s]*\s+[A-Za-z_][A-Za-z0-9_]*=`)
)

// object reads one value of -e. It returns nil for empty text, as opposed to {}.
func (c *call) object(ctx context.Context, arg string) (api.Vars, error) {
	if variable.MatchString(arg) {
		return assigned(arg)
	}

	text, source, err := c.objectText(ctx, arg)
	if err != nil {
		return nil, err
	}
	vars, err := configuration.ParseVars([]byte(text))
	if err != nil {
		return nil, exit.Usagef("%s: %s", source, strings.TrimSpace(err.Error())).
			Try("give -e KEY=VALUE, or an object: -e '{\"KEY\": \"VALUE\"}' or -e 'KEY: VALUE'")
	}

	if len(vars) > 0 {
		return api.Vars(vars), nil
	}

	// The parser does not distinguish {} from empty text or a comment.
	for line := range strings.Lines(text) {
		if code, _, _ := strings.Cut(line, "#"); strings.Contains(code, "{") {
			return api.Vars{}, nil
		}
	}

	return nil, nil
}

// assigned reads -e KEY=VALUE. In contrast to `vars set`, the value may be null.
func assigned(arg string) (api.Vars, error) {
	key, text, _ := strings.Cut(arg, "=")

	// ansible-playbook takes several variables here, and this grammar only one:
	// refuse to guess.
	if severalVariables.MatchString(arg) {
		return nil, exit.Usagef("-e %s looks like several variables", api.ShellQuote(arg)).
			Try("repeat -e for each variable, or quote the value twice: -e %s", api.ShellQuote(key+`="`+text+`"`))
	}

	if !utf8.ValidString(arg) {
		return nil, notText(arg)
	}

	if strings.HasPrefix(text, "@") {
		return nil, namesFile("-e ", "--global|--group GROUP|--node NAME", arg)
	}

	v, err := value(text)
	if err != nil {
		return nil, malformed(key, err)
	}
	return api.Vars{key: v}, nil
}

// namesFile returns the error about a value that begins with @, which is hardly meant as text:
// -e and --secret read a file there. before is what precedes the argument, and level the
// options for a level of variables.
func namesFile(before, level, arg string) error {
	key, text, _ := strings.Cut(arg, "=")

	// A JSON string may hold every character.
	literal, err := print.Compact(text)
	if err != nil {
		return notText(arg)
	}

	return exit.Usagef("the value of %s begins with @, and no file is read there", key).
		Try("to set variables from a file: -e @FILE\nto set a secret to the content of a file: "+
			"clusterctl vars set %s --secret %s\nto keep it as text, quote it twice: %s%s",
			level, api.ShellQuote(arg), before, api.ShellQuote(key+"="+strings.TrimSpace(string(literal))))
}

// malformed returns the error about a value that looks like YAML but does not
// parse, which is hardly meant as text.
func malformed(key string, err error) error {
	return exit.Usagef("cannot parse the value of %s: %v", key, err).
		Try("to keep it as text, quote it twice: %s", api.ShellQuote(key+`="…"`))
}

// notText returns the error about bytes that JSON would replace without a word.
func notText(arg string) error {
	return exit.Usagef("%q is not UTF-8 text", arg).Try("to set binary data, encode it, for example with base64")
}

// objectText returns the text of one value of -e, and its source for messages.
func (c *call) objectText(ctx context.Context, arg string) (text, source string, err error) {
	name, isFile := strings.CutPrefix(arg, "@")
	if !isFile {
		return arg, "the value of -e", nil
	}
	b, source, err := c.readInput(ctx, name, "the variables",
		"give -e '{\"KEY\": \"VALUE\"}', -e @FILE, or -e @- for stdin")

	return string(b), source, err
}

// readInput reads a file that the command line names, or stdin for the name -. It returns the
// source for messages. Failures are usage errors, with what could not be read and a remedy.
func (c *call) readInput(ctx context.Context, name, what, remedy string) (content []byte, source string, err error) {
	if name == "-" {
		source = "stdin"
		content, err = c.readStdin(ctx)
	} else {
		source = name
		content, err = readFile(name)
	}

	// An interrupt fails the read as well, and is no usage error.
	if ctx.Err() != nil {
		return nil, source, context.Cause(ctx)
	}

	if err != nil {
		return nil, source, exit.Usagef("cannot read %s: %v", what, err).Try("%s", remedy)
	}

	return content, source, nil
}

// readStdin reads to the end of stdin, or until ctx is done.
func (c *call) readStdin(ctx context.Context) ([]byte, error) {
	return until(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(c.Stdin, maxInput)) })
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
			return nil, exit.Usagef("%q is not KEY=VALUE", arg).Try("for example: retries=3, or 'greeting=two words'")
		}
		if _, twice := vars[key]; twice {
			return nil, exit.Usagef("%s is given twice", key)
		}

		if !utf8.ValidString(arg) {
			return nil, notText(arg)
		}

		v, err := value(text)
		if err != nil {
			return nil, malformed(key, err)
		}

		if v == nil {
			return nil, exit.Usagef("%s cannot be set to null", key).
				Try("to remove it, use unset; to set the text, quote it twice: %s", api.ShellQuote(key+`="`+text+`"`))
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

// value parses the VALUE of KEY=VALUE: true, false, null, a number, a quoted
// string, and a list or an object in JSON. Everything else is text, so that
// an address, a path or a time needs no quotes. A number that JSON cannot carry
// unchanged, such as 007, is text as well.
func value(text string) (any, error) {
	// {{ starts a template, which is text, and { an object.
	structured := text != "" && strings.ContainsAny(text[:1], `"'[{`) && !strings.HasPrefix(text, "{{")

	switch {
	case yamlTrue.MatchString(text):
		return true, nil
	case yamlFalse.MatchString(text):
		return false, nil
	case yamlNull.MatchString(text):
		return nil, nil
	case jsonNumber.MatchString(text):
		return json.Number(text), nil
	case structured:
		return configuration.ParseValue([]byte(text))
	}

	return text, nil
}

// raw encodes variables for a request; nil stays absent.
func raw(v api.Vars) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}

	b, err := print.Compact(v)
	if err != nil {
		return nil, exit.Usagef("cannot send the variables: %v", err)
	}
	return bytes.TrimSpace(b), nil
}

// choice returns the one of all that a word names; what it is not is said otherwise.
func choice[T ~string](word, what string, all []T) (T, error) {
	names := make([]string, len(all))

	for i, one := range all {
		if names[i] = string(one); strings.EqualFold(names[i], word) {
			return one, nil
		}
	}

	return "", exit.Usagef("%q is not %s", word, what).Try("write one of %s", strings.Join(names, ", "))
}

// choices returns the choice of each value of an option.
func choices[T ~string](c *call, flag, what string, all []T) (out []T, err error) {
	for _, word := range values(c, flag) {
		one, err := choice(word, what, all)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}

	return out, nil
}

// number reads an option with a whole number of at least low, and returns 0 if the
// option is not given.
func number(c *call, flag string, low int) (int, error) {
	if !c.IsSet(flag) {
		return 0, nil
	}

	n, err := strconv.Atoi(c.String(flag))
	if err != nil || n < low {
		return 0, exit.Usagef("--%s needs a whole number of at least %d, not %q", flag, low, c.String(flag))
	}
	return n, nil
}

// since returns the value of --since, or the zero time.
func (c *call) since() (time.Time, error) {
	if !c.IsSet("since") {
		return time.Time{}, nil
	}
	return parseTime("since", c.String("since"), time.Now())
}

// parseTime parses the value of an option: an age before now, a time in RFC 3339, or a local time in the
// format of every table.
func parseTime(option, text string, now time.Time) (time.Time, error) {
	if age, err := time.ParseDuration(text); err == nil && age > 0 {
		return now.Add(-age), nil
	}

	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}

	if t, err := time.ParseInLocation(time.DateTime, text, now.Location()); err == nil {
		return t, nil
	}

	return time.Time{}, exit.Usagef("--%s needs an age or a time, not %q", option, text).
		Try("for example: --%[1]s 10m, --%[1]s 2026-01-02T15:04:05Z or --%[1]s '2026-01-02 15:04:05'", option)
}
