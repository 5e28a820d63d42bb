// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// maxDepth bounds how deep a body nests.
const maxDepth = 64

// bodyTime bounds how long a client may take to send a body.
const bodyTime = 30 * time.Second

// readBody reads the whole body, within the limit.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := s.bodyLimit.Load()

	tooLarge := func() error {
		return inventory.Errorf(inventory.KindTooLarge, "the body is larger than the limit of %d bytes", limit).
			Do("split the request, or raise the limit (max_body in the configuration)")
	}
	if r.ContentLength > limit {
		w.Header().Set("Connection", "close") // what is not read would be taken for the next request
		return nil, tooLarge()
	}

	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTime))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	_ = rc.SetReadDeadline(time.Time{})

	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge()
	}

	if err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "the body did not arrive: %w", err)
	}

	return body, nil
}

// checkType refuses bodies that do not say that they are JSON, or say nothing.
// (Forms are what a page of another site can send.)
func checkType(r *http.Request, also ...string) error {
	unsupported := func(what, got string) error {
		return inventory.Errorf(inventory.KindUnsupported, "the %s %q is not read here", what, got).
			Do("send plain JSON in UTF-8, with the header Content-Type: %s", api.TypeJSON)
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return unsupported("content encoding", enc)
	}

	header := r.Header.Get("Content-Type")
	if header == "" {
		return nil
	}

	t, params, err := mime.ParseMediaType(header)
	if err != nil || t != api.TypeJSON && !slices.Contains(also, t) {
		return unsupported("content type", header)
	}

	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") &&
		!strings.EqualFold(charset, "us-ascii") {
		return unsupported("charset", charset)
	}

	return nil
}

// readJSON reads a body that has to be there into what into points to, strictly.
func (s *Server) readJSON(w http.ResponseWriter, r *http.Request, into any) error {
	var also []string
	if r.Method == http.MethodPatch {
		also = []string{"application/merge-patch+json"}
	}

	if err := checkType(r, also...); err != nil {
		return err
	}

	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}

	if len(bytes.TrimSpace(body)) == 0 {
		return inventory.Errorf(inventory.KindInvalid, "the request has no body").Do("send a JSON object")
	}

	return decode(body, into, true)
}

// readNothing refuses a body that says anything.
func (s *Server) readNothing(w http.ResponseWriter, r *http.Request) error {
	body, err := s.readBody(w, r)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return err
	}

	return decode(body, &struct{}{}, true)
}

// decode reads JSON. Every error says where. Strictly read, names that the
// destination does not have, names given twice and null where a value belongs
// are refused; otherwise the JSON package's habits hold.
func decode(body []byte, into any, strict bool) error {
	if at := invalidUTF8(body); at >= 0 {
		return badJSON(body, int64(at), "it is not UTF-8 text")
	}

	var raw json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			return badJSON(body, max(e.Offset-1, 0), e.Error())
		}

		return inventory.Errorf(inventory.KindInvalid, "the body is not JSON: %w", err)
	}

	if strict {
		c := checker{body: body, dec: json.NewDecoder(bytes.NewReader(body))}
		c.dec.UseNumber()

		if err := c.value(reflect.TypeOf(into), "", 0); err != nil {
			return err
		}
	}

	err := json.Unmarshal(body, into)
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		what := "the body"
		if e.Field != "" {
			what = e.Field
		}

		return wrong(body, max(e.Offset-1, 0), "%s cannot be a %s", what, e.Value)
	}

	if _, ok := errors.AsType[*inventory.Error](err); ok || err == nil {
		return err
	}

	return inventory.Errorf(inventory.KindInvalid, "the body cannot be read: %w", err)
}

func invalidUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}

	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}

		i += size
	}

	return -1
}

func badJSON(body []byte, at int64, why string) error {
	return wrong(body, at, "the body is not JSON: %s", why)
}

// wrong is an error at a place in the body.
func wrong(body []byte, at int64, format string, args ...any) *inventory.Error {
	line, column := position(body, at)

	return inventory.Errorf(
		inventory.KindInvalid,
		"%s, at line %d, column %d",
		fmt.Sprintf(format, args...),
		line,
		column,
	)
}

// position is the line and the column, both from 1, of a byte; columns count
// characters.
func position(body []byte, at int64) (line, column int) {
	before := body[:min(at, int64(len(body)))]
	start := bytes.LastIndexByte(before, '\n') + 1

	return bytes.Count(before, []byte{'\n'}) + 1, utf8.RuneCount(before[start:]) + 1
}

