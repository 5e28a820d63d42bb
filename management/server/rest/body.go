// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// maxDepth limits the nesting of a body.
const maxDepth = 64

// ReadBody reads the whole body, up to the limit of the router. It blocks until
// the client has sent it, or until the deadline of the router.
func ReadBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := noteOf(r).bodyLimit

	tooLarge := func() error {
		return inventory.Errorf(inventory.KindTooLarge, "the body is larger than the limit of %d bytes", limit).
			Do("split the request, or raise the limit (max_body in the configuration)")
	}

	if r.ContentLength > limit {
		return nil, tooLarge()
	}

	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge()
	}

	if errors.Is(err, os.ErrDeadlineExceeded) {
		err := inventory.Errorf(inventory.KindInvalid, "the body did not arrive in time: %d bytes came", len(body)).
			Do("send the body together with the header, and a right Content-Length")

		return nil, withStatus{http.StatusRequestTimeout, err}
	}

	if err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "cannot read the body: %w", err)
	}

	return body, nil
}

// CheckType refuses bodies with a content type other than JSON, or one of also.
// A missing type is accepted. Forms are refused: a page of another site can make
// a browser send them.
func CheckType(r *http.Request, also ...string) error {
	unsupported := func(header, got string) error {
		return inventory.Errorf(inventory.KindUnsupported, "the %s %q is not supported", header, got).
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
	charset := params["charset"]
	utf8Compatible := charset == "" || strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "us-ascii")

	if !utf8Compatible {
		return unsupported("charset", charset)
	}

	return nil
}

// ReadJSON strictly decodes a required JSON body into v; see Decode.
func ReadJSON(w http.ResponseWriter, r *http.Request, v any) error {
	var also []string
	if r.Method == http.MethodPatch {
		also = []string{"application/merge-patch+json"}
	}

	if err := CheckType(r, also...); err != nil {
		return err
	}

	body, err := ReadBody(w, r)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return inventory.Errorf(inventory.KindInvalid, "the request has no body").Do("send a JSON object")
	}

	return Decode(body, v, true)
}

// ReadEmpty refuses a body other than nothing or an empty object.
func ReadEmpty(w http.ResponseWriter, r *http.Request) error {
	body, err := ReadBody(w, r)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return err
	}
	return Decode(body, &struct{}{}, true)
}

// Decode decodes JSON into v. Errors have KindInvalid and name the line and
// column. Repeated names and deep nesting are errors. In strict mode unknown
// names, names in another case and misplaced nulls are errors too.
func Decode(body []byte, v any, strict bool) error {
	if at := invalidUTF8(body); at >= 0 {
		return badJSON(body, int64(at), "it is not UTF-8 text")
	}

	var raw json.RawMessage
	// Syntax first: the checker expects valid JSON.
	if err := json.Unmarshal(body, &raw); err != nil {
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			return badJSON(body, max(e.Offset-1, 0), e.Error())
		}
		return inventory.Errorf(inventory.KindInvalid, "the body is not JSON: %w", err)
	}

	// encoding/json silently accepts repeated names and other cases.
	c := checker{body: body, dec: json.NewDecoder(bytes.NewReader(body))}
	c.dec.UseNumber()

	// Without a type the checker compares names only with each other.
	var want reflect.Type
	if strict {
		want = reflect.TypeOf(v)
	}

	if err := c.value(want, "", 0); err != nil {
		return err
	}

	err := json.Unmarshal(body, v)
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		name := "the body"
		if e.Field != "" {
			name = e.Field
		}
		return errorAt(body, max(e.Offset-1, 0), "%s cannot be a %s", name, e.Value)
	}

	// A type with its own UnmarshalJSON returns errors that are complete.
	if _, ok := errors.AsType[*inventory.Error](err); ok || err == nil {
		return err
	}

	return inventory.Errorf(inventory.KindInvalid, "cannot decode the body: %w", err)
}

// invalidUTF8 returns the offset of the first byte that is not UTF-8, or -1.
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

func badJSON(body []byte, at int64, reason string) error {
	return errorAt(body, at, "the body is not JSON: %s", reason)
}

// errorAt returns an error with its line and column in the body.
func errorAt(body []byte, at int64, format string, args ...any) *inventory.Error {
	line, column := position(body, at)
	message := fmt.Sprintf(format, args...)
	return inventory.Errorf(inventory.KindInvalid, "%s, at line %d, column %d", message, line, column)
}

// position returns the line and the column of a byte, both from 1. Columns
// count characters.
func position(body []byte, at int64) (line, column int) {
	before := body[:min(at, int64(len(body)))]
	start := bytes.LastIndexByte(before, '\n') + 1
	return bytes.Count(before, []byte{'\n'}) + 1, utf8.RuneCount(before[start:]) + 1
}

// checker compares valid JSON with the type that it will be decoded into.
type checker struct {
	body []byte
	dec  *json.Decoder
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// start returns the offset of the next token.
func (c *checker) start() int64 {
	at := c.dec.InputOffset()
	for at < int64(len(c.body)) && strings.IndexByte(" \t\r\n,:", c.body[at]) >= 0 {
		at++
	}

	return at
}

// value compares the next value with the type; nil accepts any value.
func (c *checker) value(t reflect.Type, path string, depth int) error {
	nullable := false
	for t != nil && t.Kind() == reflect.Pointer {
		nullable = path != "" // the pointer to the destination is the caller's
		t = t.Elem()
	}

	want, text := "", false
	if t != nil {
		switch {
		case reflect.PointerTo(t).Implements(jsonUnmarshaler):
			t = nil // the type validates its own JSON
		case reflect.PointerTo(t).Implements(textUnmarshaler):
			want, text = "a string", true
		default:
			want = jsonType(t)
			nullable = nullable || t.Kind() == reflect.Slice || t.Kind() == reflect.Map || t.Kind() == reflect.Interface
		}
	}

	at := c.start()
	if depth > maxDepth {
		return errorAt(c.body, at, "the body is nested more than %d deep", maxDepth)
	}

	token, err := c.dec.Token()
	if err != nil {
		return inventory.Errorf(inventory.KindInvalid, "cannot decode the body: %w", err)
	}

	mismatch := func(got string) error {
		name := path
		if name == "" {
			name = "the body"
		}
		return errorAt(c.body, at, "%s has to be %s, not %s", name, want, got)
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

	_, err := c.dec.Token() // the closing delimiter

	return err
}

func (c *checker) object(t reflect.Type, path string, depth int) error {
	if t != nil && t.Kind() == reflect.Interface {
		t = nil
	}

	// encoding/json would silently prefer the last of two equal names.
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
			return errorAt(c.body, at, "the name %q is given twice", full)
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

	_, err := c.dec.Token() // the closing delimiter

	return err
}

// unknownName returns an error that suggests the most similar field.
func unknownName(body []byte, at int64, full, name string, fields []field) error {
	e := errorAt(body, at, "there is no field %q here", full)

	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
		similar := len(name) > 3 && inventory.Distance(f.name, name) <= 2

		if similar || strings.EqualFold(f.name, name) {
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

// fieldsOf returns the fields of a struct under their names in encoding/json, with those of embedded structs. No
// request has a field that hides one of those.
func fieldsOf(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)

		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			out = append(out, fieldsOf(f.Type)...)
			continue
		}

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

// jsonType describes the JSON that a type is decoded from.
func jsonType(t reflect.Type) string {
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
