// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// minMasked is the length in bytes below which a value is no secret in output: it would
// hide ordinary text, and a value so short protects nothing.
const minMasked = 4

// ordinary are values that variables of any name have.
var ordinary = []string{"true", "false", "none", "null", "None", "True", "False", "present", "absent"}

// Values returns the texts by which the secret variables in vars may appear in output,
// sorted, each once. A value of several lines appears line by line.
func (s Secrets) Values(vars map[string]any) []string {
	found := map[string]bool{}
	for name, value := range vars {
		s.collect(found, value, s.hides(name))
	}

	values := make([]string, 0, len(found))
	for value := range found {
		values = append(values, value)
	}

	slices.Sort(values)

	return values
}

// collect adds the texts of the secrets in a value to found. secret: all of the value
// is one.
func (s Secrets) collect(found map[string]bool, value any, secret bool) {
	switch value := value.(type) {
	case Secret:
		s.collect(found, value.value, true)
	case Vars:
		s.collect(found, map[string]any(value), secret)
	case map[string]any:
		for name, e := range value {
			s.collect(found, e, secret || s.hides(name))
		}
	case []any:
		for _, e := range value {
			s.collect(found, e, secret)
		}
	case string:
		if secret {
			addTexts(found, value)
		}
	case json.Number:
		if secret {
			addTexts(found, value.String())
		}
	case int:
		if secret {
			addTexts(found, strconv.Itoa(value))
		}
	case int64:
		if secret {
			addTexts(found, strconv.FormatInt(value, 10))
		}
	}
}

// addTexts adds the lines of a value.
func addTexts(found map[string]bool, value string) {
	for line := range strings.Lines(value) {
		line = strings.TrimSpace(line)
		if len(line) >= minMasked && !slices.Contains(ordinary, line) {
			found[line] = true
		}
	}
}

// Mask replaces secrets in a stream of text by Hidden, in each form in which programs print
// them (see readingsOf), also those that are spread over several writes. It holds text back only
// while that may be the beginning of a secret; Close writes the rest. It is not safe for
// concurrent use.
type Mask struct {
	to      io.Writer
	secrets []string  // sorted
	begins  [256]bool // whether a secret may begin with the byte, in any form
	pending []byte

	// Memory for find.
	open     []prefix
	readings []reading
}

// NewMask returns a mask for secrets, which must not be empty texts.
func NewMask(to io.Writer, secrets []string) *Mask {
	m := &Mask{to: to, secrets: slices.Compact(slices.Sorted(slices.Values(secrets)))}
	for _, s := range m.secrets {
		m.begins[s[0]] = true
	}

	for _, c := range []byte(`\%'`) {
		m.begins[c] = len(m.secrets) > 0
	}

	return m
}

// Write masks the next part of the stream.
func (m *Mask) Write(p []byte) (int, error) {
	text := p
	if len(m.pending) > 0 {
		text = append(m.pending, p...)
	}
	out, rest := m.mask(text, false)
	m.pending = slices.Clone(rest)
	_, err := m.to.Write(out)

	return len(p), err
}

// Close writes the text that was held back. It does not close the destination.
func (m *Mask) Close() error {
	out, _ := m.mask(m.pending, true)
	m.pending = nil
	_, err := m.to.Write(out)
	return err
}

// MaskText returns a whole text with its secrets masked.
func (m *Mask) MaskText(text string) string {
	out, _ := m.mask([]byte(text), true)
	return string(out)
}

// mask returns the masked text, and its end if that may be the beginning of a secret.
// The result may share memory with text. whole: nothing follows.
func (m *Mask) mask(text []byte, whole bool) (out, rest []byte) {
	from := 0
	for i := 0; i < len(text); i++ {
		if !m.begins[text[i]] {
			continue
		}

		length, cut := m.find(text[i:])
		if cut && !whole {
			return append(out, text[from:i]...), text[i:]
		}

		if length > 0 {
			out = append(append(out, text[from:i]...), Hidden...)
			i += length - 1
			from = i + 1
		}
	}

	if from == 0 {
		return text, nil
	}

	return append(out, text[from:]...), nil
}

// prefix is a way to read the beginning of a text: up to place it stands for the first n bytes of
// the secrets from:to.
type prefix struct{ from, to, n, place int }

