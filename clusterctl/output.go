// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"
	"go.yaml.in/yaml/v3"
	"golang.org/x/term"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// The values of --output.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatLong  = "long"
	formatJSON  = "json"
	formatYAML  = "yaml"
	formatName  = "name"
)

// tableFormats are the values of --output beside table where the table has columns to choose.
var tableFormats = []string{formatWide, formatLong, formatJSON, formatYAML, formatName}

// view is one answer in every form it can be printed in.
type view struct {
	wire  any              // json and yaml
	names []string         // name: one a line
	table func(p *printer) // table
	long  func(p *printer) // long; nil: as table
	stale bool             // the manager says that it may be old
}

// show prints the view in the format that was asked for.
func (c *call) show(v view) error {
	if v.stale {
		c.say("warning: the manager has had no word from its store for a while; this may be old")
	}

	var b bytes.Buffer
	switch c.format {
	case formatJSON, formatYAML:
		if err := encode(&b, v.wire, c.format); err != nil {
			return err
		}
	case formatName:
		for _, n := range v.names {
			fmt.Fprintln(&b, printable(n, false))
		}
	default:
		p := &printer{w: &b, paint: paint(c.outTTY && colourful())}
		if c.format == formatLong && v.long != nil {
			v.long(p)
		} else {
			v.table(p)
		}
	}

	return c.write(b.Bytes())
}

// encode writes v as the wire has it: the same keys in the same order.
func encode(b *bytes.Buffer, v any, format string) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")

	if err := e.Encode(v); err != nil {
		return err
	}

	if format == formatJSON {
		return nil
	}

	y, err := toYAML(b.Bytes())
	if err != nil {
		return err
	}

	b.Reset()
	b.Write(y)

	return nil
}

// printer prints for people.
type printer struct {
	w     *bytes.Buffer
	paint paint
	began bool
}

// gap separates what follows from what was printed before.
func (p *printer) gap() {
	if p.began {
		p.w.WriteByte('\n')
	}

	p.began = true
}

// rows prints a table without lines. A column that is empty in every row is left out.
func (p *printer) rows(header []string, rows [][]string) {
	p.began = true
	p.w.WriteString(grid(header, rows, false))
}

// between columns are this many spaces.
const between = "   "

// grid lays a table out. A cell may have several lines, and colours.
func grid(header []string, rows [][]string, keepEmpty bool) string {
	widths := make([]int, len(header))
	for _, r := range rows {
		for len(widths) < len(r) {
			widths = append(widths, 0)
		}

		for i, cell := range r {
			widths[i] = max(widths[i], width(cell))
		}
	}

	if header != nil {
		for i := range widths {
			if widths[i] > 0 || keepEmpty { // a column that is left out has no header either
				widths[i] = max(widths[i], width(header[i]))
			}
		}

		rows = append([][]string{header}, rows...)
	}

	var b strings.Builder
	for _, r := range rows {
		for more := true; more; {
			more = false
			var rest []string

			gap := 0 // spaces that are due before the next cell, if there is one
			for i, cell := range r {
				if widths[i] == 0 {
					continue
				}

				if first, others, several := strings.Cut(cell, "\n"); several {
					if rest == nil {
						rest = make([]string, len(r))
					}

					cell, rest[i], more = first, others, true
				}

				if cell != "" {
					for range gap {
						b.WriteByte(' ')
					}

					b.WriteString(cell)
					gap = 0
				}

				gap += widths[i] - width(cell) + len(between)
			}

			b.WriteByte('\n')
			r = rest
		}
	}

	if strings.Trim(b.String(), "\n") == "" {
		return ""
	}

	return b.String()
}

// width is how many columns of a terminal the longest line of a text takes.
func width(s string) int {
	plain := true
	for i := 0; i < len(s); i++ {
		plain = plain && s[i] >= ' ' && s[i] < 0x7f
	}

	if plain {
		return len(s)
	}

	widest := 0
	for line := range strings.SplitSeq(s, "\n") {
		if strings.Contains(line, "\x1b[") {
			line = colour.ReplaceAllString(line, "")
		}

		widest = max(widest, runewidth.StringWidth(line))
	}

	return widest
}

// colour is what paint puts around text.
var colour = regexp.MustCompile("\x1b\\[[0-9;]*m")

