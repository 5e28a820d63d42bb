// SPDX-License-Identifier: Apache-2.0

package openapi_test

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
)

var update = flag.Bool("update", false, "write docs/rest.md anew")

const reference = "../../docs/rest.md"

func parse(t *testing.T) *openapi.Document {
	t.Helper()

	d, err := openapi.Parse(api.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}

	return d
}

// TestReferenceDocument: docs/rest.md is what openapi.yaml says.
// go test ./management/openapi -run Document -update writes it.
func TestReferenceDocument(t *testing.T) {
	t.Parallel()
	const note = "<!-- Written from management/api/openapi.yaml by make docs. -->\n\n"

	want := append([]byte(note), parse(t).Markdown()...)
	if *update {
		if err := os.WriteFile(reference, want, 0o644); err != nil {
			t.Fatal(err)
		}

		return
	}

	got, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}

	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what openapi.yaml says; write it anew: make docs", reference)
	}
}

var (
	targets  = regexp.MustCompile(`id="([^"]*)"`)
	links    = regexp.MustCompile(`href="([^"]*)"`)
	external = regexp.MustCompile(`(?i)<script|<link|<img|<iframe|@import|url\(|\son[a-z]+=`)
)

// TestPage: the page has every operation and schema, its links lead somewhere,
// and it needs nothing from elsewhere.
func TestPage(t *testing.T) {
	t.Parallel()
	d := parse(t)

	b, err := d.Page()
	if err != nil {
		t.Fatal(err)
	}

	page := string(b)

	ids := map[string]bool{}
	for _, m := range targets.FindAllStringSubmatch(page, -1) {
		if ids[m[1]] {
			t.Errorf("two places are called %s", m[1])
		}

		ids[m[1]] = true
	}

	for _, m := range links.FindAllStringSubmatch(page, -1) {
		if anchor, inside := strings.CutPrefix(
			m[1],
			"#",
		); inside && !ids[anchor] ||
			!inside && !strings.HasPrefix(m[1], "openapi.") {
			t.Errorf("the link to %s leads nowhere", m[1])
		}
	}

	if found := external.FindString(page); found != "" {
		t.Errorf("the page has %q", found)
	}

	for _, o := range d.Operations {
		if !strings.Contains(page, ">"+o.Method+" "+o.Path+"</h3>") {
			t.Errorf("%s %s is not in the page", o.Method, o.Path)
		}
	}

	for _, s := range d.Schemas {
		if !strings.Contains(page, ">"+s.Name+"</h3>") {
			t.Errorf("%s is not in the page", s.Name)
		}
	}

	if strings.Contains(page, "<!-- raw HTML") {
		t.Error("a description holds HTML")
	}
}

// TestParse: what the document's structure means.
func TestParse(t *testing.T) {
	t.Parallel()

	d, err := openapi.Parse([]byte(`
info: {title: t, description: d}
paths:
  /a/{b}:
    parameters:
      - {$ref: '#/components/parameters/B'}
    get:
      operationId: getA
      tags: [T]
      parameters: [{name: q, in: query, schema: {type: array, items: {$ref: '#/components/schemas/S'}}}]
      responses:
        "200": &ok {description: fine, content: {application/json: {schema: {$ref: '#/components/schemas/S'}, examples: {one: {summary: One, value: {x: 1, a: [{b: '1'}]}}}}}}
        default: {$ref: '#/components/responses/Bad'}
    put:
      requestBody: {content: {application/json: {schema: {type: [string, 'null']}, examples: {two: {summary: Two, value: hi}}}}}
      responses: {"200": *ok}
components:
  parameters: {B: {name: b, in: path, required: true, schema: {type: string, enum: [x, y]}, example: x}}
  responses: {Bad: {description: bad, content: {a/b~c: {schema: {type: string}}}}}
  schemas: {S: {type: object, required: [x], properties: {x: {type: integer}, o: {type: object, properties: {p: {type: boolean}}}}}}
`))
	if err != nil {
		t.Fatal(err)
	}

	get, put := d.Operations[0], d.Operations[1]
	if get.Parameters[0].Type.Text != "`x`, `y`" || get.Parameters[1].Type.Text != "list of %s" ||
		get.Parameters[1].Pointer != "/paths/~1a~1{b}/get/parameters/0/schema" {
		t.Errorf("%+v", get.Parameters)
	}

	if a := get.Answers[1]; a.Status != "default" ||
		a.Media[0].Pointer != "/components/responses/Bad/content/a~1b~0c/schema" {
		t.Errorf("%+v", a)
	}

	if c := get.Cases(); len(c) != 1 || c[0].Path != "/a/x" || c[0].Status != "200" {
		t.Errorf("%+v", c)
	}

	if e := get.Answers[0].Media[0].Examples[0]; e.JSON != `{"x": 1, "a": [{"b": "1"}]}`+"\n" {
		t.Errorf("%s", e.JSON)
	}

	if c := put.Cases(); len(c) != 2 || c[0].Answer == nil || c[1].Body != "hi" || c[1].Answer != nil {
		t.Errorf("%+v", c)
	}

	if f := d.Schemas[0].Fields; len(f) != 3 || f[2].Name != "o.p" || !f[0].Required {
		t.Errorf("%+v", f)
	}

	for _, bad := range []string{"", "a: [", "\t"} {
		if _, err := openapi.Parse([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