// find returns the length of the longest form of a secret with which the text begins, or 0. cut:
// with more text there may be a longer one.
func (m *Mask) find(text []byte) (length int, cut bool) {
	m.open = append(m.open[:0], prefix{to: len(m.secrets)})

	// Readings lead forward only, so the first place has all its prefixes.
	for len(m.open) > 0 {
		place := slices.MinFunc(m.open, func(a, b prefix) int { return a.place - b.place }).place

		var unfinished bool

		m.readings, unfinished = readingsOf(text[place:], m.readings[:0])
		cut = cut || unfinished

		for i := len(m.open) - 1; i >= 0; i-- {
			p := m.open[i]
			if p.place != place {
				continue
			}

			m.open = slices.Delete(m.open, i, i+1)

			for _, r := range m.readings {
				next, ok := m.read(p, r)
				if ok && len(m.secrets[next.from]) == next.n { // the shortest is the first
					length = max(length, next.place)
					next.from++
				}

				if next.from < next.to && !slices.Contains(m.open, next) {
					m.open = append(m.open, next)
				}
			}
		}
	}

	return length, cut
}

// read returns the prefix with a further reading. ok: there are secrets with it.
func (m *Mask) read(p prefix, r reading) (_ prefix, ok bool) {
	compare := func(s, stands string) int {
		s = s[p.n:]
		return strings.Compare(s[:min(len(s), len(stands))], stands)
	}

	list := m.secrets[p.from:p.to]
	from, ok := slices.BinarySearchFunc(list, r.stands, compare)

	to := from
	for to < len(list) && compare(list[to], r.stands) == 0 {
		to++
	}

	return prefix{p.from + from, p.from + to, p.n + len(r.stands), p.place + r.length}, ok
}

// reading is one way to read the beginning of a text.
type reading struct {
	stands string // for this part of a value
	length int    // in the text
}

// maxRun bounds the backslashes and quotes that are read as one character: JSON in JSON has up to three backslashes
// before a quote, and twice as many at each further level.
const maxRun = 64

// escapes are the characters for which a letter after a backslash stands.
var escapes = map[byte]string{
	'a': "\a", 'b': "\b", 't': "\t", 'v': "\v", 'f': "\f", 'r': "\r", 'e': "\x1b", '_': "\u00a0",
}

// digits are the lengths of the hexadecimal numbers after a letter.
var digits = map[byte]int{'x': 2, 'u': 4, 'U': 8}

// readingsOf adds to list what the first character in a text can stand for: itself, or another one, escaped as in
// JSON, YAML, source code, a shell or a URL, or in several of them at once. Reading too much into a text hides a little
// more of it; so a backslash before any character may be one too many. cut: the text ends too early to tell.
func readingsOf(text []byte, list []reading) (_ []reading, cut bool) {
	if len(text) == 0 {
		return list, true
	}

	list = append(list, reading{string(text[:1]), 1})

	switch text[0] {
	case '\\':
		return escaped(text, list)
	case '\'':
		return quotes(text, list)
	case '%':
		if c, ok := hexadecimal(text[1:], 2); ok {
			list = append(list, reading{string([]byte{byte(c)}), 3}) //nolint:gosec // two digits
		}

		cut = len(text) < len("%41")
	case '\n':
		// YAML breaks long lines at spaces.
		list = append(list, reading{" ", 1 + countRun(text[1:], " ")})
	}

	return list, cut
}

// quotes adds the forms of a quote: a shell ends its quotes around one, YAML doubles it.
func quotes(text []byte, list []reading) (_ []reading, cut bool) {
	run := countRun(text, `\'"`)
	for n := 2; n <= run; n++ {
		if text[n-1] == '\'' {
			list = append(list, reading{"'", n})
		}
	}

	return list, run == len(text) && run < maxRun
}

