// SPDX-License-Identifier: Apache-2.0

package openapi_test

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server"
)

var update = flag.Bool("update", false, "write the rendered references")

// overviewFile is the rendered overview.
const overviewFile = "../../docs/rest.md"

func load(t *testing.T) *openapi.Document {
	t.Helper()

	text, err := server.Document()
	errtest.None(t, err)
	d, err := openapi.Load(text)
	errtest.None(t, err)
	return d
}

// overviewNote leads from the overview to the reference.
const overviewNote = "<!-- Generated from the document of the API by make docs. -->\n\n" +
	"> Every manager serves the full reference, with parameters, bodies, answers and examples, at `/v1/docs`:\n" +
	"> `curl --unix-socket /run/clusterm/clusterm.sock http://localhost/v1/docs`.\n" +
	"> [Use the API](operating/api.md) shows how to script it.\n\n"

// TestReferenceDocument compares docs/rest.md with the document. The flag -update (make
// docs) writes it.
func TestReferenceDocument(t *testing.T) {
	t.Parallel()

	d := load(t)

	want := append([]byte(overviewNote), d.Overview()...)
	if *update {
		errtest.None(t, os.WriteFile(overviewFile, want, 0o644))
		return
	}

	got, err := os.ReadFile(overviewFile)
	errtest.None(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%s is out of date: run make docs", overviewFile)
	}
}

var (
	targets  = regexp.MustCompile(`id="([^"]*)"`)
	links    = regexp.MustCompile(`href="([^"]*)"`)
	external = regexp.MustCompile(`(?i)<script|<link|<img|<iframe|@import|url\(|\son[a-z]+=`)
)

// TestPage expects every operation and schema on the page, working links, and
// no reference to anything outside.
func TestPage(t *testing.T) {
	t.Parallel()

	d := load(t)

	b, err := d.Page()
	errtest.None(t, err)
	page := string(b)
	checkLinks(t, page)

	if found := external.FindString(page); found != "" {
		t.Errorf("the page has %q", found)
	}

	for _, o := range d.Operations {
		if !strings.Contains(page, ">"+o.Method+" "+o.Path+"</h3>") {
			t.Errorf("%s %s is not on the page", o.Method, o.Path)
		}
	}

	for _, name := range d.SchemaNames() {
		if !strings.Contains(page, ">"+name+"</h3>") {
			t.Errorf("%s is not on the page", name)
		}
	}

	if strings.Contains(page, "<!-- raw HTML") {
		t.Error("a description contains HTML")
	}
}

func checkLinks(t *testing.T, page string) {
	t.Helper()

	ids := map[string]bool{}

	for _, m := range targets.FindAllStringSubmatch(page, -1) {
		if ids[m[1]] {
			t.Errorf("the id %s is used twice", m[1])
		}

		ids[m[1]] = true
	}

	for _, m := range links.FindAllStringSubmatch(page, -1) {
		anchor, inside := strings.CutPrefix(m[1], "#")
		working := inside && ids[anchor] || !inside && strings.HasPrefix(m[1], "openapi.")

		if !working {
			t.Errorf("the link to %s is broken", m[1])
		}
	}
}

// TestLoad loads a small document and checks its order, types and examples.
func TestLoad(t *testing.T) {
	t.Parallel()

	d, err := openapi.Load([]byte(`
openapi: 3.1.0
info: {title: t, version: "1", description: d}
tags: [{name: T}]
paths:
  /a/{b}:
    parameters:
      - {$ref: '#/components/parameters/B'}
    put:
      tags: [T]
      requestBody:
        content:
          application/json: {schema: {type: [string, 'null']}, examples: {two: {summary: Two, value: hi}}}
      responses: {"200": {$ref: '#/components/responses/Good'}}
    get:
      tags: [T]
      operationId: getA
      parameters: [{name: q, in: query, schema: {type: array, items: {$ref: '#/components/schemas/S'}}}]
      responses:
        "200": {$ref: '#/components/responses/Good'}
        "100": {description: between}
        default: {$ref: '#/components/responses/Bad'}
components:
  parameters: {B: {name: b, in: path, required: true, schema: {type: string, enum: [x, y]}, example: x}}
  responses:
    Good:
      description: fine
      content:
        application/json:
          schema: {$ref: '#/components/schemas/S'}
          examples: {one: {summary: One, value: {a: [{b: '1'}], x: 1}}}
    Bad: {description: bad, content: {text/plain: {schema: {type: string}}}}
  schemas:
    S:
      type: object
      required: [x]
      properties: {x: {type: integer}, o: {type: object, properties: {p: {type: boolean}}}}
`))
	errtest.None(t, err)
	put, get := d.Operations[0], d.Operations[1]
	if put.Method != "PUT" || get.OperationID != "getA" {
		t.Errorf("operations out of order: %s, %s", put.Method, get.Method)
	}
	if a := get.Answers(); len(a) != 3 || a[1].Status != "100" || a[2].Status != "default" {
		t.Errorf("answers out of order: %+v", a)
	}

	if c := d.Cases(get); len(c) != 1 || c[0].Path != "/a/x" || c[0].Status != "200" ||
		c[0].Answer.JSON != `{"x": 1, "a": [{"b": "1"}]}`+"\n" {
		t.Errorf("cases of GET: %+v", c)
	}

	if c := d.Cases(put); len(c) != 2 || c[0].Answer == nil || c[1].Body != "hi" || c[1].Answer != nil {
		t.Errorf("cases of PUT: %+v", c)
	}

	text := string(d.Markdown())
	for _, row := range []string{
		"| **`b`** | path | `x`, `y` |",
		"| `q` | query | list of [S](#s) |",
		"**Body**: `application/json`: string or null; optional",
		"| **`x`** | integer |",
		"| `o.p` | boolean |",
	} {
		if !strings.Contains(text, row) {
			t.Errorf("%q is not in the Markdown:\n%s", row, text)
		}
	}

	for _, bad := range []string{"", "a: [", "\t", "openapi: 3.1.0"} {
		if _, err := openapi.Load([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
