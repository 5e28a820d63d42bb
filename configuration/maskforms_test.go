// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory/errtest"
)

// randomSecret returns printable text: punctuation of ASCII above all, and what JSON and Python escape.
func randomSecret(r *rand.Rand) string {
	const odd = "\\\\\"\"''<>&%$`{}[]#:;,=+-*?!@|~^/ é€ß漢😀\u200b\u00a0\u00ad\t"

	kinds := [][]rune{[]rune(odd), []rune("abnrtux0159 ")}
	for c := '!'; c <= '~'; c++ {
		kinds[1] = append(kinds[1], c)
	}

	text := make([]rune, 8+r.IntN(16))
	for i := range text {
		text[i] = kinds[i%2][r.IntN(len(kinds[i%2]))]
	}

	// Spaces at the ends are none of a line in output.
	return "a" + string(text) + "z"
}

// pythonJSON is json.dumps of Python, which escapes all but ASCII.
func pythonJSON(s string) string {
	var b strings.Builder

	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b.WriteString(`\` + string(c))
		case c == '\t':
			b.WriteString(`\t`)
		case c > 0xffff:
			high, low := utf16.EncodeRune(c)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		case c > '~':
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteRune(c)
		}
	}

	return `"` + b.String() + `"`
}

func marshal(t *testing.T, encode func(any) ([]byte, error), value any) string {
	t.Helper()
	b, err := encode(value)
	errtest.None(t, err)
	return string(b)
}

// forms returns the forms in which a value appears in the output of programs.
func forms(t *testing.T, s string) map[string]string {
	t.Helper()

	goJSON := func(s string) string { return marshal(t, json.Marshal, s) }
	plainJSON := func(s string) string {
		var b strings.Builder

		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)

		errtest.None(t, e.Encode(s))

		return b.String()
	}
	shell := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'" }

	return map[string]string{
		"raw":                 s,
		"Go's JSON":           goJSON(s),
		"plain JSON":          plainJSON(s),
		"Python's JSON":       pythonJSON(s),
		"JSON in JSON":        goJSON(pythonJSON(s)),
		"plain JSON in JSON":  plainJSON(plainJSON(s)),
		"JSON in it in JSON":  pythonJSON(plainJSON(goJSON(s))),
		"YAML":                marshal(t, yaml.Marshal, map[string]string{"key": s}),
		"YAML in JSON":        goJSON(marshal(t, yaml.Marshal, s)),
		"YAML, single quotes": "'" + strings.ReplaceAll(s, "'", "''") + "'",
		"Go's quotes":         strconv.Quote(s),
		"ASCII in quotes":     strconv.QuoteToASCII(s),
		"Python's repr": "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\t", `\t`, "\u00ad", `\xad`).Replace(s) +
			"'",
		"shell":                          shell(s),
		"shell in shell":                 shell(shell(s)),
		"shell in JSON":                  pythonJSON(shell(s)),
		"shell in JSON in Python's repr": strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(pythonJSON(shell(s))),
		"URL":                            url.PathEscape(s),
		"query":                          strings.ReplaceAll(url.QueryEscape(s), "+", "%20"),
	}
}

// TestMaskForms: no form in which programs print a secret shows it, in writes of any size and in events.
func TestMaskForms(t *testing.T) {
	t.Parallel()

	const rounds = 300

	r := rand.New(rand.NewPCG(1, 2))

	for range rounds {
		secret := randomSecret(r)
		values := DefaultSecrets().Values(Vars{"db_password": secret, "other_password": randomSecret(r)})

		for name, form := range forms(t, secret) {
			text := "before " + form + " after\n"
			size := 1 + r.IntN(len(text))

			var out, events strings.Builder

			m := NewMask(&out, values)
			for part := range slices.Chunk([]byte(text), size) {
				_, _ = m.Write(part)
			}

			e := NewEventMask(&events, values)
			_, _ = e.Write(
				[]byte(marshal(t, json.Marshal, Event{Event: EventFailed, Message: text, Diff: "+" + text}) + "\n"),
			)

			errtest.None(t, m.Close())

			// What remains are the ends of the text and quotes.
			got := strings.Trim(strings.TrimSpace(strings.ReplaceAll(out.String(), "key: ", "")), " ")
			rest := strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(got, "before "), " after"), "after", "")

			if strings.Trim(rest, "\"'\\n |-\n") != Hidden {
				t.Errorf("%s of %q, in writes of %d bytes: %q", name, secret, size, out.String())
			}

			event, ok := ParseEvent([]byte(events.String()))
			if !ok || strings.Count(event.Message, Hidden) != 1 ||
				len(event.Message) > len("before  after key: ")+len(Hidden)+24 {
				t.Errorf("%s of %q, in an event: %q", name, secret, events.String())
			}
		}
	}
}

// TestMaskLeavesTheRest: text without a secret stays as it is, however it is escaped.
func TestMaskLeavesTheRest(t *testing.T) {
	t.Parallel()

	const text = `C:\new\table "quoted \"twice\\\"" 100% 50%41 'it''s' \u00e9 \ud83d \x4 \\\\\\\\ key\` +
		"\n\n  folded\n'"

	for size := 1; size <= len(text); size++ {
		var out strings.Builder

		m := NewMask(&out, []string{"hunter2", `key"1`, "é-and-more", "'its'", "%%%%"})
		for part := range slices.Chunk([]byte(text), size) {
			_, _ = m.Write(part)
		}

		if err := m.Close(); err != nil || out.String() != text {
			t.Errorf("writes of %d bytes: %q, %v", size, out.String(), err)
		}
	}
}

// TestMaskCutTexts: a message that was shortened in the middle of a secret shows no more than three bytes of it.
func TestMaskCutTexts(t *testing.T) {
	t.Parallel()

	const secret = `Corr"ected-Ho\rse`

	for _, form := range []string{secret, `Corr\"ected-Ho\\rse`} {
		for at := range len(form) + 1 {
			var out strings.Builder

			e := Event{Event: EventFailed, Message: "it said " + form[:at] + "…\nstderr: …" + form[at:] + " and ended…"}

			m := NewEventMask(&out, []string{secret})
			_, _ = m.Write([]byte(marshal(t, json.Marshal, e) + "\n"))

			event, _ := ParseEvent([]byte(out.String()))
			if !strings.HasPrefix(event.Message, "it said ") || !strings.HasSuffix(event.Message, " and ended…") {
				t.Errorf("%q", event.Message)
			}

			for i := range len(form) - 4 {
				if part := form[i : i+4]; strings.Contains(event.Message, part) {
					t.Errorf("cut after %d bytes of %q: %q has %q", at, form, event.Message, part)
				}
			}
		}
	}
}