// fields prints a block of names and values, and leaves out what is empty. A
// value of several lines stays under its first one.
func (p *printer) fields(pairs ...string) {
	p.gap()

	width := 0
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			width = max(width, runewidth.StringWidth(pairs[i]))
		}
	}

	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			continue
		}

		value := strings.ReplaceAll(strings.TrimRight(pairs[i+1], "\n"), "\n", "\n"+strings.Repeat(" ", width+2))
		fmt.Fprintf(p.w, "%s%s\n", runewidth.FillRight(pairs[i], width+2), value)
	}
}

// paint colours text, or does not.
type paint bool

func (on paint) code(code, s string) string {
	if !on || s == "" {
		return s
	}

	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (on paint) good(s string) string    { return on.code("32", s) }
func (on paint) bad(s string) string     { return on.code("31", s) }
func (on paint) busy(s string) string    { return on.code("36", s) }
func (on paint) changed(s string) string { return on.code("33", s) }
func (on paint) faint(s string) string   { return on.code("2", s) }

func (on paint) status(s inventory.Status) string {
	switch {
	case s == inventory.Allocated:
		return on.good(string(s))
	case s == inventory.Quarantined:
		return on.bad(string(s))
	case s.InProgress():
		return on.busy(string(s))
	}

	return oneLine(string(s))
}

func (on paint) state(s inventory.State) string {
	switch s {
	case inventory.Discovered:
		return on.good(string(s))
	case inventory.Disappeared:
		return on.bad(string(s))
	}

	return oneLine(string(s))
}

func (on paint) job(s api.JobStatus) string {
	switch s {
	case api.Complete:
		return on.good(string(s))
	case api.Errored:
		return on.bad(string(s))
	case api.Cancelled:
		return on.changed(string(s))
	case api.Running:
		return on.busy(string(s))
	}

	return oneLine(string(s))
}

// colourful tells whether colours are wanted at all: https://no-color.org.
func colourful() bool { return os.Getenv("NO_COLOR") == "" && !dumb() }

// dumb tells whether the terminal cannot move its cursor.
func dumb() bool { t := os.Getenv("TERM"); return t == "dumb" || t == "" }

// isInputTerminal tells whether somebody may be there to be asked.
func isInputTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// timeText is a time as people read it, in their own zone.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}

	return t.Local().Format("2006-01-02 15:04:05")
}

func timePtr(t *time.Time) string {
	if t == nil {
		return ""
	}

	return timeText(*t)
}

// took is the time between two moments, or "" while one of them is missing.
func took(from, to *time.Time) string {
	if from == nil || to == nil {
		return ""
	}

	return duration(to.Sub(*from))
}

func duration(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}

	return d.Round(time.Second).String()
}

// positive is a number as text, "" where it is 0.
func positive(n int) string {
	if n == 0 {
		return ""
	}

	return fmt.Sprint(n)
}

func list(s []string) string { return oneLine(strings.Join(s, ", ")) }

// clip shortens s to a width, with an ellipsis.
func clip(s string, width int) string {
	if width <= 0 {
		return ""
	}

	return runewidth.Truncate(s, width, "…")
}

// scalar is a value as one line of a table: a string as it is, the rest as JSON.
func scalar(v any) string {
	if s, ok := v.(string); ok {
		return oneLine(s)
	}

	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)

	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v)
	}

	return strings.TrimSpace(b.String())
}

// toYAML writes a JSON document as YAML, which it is already, in the form that
// people read. The order of keys stays.
func toYAML(doc []byte) ([]byte, error) {
	var n yaml.Node
	if err := yaml.Unmarshal(doc, &n); err != nil {
		return nil, err
	}

	if err := plain(&n); err != nil {
		return nil, err
	}

	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := e.Encode(&n)

	return b.Bytes(), errors.Join(err, e.Close())
}

// plain takes the marks of JSON off, except where another reader, such as
// Ansible's, would take a string for something else: yes, on, 12:30.
func plain(n *yaml.Node) error {
	n.Style = 0
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		alone, err := yaml.Marshal(n.Value)
		if err != nil {
			return err
		}

		if alone[0] == '"' {
			n.Style = yaml.DoubleQuotedStyle
		}
	}

	for _, c := range n.Content {
		if err := plain(c); err != nil {
			return err
		}
	}

	return nil
}
