// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
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

// addTexts adds the texts by which a value appears in output: as it is, and in JSON.
func addTexts(found map[string]bool, value string) {
	for line := range strings.Lines(value) {
		line = strings.TrimSpace(line)
		if len(line) < minMasked || slices.Contains(ordinary, line) {
			continue
		}

		found[line] = true

		if quoted, err := json.Marshal(line); err == nil {
			found[string(quoted[1:len(quoted)-1])] = true
		}
	}
}

// Mask replaces secrets in a stream of text by Hidden, also those that are spread over
// several writes. It holds text back only while that may be the beginning of a secret;
// Close writes the rest. It is not safe for concurrent use.
type Mask struct {
	to      io.Writer
	byFirst [256][]string // the secrets by their first byte, the longest first
	pending []byte
}

// NewMask returns a mask for secrets, which must not be empty texts.
func NewMask(to io.Writer, secrets []string) *Mask {
	m := &Mask{to: to}
	for _, s := range secrets {
		m.byFirst[s[0]] = append(m.byFirst[s[0]], s)
	}

	for _, list := range m.byFirst {
		slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
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
		length := 0

		for _, s := range m.byFirst[text[i]] {
			left := text[i:]
			if !whole && len(left) < len(s) && strings.HasPrefix(s, string(left)) {
				return append(out, text[from:i]...), left
			}

			if length == 0 && bytes.HasPrefix(left, []byte(s)) {
				length = len(s)
			}
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

// EventMask replaces secrets in the texts of events, one event a line. The other fields
// stay as they are, because results depend on them.
type EventMask struct {
	to   io.Writer
	mask *Mask
	line []byte
}

// NewEventMask returns a mask of events for secrets, which must not be empty texts.
func NewEventMask(to io.Writer, secrets []string) *EventMask {
	return &EventMask{to: to, mask: NewMask(nil, secrets)}
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

func (m *EventMask) maskLine(line []byte) []byte {
	masked := m.mask.MaskText(string(line))
	if masked == string(line) {
		return line
	}

	var event map[string]any
	if json.Unmarshal(line, &event) != nil {
		return []byte(masked)
	}

	for _, field := range []string{"message", "item", "task", "play"} {
		if text, ok := event[field].(string); ok {
			event[field] = m.mask.MaskText(text)
		}
	}

	if text, ok := event["diff"].(string); ok {
		event["diff"] = m.maskDiff(text)
	}

	hosts, _ := event["stats"].(map[string]any)
	for _, host := range hosts {
		counts, _ := host.(map[string]any)
		if text, ok := counts["doubt"].(string); ok {
			counts["doubt"] = m.mask.MaskText(text)
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
