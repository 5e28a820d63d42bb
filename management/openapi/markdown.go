// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// Overview renders what all routes have in common, and one line per route.
func (d *Document) Overview() []byte {
	w := &writer{doc: d}
	w.printf("# %s\n\n%s\n", d.Info.Title, d.Info.Description)
	w.printf("## Routes\n\n")

	for _, tag := range d.Tags {
		w.printf("### %s\n\n%s\n\n", tag.Name, strings.TrimSpace(tag.Description))
		w.printf("| route | | roles |\n|---|---|---|\n")

		for _, o := range d.tagged(tag.Name) {
			w.printf("| `%s` | %s | %s |\n", heading(o), o.Summary, strings.Join(o.Roles(), ", "))
		}

		w.printf("\n")
	}

	return []byte(strings.TrimRight(w.String(), "\n") + "\n")
}

// Markdown renders the document as one page.
func (d *Document) Markdown() []byte {
	w := &writer{doc: d}
	w.printf("# %s\n\n%s\n", d.Info.Title, d.Info.Description)
	w.printf("## Overview\n\n")

	for _, tag := range d.Tags {
		w.printf("| %s | |\n|---|---|\n", link(tag.Name, tag.Name))

		for _, o := range d.tagged(tag.Name) {
			w.printf("| %s | %s |\n", link("`"+heading(o)+"`", heading(o)), o.Summary)
		}

		w.printf("\n")
	}

	w.printf("See %s for the fields of bodies.\n\n", link("Types", "Types"))

	for _, tag := range d.Tags {
		w.printf("## %s\n\n%s\n\n", tag.Name, strings.TrimSpace(tag.Description))

		for _, o := range d.tagged(tag.Name) {
			w.operation(o)
		}
	}

	w.headers()
	w.schemas()

	return []byte(strings.TrimRight(w.String(), "\n") + "\n")
}

func (d *Document) tagged(tag string) []Operation {
	var out []Operation

	for _, o := range d.Operations {
		if slices.Contains(o.Tags, tag) {
			out = append(out, o)
		}
	}

	return out
}

type writer struct {
	strings.Builder
	doc *Document
}

func (w *writer) printf(format string, args ...any) { fmt.Fprintf(w, format, args...) }

func (w *writer) operation(o Operation) {
	w.printf("### %s\n\n%s.\n\n", heading(o), o.Summary)

	if o.Description != "" {
		w.printf("%s\n\n", strings.TrimSpace(o.Description))
	}

	if roles := o.Roles(); len(roles) > 0 {
		w.printf("Roles: %s.\n\n", strings.Join(roles, ", "))
	}

	if len(o.Parameters) > 0 {
		w.printf("| parameter | in | type | meaning |\n|---|---|---|---|\n")

		for _, p := range o.Parameters {
			name := fieldName(p.Value.Name, p.Value.Required)
			meaning := cell(p.Value.Description)
			w.printf("| %s | %s | %s | %s |\n", name, p.Value.In, typeText(p.Value.Schema), meaning)
		}

		w.printf("\n")
	}

	if media := w.doc.Bodies(o); len(media) > 0 {
		w.printf("**Body**: %s", bodies(media))

		if !o.RequestBody.Value.Required {
			w.printf("; optional")
		}

		w.printf("\n\n")
	}

	w.answers(o)

	for _, c := range w.doc.Cases(o) {
		w.example(o, c)
	}
}

func (w *writer) answers(o Operation) {
	w.printf("| answer | body | meaning |\n|---|---|---|\n")

	for _, a := range o.Answers() {
		status := "`" + a.Status + "`"
		if a.Status == "default" {
			status = "other"
		}

		body := bodies(w.doc.Media(a.Content))
		if body == "" {
			body = "none"
		}
		w.printf("| %s | %s | %s", status, body, cell(*a.Description))

		if len(a.Headers) > 0 {
			w.printf(" Headers: `%s`", strings.Join(headerNames(a.Headers), "`, `"))
		}

		w.printf(" |\n")
	}

	w.printf("\n")
}