// checker walks over JSON that is known to parse, next to the type that it is
// for.
type checker struct {
	body []byte
	dec  *json.Decoder
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// start is where the next token begins.
func (c *checker) start() int64 {
	at := c.dec.InputOffset()
	for at < int64(len(c.body)) && strings.IndexByte(" \t\r\n,:", c.body[at]) >= 0 {
		at++
	}

	return at
}

// value checks the next value against the type; nil: anything goes.
func (c *checker) value(t reflect.Type, path string, depth int) error {
	nullable := false
	for t != nil && t.Kind() == reflect.Pointer {
		nullable = path != "" // of the destination itself the pointer is ours
		t = t.Elem()
	}

	want, text := "", false
	if t != nil {
		switch {
		case reflect.PointerTo(t).Implements(jsonUnmarshaler):
			t = nil // it judges for itself
		case reflect.PointerTo(t).Implements(textUnmarshaler):
			want, text = "a string", true
		default:
			want = wanted(t)
			nullable = nullable || t.Kind() == reflect.Slice || t.Kind() == reflect.Map || t.Kind() == reflect.Interface
		}
	}

	at := c.start()
	if depth > maxDepth {
		return wrong(c.body, at, "the body is nested more than %d deep", maxDepth)
	}

	token, err := c.dec.Token()
	if err != nil {
		return inventory.Errorf(inventory.KindInvalid, "the body cannot be read: %w", err)
	}

	mismatch := func(got string) error {
		what := path
		if what == "" {
			what = "the body"
		}

		return wrong(c.body, at, "%s has to be %s, not %s", what, want, got)
	}

	is := func(kinds ...reflect.Kind) bool {
		return t == nil || t.Kind() == reflect.Interface || !text && slices.Contains(kinds, t.Kind())
	}
	switch token := token.(type) {
	case json.Delim:
		if token == '[' {
			if !is(reflect.Slice, reflect.Array) {
				return mismatch("a list")
			}

			return c.list(t, path, depth+1)
		}

		if !is(reflect.Struct, reflect.Map) {
			return mismatch("an object")
		}

		return c.object(t, path, depth+1)
	case string:
		if !is(reflect.String) && !text {
			return mismatch("a string")
		}
	case json.Number:
		if !is(reflect.Int, reflect.Int64, reflect.Int32, reflect.Uint64, reflect.Float64) {
			return mismatch("a number")
		}
	case bool:
		if !is(reflect.Bool) {
			return mismatch("true or false")
		}
	case nil:
		if t != nil && !nullable {
			return mismatch("null")
		}
	}

	return nil
}

func (c *checker) list(t reflect.Type, path string, depth int) error {
	var elem reflect.Type
	if t != nil && t.Kind() != reflect.Interface {
		elem = t.Elem()
	}

	for i := 0; c.dec.More(); i++ {
		if err := c.value(elem, fmt.Sprintf("%s[%d]", path, i), depth); err != nil {
			return err
		}
	}

	_, err := c.dec.Token() // the end

	return err
}

func (c *checker) object(t reflect.Type, path string, depth int) error {
	if t != nil && t.Kind() == reflect.Interface {
		t = nil
	}

	seen := map[string]bool{}
	for c.dec.More() {
		at := c.start()

		token, err := c.dec.Token()
		if err != nil {
			return err
		}

		name, _ := token.(string)

		full := strings.TrimPrefix(path+"."+name, ".")
		if seen[name] {
			return wrong(c.body, at, "the name %q is given twice", full)
		}

		seen[name] = true

		var elem reflect.Type
		switch {
		case t == nil:
		case t.Kind() == reflect.Map:
			elem = t.Elem()
		default:
			fields := fieldsOf(t)

			i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
			if i < 0 {
				return unknownName(c.body, at, full, name, fields)
			}

			elem = fields[i].of
		}

		if err := c.value(elem, full, depth); err != nil {
			return err
		}
	}

	_, err := c.dec.Token() // the end

	return err
}

func unknownName(body []byte, at int64, full, name string, fields []field) error {
	e := wrong(body, at, "there is no field %q here", full)

	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
		if strings.EqualFold(f.name, name) || inventory.Distance(f.name, name) <= 2 && len(name) > 3 {
			return e.Do("did you mean %q?", f.name)
		}
	}

	if len(names) == 0 {
		return e.Do("send {} or nothing")
	}

	return e.Do("the fields are %s", strings.Join(names, ", "))
}

type field struct {
	name string
	of   reflect.Type
}

// fieldsOf are the names that encoding/json knows a struct's fields by. (None
// of the structs that are read embeds another.)
func fieldsOf(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)

		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}

		if name == "" {
			name = f.Name
		}

		out = append(out, field{name, f.Type})
	}

	return out
}

// wanted says in words what JSON a type is read from.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Interface:
		return "a value"
	}

	return "a number"
}