// escaped adds what a backslash with the characters after it can stand for.
func escaped(text []byte, list []reading) (_ []reading, cut bool) {
	run := countRun(text, `\`)
	for n := 2; n <= run; n *= 2 {
		list = append(list, reading{`\`, n})
	}

	if run == len(text) {
		return list, run < maxRun
	}

	c, rest := text[run], text[run+1:]
	if c == '\'' {
		return quotes(text, list)
	}
	list = append(list, reading{string([]byte{c}), run + 1})

	if s, ok := escapes[c]; ok {
		list = append(list, reading{s, run + 1})
	}

	n := digits[c]
	if n == 0 {
		return list, false
	}
	code, ok := hexadecimal(rest, n)
	if !ok {
		return list, len(rest) < n
	}

	end := run + 1 + n
	list = append(list, reading{string(code), end})

	switch {
	case c == 'x': // a byte, or a character
		list = append(list, reading{string([]byte{byte(code)}), end}) //nolint:gosec // two digits
	case utf16.IsSurrogate(code): // the first half of a character
		second := countRun(text[end:], `\`) + len("u")
		if low, ok := hexadecimal(text[min(end+second, len(text)):], n); ok {
			full := utf16.DecodeRune(code, low)
			list = append(list, reading{string(full), end + second + n})
		}

		cut = len(text) < end+second+n
	}

	return list, cut
}

// countRun counts the first bytes that are among chars, up to maxRun.
func countRun(text []byte, chars string) int {
	for n := range min(len(text), maxRun) {
		if strings.IndexByte(chars, text[n]) < 0 {
			return n
		}
	}

	return min(len(text), maxRun)
}

// hexadecimal reads a character of n digits at the beginning of a text.
func hexadecimal(text []byte, n int) (rune, bool) {
	if len(text) < n {
		return 0, false
	}

	code, err := strconv.ParseInt(string(text[:n]), 16, 32)
	return rune(code), err == nil
}

// EventMask replaces secrets in the texts of events, one event a line. The other fields
// stay as they are, because results depend on them.
type EventMask struct {
	to   io.Writer
	mask *Mask
	ends *Mask // masks the ends of the secrets
	line []byte
}

// NewEventMask returns a mask of events for secrets, which must not be empty texts.
func NewEventMask(to io.Writer, secrets []string) *EventMask {
	var ends []string
	for _, s := range secrets {
		for i := 1; i <= len(s)-minMasked; i++ {
			ends = append(ends, s[i:])
		}
	}

	return &EventMask{to: to, mask: NewMask(nil, secrets), ends: NewMask(nil, ends)}
}

// Write masks the lines that p completes.
func (m *EventMask) Write(p []byte) (int, error) {
	written := len(p)

	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			break
		}
		m.line, p = append(m.line, p[:i+1]...), p[i+1:]
		if err := m.flush(); err != nil {
			return written, err
		}
	}

	// No reader takes a line so long.
	if m.line = append(m.line, p...); len(m.line) > maxEventLine {
		return written, m.flush()
	}

	return written, nil
}

// Close writes the incomplete last line. It does not close the destination.
func (m *EventMask) Close() error { return m.flush() }

func (m *EventMask) flush() error {
	line := m.line
	m.line = nil
	_, err := m.to.Write(m.maskLine(line))
	return err
}

// maskDiff masks a difference. Where a changed line has a secret, neighbours may have its former value, which nothing
// here knows: all changed lines around it are hidden.
func (m *EventMask) maskDiff(text string) string {
	lines := strings.Split(text, "\n")
	// A backslash begins the remark that a file has no newline at its end.
	changed := func(line string) bool { return line != "" && strings.ContainsRune(`-+\`, rune(line[0])) }
	header := func(line string) bool { return strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "+++ ") }

	for from := 0; from < len(lines); {
		to := from + 1
		for changed(lines[from]) && !header(lines[from]) && to < len(lines) && changed(lines[to]) {
			to++
		}

		part := strings.Join(lines[from:to], "\n")
		secret := m.mask.MaskText(part) != part

		for i := from; i < to; i++ {
			switch {
			case secret && to-from > 1:
				lines[i] = lines[i][:1] + Hidden
			case secret:
				lines[i] = m.mask.MaskText(lines[i])
			}
		}

		from = to
	}

	return strings.Join(lines, "\n")
}

// cutMark is where the events have a text shortened.
const cutMark = "…"

// maskText masks a text that may have been shortened within a secret.
func (m *EventMask) maskText(text string) string {
	parts := strings.Split(m.mask.MaskText(text), cutMark)

	for i, part := range parts {
		if length, _ := m.ends.find([]byte(part)); i > 0 && length > 0 {
			part = Hidden + part[length:]
		}

		begun, rest := m.mask.mask([]byte(part), false)
		if i+1 < len(parts) && len(rest) >= minMasked {
			part = string(begun) + Hidden
		}

		parts[i] = part
	}

	return strings.Join(parts, cutMark)
}

func (m *EventMask) maskLine(line []byte) []byte {
	masked := m.mask.MaskText(string(line))
	if masked == string(line) && !bytes.Contains(line, []byte(cutMark)) {
		return line
	}

	var event map[string]any
	if json.Unmarshal(line, &event) != nil {
		return []byte(masked)
	}

	for _, field := range []string{"message", "item", "task", "play"} {
		if text, ok := event[field].(string); ok {
			event[field] = m.maskText(text)
		}
	}

	if text, ok := event["diff"].(string); ok {
		event["diff"] = m.maskDiff(text)
	}

	hosts, _ := event["stats"].(map[string]any)
	for _, host := range hosts {
		counts, _ := host.(map[string]any)
		if text, ok := counts["doubt"].(string); ok {
			counts["doubt"] = m.maskText(text)
		}
	}

	var out bytes.Buffer

	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)

	if encoder.Encode(event) != nil {
		return []byte(masked)
	}

	return out.Bytes()
}