func (w *writer) example(o Operation, c Case) {
	w.printf("%s:\n\n```http\n%s %s\n", strings.TrimSuffix(c.Title, "."), o.Method, c.Path)

	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		w.printf("%s: %s\n", name, c.Headers[name])
	}

	switch {
	case c.Size > 0:
		w.printf("\n… %d bytes\n", c.Size)
	case c.Text != "":
		w.printf("\n%s\n", c.Text)
	case c.HasBody:
		w.printf("\n%s", c.BodyJSON)
	}

	w.printf("```\n\n")

	if c.Answer == nil {
		return
	}

	language, text := "json", c.Answer.JSON
	if v, ok := c.Answer.Value.(string); ok {
		language, text = "", strings.TrimRight(v, "\n")+"\n"
	}

	// The status of a failure under "default" is in its problem.
	status := c.Status
	if problem, ok := c.Answer.Value.(map[string]any); ok && status == "default" {
		status = fmt.Sprint(problem["status"])
	}

	part := ""
	if c.Answer.Part {
		part = " (excerpt)"
	}
	w.printf("Answer `%s`%s:\n\n```%s\n%s```\n\n", status, part, language, text)
}

// headers lists the headers of all answers, each once.
func (w *writer) headers() {
	w.printf("## Headers of answers\n\n| header | type | meaning |\n|---|---|---|\n")

	seen := map[string]bool{}

	for _, o := range w.doc.Operations {
		for _, a := range o.Answers() {
			for _, name := range headerNames(a.Headers) {
				if seen[name] {
					continue
				}

				seen[name] = true
				h := a.Headers[name].Value
				w.printf("| `%s` | %s | %s |\n", name, typeText(h.Schema), cell(h.Description))
			}
		}
	}
}

func (w *writer) schemas() {
	w.printf("\n## Types\n\nFields in **bold** are required in a request and always present in an answer.\n\n")

	for _, name := range w.doc.SchemaNames() {
		s := w.doc.Components.Schemas[name].Value
		w.printf("### %s\n\n%s", name, s.Description)

		// Anything but an object with defined fields is described by its type alone.
		if len(s.Properties) == 0 {
			w.printf(" (%s)\n\n", typeText(openapi3.NewSchemaRef("", s)))
			continue
		}

		w.printf("\n\n| field | type | meaning |\n|---|---|---|\n")
		w.fields("", s)
		w.printf("\n")
	}
}

// fields lists the fields of an object and, with a dotted name, those of the
// unnamed objects in it.
func (w *writer) fields(prefix string, s *openapi3.Schema) {
	for _, name := range Properties(s) {
		p := s.Properties[name]
		label := fieldName(prefix+name, slices.Contains(s.Required, name))
		w.printf("| %s | %s | %s |\n", label, typeText(p), cell(p.Value.Description))

		// A named schema has a table of its own.
		if p.Ref == "" {
			w.fields(prefix+name+".", p.Value)
		}
	}
}

func headerNames(headers openapi3.Headers) []string {
	return inOrder(headers, func(h *openapi3.HeaderRef) *openapi3.Origin { return h.Value.Origin })
}

// fieldName renders a name, bold if it is required.
func fieldName(name string, required bool) string {
	if required {
		return "**`" + name + "`**"
	}
	return "`" + name + "`"
}

// heading is the title of an operation's section.
func heading(o Operation) string { return o.Method + " " + o.Path }

// link returns a link to a heading of the same page.
func link(text, heading string) string { return "[" + text + "](#" + anchor(heading) + ")" }

// anchor returns the id that GitHub and others derive from a heading.
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

// bodies lists content types with the types of their bodies.
func bodies(all []Media) string {
	var out []string

	for _, m := range all {
		text := "`" + m.ContentType + "`"

		if words := typeText(m.Schema); words != "" && words != "string" {
			text += ": " + words

			if m.Stream {
				text += ", repeated"
			}
		}

		out = append(out, text)
	}

	return strings.Join(out, " or ")
}

// cell prepares a text for a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}
