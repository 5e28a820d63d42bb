// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"fmt"
	"strings"
)

// Case is one example as a request with its answer.
type Case struct {
	Name, Title string
	Path        string // with the query
	Headers     map[string]string
	Body        any
	BodyJSON    string
	HasBody     bool
	Text        string // sent verbatim in place of Body
	Size        int    // bytes of blanks sent in place of Body
	Fault       string

	Status      string // or "default"
	ContentType string
	Answer      *Example // nil: the document shows no answer
}

// Cases returns the examples of the operation: one per example of an answer,
// and one per body example that no answer refers to.
func (d *Document) Cases(o Operation) []Case {
	bodies := map[string]Example{}

	var names []string

	// Further content types repeat the examples of the first.
	if media := d.Bodies(o); len(media) > 0 {
		for _, e := range media[0].Examples {
			bodies[e.Name] = e
			names = append(names, e.Name)
		}
	}

	shown := map[string]bool{}

	var out []Case

	for _, a := range o.Answers() {
		for _, m := range d.Media(a.Content) {
			for _, e := range m.Examples {
				c, body := answered(o, e, bodies)
				c.Status, c.ContentType = a.Status, m.ContentType
				shown[body] = true
				out = append(out, c)
			}
		}
	}

	// The remaining bodies are requests without a documented answer.
	for _, name := range names {
		if shown[name] {
			continue
		}

		body := bodies[name]
		c := Case{
			Name: name, Title: body.Summary, Path: o.examplePath(),
			Body: body.Value, BodyJSON: body.JSON, HasBody: true, Fault: body.Fault,
		}

		if body.Request != nil && body.Request.Path != "" {
			c.Path = body.Request.Path
		}

		out = append(out, c)
	}

	return out
}

// answered returns the case of an answer's example and the name of its body example.
func answered(o Operation, e Example, bodies map[string]Example) (Case, string) {
	c := Case{Name: e.Name, Title: e.Summary, Path: o.examplePath(), Answer: &e, Fault: e.Fault}
	body := e.Name

	if r := e.Request; r != nil {
		c.Headers, c.Text, c.Size = r.Headers, r.Text, r.Size

		if r.Path != "" {
			c.Path = r.Path
		}

		if r.Body != "" {
			body = r.Body
		}
	}

	if b, ok := bodies[body]; ok {
		c.Body, c.BodyJSON, c.HasBody = b.Value, b.JSON, true

		if body == e.Name {
			c.Title = b.Summary
		}
	}

	return c, body
}

// examplePath returns the path with the examples of its parameters filled in.
func (o Operation) examplePath() string {
	path := o.Path

	for _, p := range o.Parameters {
		if p.Value.In == "path" {
			path = strings.ReplaceAll(path, "{"+p.Value.Name+"}", fmt.Sprint(p.Value.Example))
		}
	}

	return path
}
