// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"sync"
)

// redacted replaces a secret.
const redacted = "[redacted]"

// The parts of the patterns below: names, values, and the separators between
// them. A value may be quoted; within a quoted text, its quotes are escaped.
const (
	secretWord = `(?:passw(?:or)?d|passphrase|secret|token|credential|(?:api|private|access|encrypt)[_-]?key|` +
		`[_-](?:pass|pw)\b|(?:pwd|psk|dsn|community)\b)`
	secretWords = `[\w.-]*` + secretWord + `[\w.-]*`
	quoted      = `"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\\+"[^"\n]*"|\\+'[^'\n]*'`
	blank       = `(?:[ \t]|\\\n)+` // includes a continued line
	userOption  = `(?:^|[\s"'])(?:-u|--user)(?:(?:` + blank + `)?|=|\\*["'],\s*)`
	userName    = `[^\s:"'=]*:`
)

var (
	secretName = lazy(`(?i)` + secretWord)
	// secretPair matches NAME=VALUE, NAME: VALUE and "NAME": "VALUE" in text; the
	// value may be a list or an object.
	secretPair = lazy(
		`(?i)(` + secretWords + `\\*["']?\s*[:=]\s*)(` + quoted + `|\[[^\]\n]*\]?|\{[^}\n]*\}?|[^\s,;"'})\]]+)`,
	)
	// secretOption matches --NAME VALUE, also as two items of a list. A leading
	// dash marks the next option instead of a value.
	secretOption = lazy(
		`(?i)((?:^|[\s"'\[(])--?` + secretWords + `(?:` + blank + `|\\*["'],\s*))` +
			`(` + quoted + `|[^\s"',;)\]}-][^\s"']*)`,
	)
	// quotedOption matches "--NAME=VALUE", quoted as a whole; itemOption matches
	// the same as an item of a list.
	quotedOption = inQuotes("", `(?:--?`+secretWords+`=|(?:-u|--user=)`+userName+`)`)
	itemOption   = lazy(`(?is)^(--?` + secretWords + `=|(?:-u|--user=)` + userName + `).+`)
	optionName   = lazy(`(?i)^--?` + secretWords + `$`)
	// secretWordValue matches NAME VALUE if the value contains a digit: otherwise
	// it is probably the next word of a sentence.
	secretWordValue = lazy(`(?i)(\b` + secretWord + blank + `)([^\s"',;)\]}]*\d[^\s"',;)\]}]*)`)
	// sshpass and userPair match options of well-known programs with a short name.
	sshpass  = lazy(`(\bsshpass` + blank + `-p` + `[ \t]*)(` + quoted + `|[^\s"']+)`)
	userPair = lazy(`(` + userOption + userName + `)(` + quoted + `|[^\s"']+)`)
	// quotedPair matches userPair in quotes; userItem matches its option as an item
	// of a list.
	quotedPair = inQuotes(userOption, `[^:"'\n]*:`)
	userItem   = lazy(`^(?:-u|--user)$`)
	// bearer matches the credential of an HTTP header, userinfo that of a URL.
	bearer     = lazy(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`)
	userinfo   = lazy(`://[^/\s:@"']*:[^/\s"']+@`)
	privateKey = lazy(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`)
	// keyEnd matches the end of a key that began before the text.
	keyEnd = lazy(`(?s)^.*-----END [A-Z ]*PRIVATE KEY-----`)
)

// inQuotes returns a pattern for the text before, a quote, inside, and a secret
// up to the closing quote. The quotes may be escaped. Everything but the secret is
// in one of the four groups, one for each form of quote.
func inQuotes(before, inside string) func() *regexp.Regexp {
	var forms []string
	for _, q := range []string{`"`, `'`} {
		forms = append(forms,
			`(`+before+q+inside+`)(?:[^\\\n`+q+`]|\\.)+`,
			`(`+before+`\\+`+q+inside+`)[^\n`+q+`]*[^\\\n`+q+`]`)
	}

	return lazy(`(?i)` + strings.Join(forms, "|"))
}

// lazy returns the regular expression, compiled at its first use: only a support
// bundle needs it.
func lazy(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// redactionRules documents redactText in the README of a bundle.
const redactionRules = `Redaction replaces passwords, tokens and private keys by ` + redacted + `:
  after a name that contains passwd, password, passphrase, secret, token, credential, or api, private, access or
  encrypt key:
    NAME=VALUE, NAME: VALUE, --NAME VALUE, --NAME=VALUE, "--NAME", "VALUE"; NAME VALUE if the value contains a digit
  credentials after Bearer and Basic; USER:PASSWORD@ in a URL; curl -u USER:PASSWORD; sshpass -p PASSWORD;
  private keys in PEM
Redaction does not recognise, among others:
  the rest of a value without quotes after a blank, a quote, a comma, a semicolon or a closing bracket; a password with
    a / or a quote in a URL
  a secret without such a name before it; letters only after a name and a blank (password swordfish); a value with a
  leading dash after an option; other short options (mysql -pSECRET); encoded text (base64), or text broken over lines
Read the files before you send them.
`

// redactText redacts the secrets in text; redactionRules documents the patterns.
func redactText(s string) string {
	// A log is cut at its start and at its end, and either can cut a key.
	s = privateKey().ReplaceAllString(s, redacted)
	s = keyEnd().ReplaceAllString(s, redacted)

	for _, e := range []func() *regexp.Regexp{quotedOption, quotedPair} {
		// One of the four groups matched, and the others are empty.
		s = e().ReplaceAllString(s, "${1}${2}${3}${4}"+redacted)
	}

	for _, e := range []func() *regexp.Regexp{secretPair, secretOption, secretWordValue, sshpass, userPair} {
		s = e().ReplaceAllString(s, "${1}"+redacted)
	}

	s = bearer().ReplaceAllString(s, "${1} "+redacted)

	return userinfo().ReplaceAllString(s, "://"+redacted+"@")
}

// redactJSON redacts the secrets in a JSON document.
func redactJSON(raw []byte, indent string) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // large numbers stay exact

	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}

	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(redactValue(v))

	return b.Bytes(), err
}

// itemBefore returns the item before list[i], if it is text.
func itemBefore(list []any, i int) (string, bool) {
	if i == 0 {
		return "", false
	}

	text, ok := list[i-1].(string)
	return text, ok
}

// redactValue redacts the secrets in a decoded JSON value, in place where possible.
func redactValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, value := range v {
			switch value.(type) {
			case string, json.Number:
				if secretName().MatchString(k) {
					v[k] = redacted
					continue
				}
			}

			v[k] = redactValue(value)
		}
	case []any:
		for i := range v {
			// In a command line as a list, the value is the item after the option.
			text, isText := v[i].(string)
			name, _ := itemBefore(v, i)

			user, _, isPair := strings.Cut(text, ":")
			switch {
			case isText && optionName().MatchString(name) && !strings.HasPrefix(text, "-"):
				v[i] = redacted
			case isPair && userItem().MatchString(name):
				v[i] = user + ":" + redacted
			case itemOption().MatchString(text):
				v[i] = itemOption().ReplaceAllString(text, "${1}"+redacted)
			default:
				v[i] = redactValue(v[i])
			}
		}
	case string:
		return redactText(v)
	}

	return v
}
