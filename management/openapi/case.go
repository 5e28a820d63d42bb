// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"maps"
	"slices"
	"strings"
)

// Case is one example as a request that can be made and the answer to it.
type Case struct {
	Name, Title string
	Path        string // with the query
	Headers     map[string]string
	Body        any
	BodyJSON    string
	HasBody     bool
	Text        string // a body as it is written, instead
	Size        int    // of a body that means nothing, instead
	Fault       string

	Status      string // or "default"
	ContentType string
	Answer      *Example // nil: nothing is shown of it
}

// Cases are the examples of the operation: one for every example of an answer,
// and one for every other example of a body.
func (o Operation) Cases() []Case {
	bodies := map[string]Example{}

	var names []string
	for i, m := range o.Body.Media {
		for _, e := range m.Examples {
			if i == 0 { // the other content types say the same
				bodies[e.Name] = e
				names = append(names, e.Name)
			}
		}
	}

	shown := map[string]bool{}

	var out []Case
	for _, a := range o.Answers {
		for _, m := range a.Media {
			for _, e := range m.Examples {
				c := Case{
					Name:        e.Name,
					Title:       e.Summary,
					Path:        o.path(),
					Status:      a.Status,
					ContentType: m.ContentType,
					Answer:      &e,
					Fault:       e.Fault,
				}

				from := e.Name
				if r := e.Request; r != nil {
					c.Headers, c.Text, c.Size = r.Headers, r.Text, r.Size
					if r.Path != "" {
						c.Path = r.Path
					}

					if r.Body != "" {
						from = r.Body
					}
				}

				if b, ok := bodies[from]; ok {
					c.Body, c.BodyJSON, c.HasBody = b.Value, b.JSON, true

					shown[from] = true
					if from == e.Name {
						c.Title = b.Summary
					}
				}

				out = append(out, c)
			}
		}
	}

	for _, name := range names {
		if b := bodies[name]; !shown[name] {
			c := Case{Name: name, Title: b.Summary, Path: o.path(), Body: b.Value, BodyJSON: b.JSON, HasBody: true}
			if b.Request != nil && b.Request.Path != "" {
				c.Path = b.Request.Path
			}

			out = append(out, c)
		}
	}

	return out
}

// path is the operation's path with the parameters' examples.
func (o Operation) path() string {
	path := o.Path
	for _, p := range o.Parameters {
		if p.In == "path" {
			path = strings.ReplaceAll(path, "{"+p.Name+"}", p.Example)
		}
	}

	return path
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
