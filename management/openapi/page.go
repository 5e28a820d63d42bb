// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"bytes"
	_ "embed" // for the page around the reference
	"html/template"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
)

//go:embed page.html
var page string

var pageTemplate = template.Must(template.New("page").Parse(page))

// Page renders the document as one page of HTML, complete without scripts or
// further files.
func (d *Document) Page() ([]byte, error) {
	var body bytes.Buffer

	markdown := goldmark.New(
		goldmark.WithExtensions(extension.Table),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	)
	if err := markdown.Convert(d.Markdown(), &body); err != nil {
		return nil, err
	}

	var out bytes.Buffer

	err := pageTemplate.Execute(&out, struct {
		Title string
		Body  template.HTML
	}{d.Info.Title, template.HTML(body.String())}) //nolint:gosec // goldmark drops raw HTML from its input

	return out.Bytes(), err
}
