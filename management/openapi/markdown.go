// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Markdown writes the document as one page of Markdown.
func (d *Document) Markdown() []byte {
	w := &writer{doc: d}
	w.f("# %s\n\n%s\n", d.Title, d.Description)
	w.f("## Overview\n\n")

	for _, tag := range d.Tags {
		w.f("| %s | |\n|---|---|\n", link(tag.Name, tag.Name))

		for _, o := range d.of(tag) {
			w.f("| %s | %s |\n", link("`"+heading(o)+"`", heading(o)), o.Summary)
		}

		w.f("\n")
	}

	w.f("The types are %s.\n\n", link("at the end", "Types"))

	for _, tag := range d.Tags {
		w.f("## %s\n\n%s\n\n", tag.Name, strings.TrimSpace(tag.Description))

		for _, o := range d.of(tag) {
			w.operation(o)
		}
	}

	w.f("## Headers of answers\n\n| header | type | meaning |\n|---|---|---|\n")

	for _, h := range d.schemaHeaders() {
		w.f("| `%s` | %s | %s |\n", h.Name, words(h.Type), cell(h.Description))
	}

	w.f("\n## Types\n\nA field in **bold** is always there, or has to be.\n\n")

	for _, s := range d.Schemas {
		w.f("### %s\n\n%s", s.Name, s.Description)

		if len(s.Fields) == 0 {
			w.f(" (%s)", words(s.Type))
		}

		w.f("\n\n")

		if len(s.Fields) > 0 {
			w.f("| field | type | meaning |\n|---|---|---|\n")

			for _, f := range s.Fields {
				name := "`" + f.Name + "`"
				if f.Required {
					name = "**" + name + "**"
				}

				w.f("| %s | %s | %s |\n", name, words(f.Type), cell(f.Description))
			}

			w.f("\n")
		}
	}

	return []byte(strings.TrimRight(w.String(), "\n") + "\n")
}

// schemaHeaders are the headers that answers have, each once.
func (d *Document) schemaHeaders() []Header {
	seen := map[string]bool{}

	var out []Header
	for _, o := range d.Operations {
		for _, a := range o.Answers {
			for _, h := range a.Headers {
				if !seen[h.Name] {
					seen[h.Name] = true
					out = append(out, h)
				}
			}
		}
	}

	return out
}

func (d *Document) of(tag Tag) []Operation {
	var out []Operation
	for _, o := range d.Operations {
		if o.Tag == tag.Name {
			out = append(out, o)
		}
	}

	return out
}

type writer struct {
	strings.Builder
	doc *Document
}

func (w *writer) f(format string, args ...any) { fmt.Fprintf(w, format, args...) }

func (w *writer) operation(o Operation) {
	w.f("### %s\n\n%s.\n\n", heading(o), o.Summary)

	if o.Description != "" {
		w.f("%s\n\n", strings.TrimSpace(o.Description))
	}

	if len(o.Parameters) > 0 {
		w.f("| parameter | in | type | meaning |\n|---|---|---|---|\n")

		for _, p := range o.Parameters {
			name := "`" + p.Name + "`"
			if p.Required {
				name = "**" + name + "**"
			}

			w.f("| %s | %s | %s | %s |\n", name, p.In, words(p.Type), cell(p.Description))
		}

		w.f("\n")
	}

	if len(o.Body.Media) > 0 {
		w.f("**Body**: %s", bodies(o.Body.Media))

		if !o.Body.Required {
			w.f("; may be left out")
		}

		w.f("\n\n")
	}

	w.f("| answer | body | meaning |\n|---|---|---|\n")

	for _, a := range o.Answers {
		status := "`" + a.Status + "`"
		if a.Status == "default" {
			status = "other"
		}

		body := bodies(a.Media)
		if body == "" {
			body = "none"
		}

		w.f("| %s | %s | %s", status, body, cell(a.Description))

		for i, h := range a.Headers {
			if i == 0 {
				w.f(" Headers: ")
			} else {
				w.f(", ")
			}

			w.f("`%s`", h.Name)
		}

		w.f(" |\n")
	}

	w.f("\n")

	for _, c := range o.Cases() {
		w.example(o, c)
	}
}

func (w *writer) example(o Operation, c Case) {
	w.f("%s:\n\n```http\n%s %s\n", strings.TrimSuffix(c.Title, "."), o.Method, c.Path)

	for _, name := range sortedKeys(c.Headers) {
		w.f("%s: %s\n", name, c.Headers[name])
	}

	switch {
	case c.Size > 0:
		w.f("\n… %d bytes\n", c.Size)
	case c.Text != "":
		w.f("\n%s\n", c.Text)
	case c.HasBody:
		w.f("\n%s", c.BodyJSON)
	}

	w.f("```\n\n")

	if c.Answer == nil {
		return
	}

	kind, text := "json", c.Answer.JSON
	if v, ok := c.Answer.Value.(string); ok {
		kind, text = "", strings.TrimRight(v, "\n")+"\n"
	}

	status := c.Status
	if status == "default" {
		status = ""
		if m, ok := c.Answer.Value.(map[string]any); ok {
			status = fmt.Sprint(m["status"])
		}
	}

	part := ""
	if c.Answer.Part {
		part = ", a part of it"
	}

	w.f("Answer `%s`%s:\n\n```%s\n%s```\n\n", status, part, kind, text)
}

// heading is the title of an operation's section.
func heading(o Operation) string { return o.Method + " " + o.Path }

// link points at a heading.
func link(text, heading string) string { return "[" + text + "](#" + anchor(heading) + ")" }

// anchor is what a heading is called in links to it, by GitHub and others.
func anchor(heading string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case r == ' ' || r == '-':
			b.WriteRune('-')
		case r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z':
			b.WriteRune(r)
		}
	}

	return b.String()
}

func words(t Type) string {
	links := make([]any, len(t.Refs))
	for i, r := range t.Refs {
		links[i] = link(r, r)
	}

	return fmt.Sprintf(t.Text, links...)
}

func bodies(all []Media) string {
	var out []string
	for _, m := range all {
		text := "`" + m.ContentType + "`"
		if m.Type.Text != "" && m.Type.Text != "string" {
			text += ": " + words(m.Type)
			if m.Stream {
				text += ", any number of them"
			}
		}

		out = append(out, text)
	}

	return strings.Join(out, " or ")
}

// cell is a text within a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// width is where JSON is broken into lines.
const width = 110

// render writes a value as JSON: on one line where that is short, in the order of
// the document.
func render(n *yaml.Node, margin string) string {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}

	var parts []string

	brackets := "[]"
	switch n.Kind {
	case yaml.MappingNode:
		brackets = "{}"

		for i := 0; i+1 < len(n.Content); i += 2 {
			parts = append(parts, scalar(n.Content[i].Value)+": "+render(n.Content[i+1], margin+"  "))
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			parts = append(parts, render(item, margin+"  "))
		}
	default:
		var value any
		_ = n.Decode(&value) // as the whole document was

		return scalar(value)
	}

	line := brackets[:1] + strings.Join(parts, ", ") + brackets[1:]
	if len(margin)+len(line) <= width && !strings.Contains(line, "\n") {
		return line
	}

	next := "\n" + margin + "  "

	return brackets[:1] + next + strings.Join(parts, ","+next) + "\n" + margin + brackets[1:]
}

func scalar(value any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)

	if err := e.Encode(value); err != nil {
		return err.Error()
	}

	return strings.TrimSuffix(b.String(), "\n")
}
