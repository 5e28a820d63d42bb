// SPDX-License-Identifier: Apache-2.0

package print

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// Cells are the columns of a T whose cells take more than one field, by their title in small letters.
type Cells[T any] map[string]func(p Paint, v *T) string

// ColumnsOf returns columns of a T: a table shows them side by side, and details one below the
// other. A column is written as [TITLE=]FIELD[,OPTION…]. FIELD is the name that the tag of a field
// has for JSON, or a path to a field of a part, such as last.error. The type of the field decides
// how its values look and how they are sorted; with omitempty, a number or a boolean that JSON
// leaves out is empty here as well. The title of a cell, in small letters, has no FIELD.
//
// These are the options:
//
//	wide       only with -o wide, or on request
//	number     the text is a number, and sorted as one
//	age        the time since the moment, with the title age
//	text       with the line breaks of the text
//	lines      the texts of a list one below the other
//	else WORD  the word for an empty cell
//
// A column that T does not have, or whose values would be printed as JSON, is a mistake of the program: it panics.
func ColumnsOf[T any](cells Cells[T], columns ...string) Columns[T] {
	all := make(Columns[T], len(columns))
	for i, spec := range columns {
		parts := strings.Split(spec, ",")
		all[i] = columnOf(cells, parts[0])

		for _, option := range parts[1:] {
			all[i].apply(option, parts[0])
		}
	}

	return all
}

func columnOf[T any](cells Cells[T], spec string) Column[T] {
	title, path, titled := strings.Cut(spec, "=")
	if !titled {
		path, title = spec, strings.ReplaceAll(spec[strings.LastIndexByte(spec, '.')+1:], "_", " ")
		title = strings.ToUpper(title[:1]) + title[1:]
	}

	name := strings.ToLower(title)
	c := Column[T]{Name: strings.ReplaceAll(name, " ", "-"), Title: title, Cell: cells[name]}

	if c.Cell == nil {
		f := fieldOf(reflect.TypeFor[T](), path)
		c.value = func(v *T) any { return f.value(reflect.ValueOf(v).Elem()) }
		c.Cell = func(p Paint, v *T) string { return f.text(p, c.value(v)) }
		c.Order = func(a, b *T) int { return order(c.value(a), c.value(b)) }
	}

	return c
}

// apply applies an option of ColumnsOf.
func (c *Column[T]) apply(option, spec string) {
	cell, value := c.Cell, c.value
	word, isElse := strings.CutPrefix(option, "else ")

	switch {
	case option == "wide":
		c.Wide = true
	case isElse:
		c.Cell = func(p Paint, v *T) string { return cmp.Or(cell(p, v), word) }
	case option == "number":
		c.Order = ByNumber(func(v *T) string {
			text, _ := value(v).(string)
			return text
		})
	case option == "text":
		c.Cell = func(_ Paint, v *T) string {
			text, _ := value(v).(string)
			return Text(text)
		}
	case option == "lines":
		c.Cell = func(_ Paint, v *T) string {
			texts, _ := value(v).([]string)
			return lines(texts)
		}
	case option == "age":
		c.Name, c.Title, c.Passing = option, "Age", true
		c.Order = func(a, b *T) int { return order(value(b), value(a)) }
		c.Cell = func(_ Paint, v *T) string { return Age(momentOf(value(v))) }
	default:
		panic(fmt.Sprintf("the column %q has an unknown option %q", spec, option))
	}
}

// field is a field of a struct, or of a part of it.
type field struct {
	path      [][]int // the index of each part, and of the field
	omitEmpty bool
	anything  bool // a value of any type, as of a variable
}

// fieldOf finds a field by its path in JSON.
func fieldOf(t reflect.Type, path string) field {
	var f field

	for name := range strings.SplitSeq(path, ".") {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}

		visible := reflect.VisibleFields(t)

		i := slices.IndexFunc(visible, func(v reflect.StructField) bool {
			tag, options, _ := strings.Cut(v.Tag.Get("json"), ",")
			f.omitEmpty = options == "omitempty"
			return tag == name
		})
		if i < 0 {
			panic(fmt.Sprintf("%s has no field %q", t, path))
		}
		f.path = append(f.path, visible[i].Index)
		t = visible[i].Type
	}

	f.anything = t.Kind() == reflect.Interface

	if !forPeople(t) {
		panic(fmt.Sprintf("the field %q would be printed as JSON: give the column a cell", path))
	}

	return f
}

// forPeople reports whether valueText writes values of a type in words.
func forPeople(t reflect.Type) bool {
	if t.Implements(reflect.TypeFor[fmt.Stringer]()) {
		return true
	}

	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}

	switch t.Kind() {
	case reflect.Struct:
		return t == reflect.TypeFor[time.Time]()
	case reflect.Slice:
		return t.Elem().Kind() == reflect.String
	case reflect.Map:
		return t == reflect.TypeFor[map[string]string]()
	}

	return true
}

// value returns the value of the field, or nil if a part is absent.
func (f field) value(v reflect.Value) any {
	for _, index := range f.path {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return nil
			}

			v = v.Elem()
		}

		v = v.FieldByIndex(index)
	}

	return v.Interface()
}

// text returns a value of the field as text for people.
func (f field) text(p Paint, value any) string {
	if f.anything {
		return Scalar(value)
	}
	return valueText(p, value, f.omitEmpty)
}

// valueText returns a value as text for people.
func valueText(p Paint, value any, omitEmpty bool) string {
	v := reflect.ValueOf(value)
	if !v.IsValid() || v.IsZero() && omitEmpty {
		return ""
	}

	switch value := value.(type) {
	case inventory.Status:
		return p.Status(value)
	case inventory.State:
		return p.State(value)
	case api.JobStatus:
		return p.Job(value)
	case time.Time, *time.Time:
		return Time(momentOf(value))
	case api.Duration:
		return Duration(time.Duration(value))
	case fmt.Stringer:
		return Line(value.String())
	case map[string]string:
		return Labels(value)
	case bool:
		return YesNo(value)
	}

	switch v.Kind() {
	case reflect.String:
		return Line(v.String())
	case reflect.Pointer:
		if v.IsNil() {
			return ""
		}
		return valueText(p, v.Elem().Interface(), false)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.String {
			words := make([]string, v.Len())
			for i := range words {
				words[i] = v.Index(i).String()
			}

			return List(words)
		}
	}

	return Scalar(value)
}

// order compares two values of one field.
func order(a, b any) int {
	switch a.(type) {
	case time.Time, *time.Time:
		return compareTimes(momentOf(a), momentOf(b))
	}

	if x, y := reflect.ValueOf(a), reflect.ValueOf(b); a != nil && b != nil && x.CanInt() && y.CanInt() {
		return cmp.Compare(x.Int(), y.Int())
	}

	return strings.Compare(valueText(false, a, false), valueText(false, b, false))
}

// momentOf returns the moment of a field; zero if it is absent.
func momentOf(v any) time.Time {
	switch v := v.(type) {
	case time.Time:
		return v
	case *time.Time:
		return deref(v)
	}

	return time.Time{}
}

// Table prints items as a block: a table of all columns. Without items there is none.
func (all Columns[T]) Table(p *Printer, items []T) {
	if len(items) > 0 {
		p.gap()
		all.Rows(p, items)
	}
}

// Rows prints items as Table does, below the block before.
func (all Columns[T]) Rows(p *Printer, items []T) { Layout[T]{shown: all}.Print(p, items) }

// Details prints a value as a block with a line for each column that is not empty.
func (all Columns[T]) Details(p *Printer, v T) {
	fields := make([]Field, len(all))
	for i, c := range all {
		fields[i] = Field{c.Title, c.Cell(p.Paint, &v)}
	}

	p.Fields(fields)
}

// Blocks prints the details of each item.
func (all Columns[T]) Blocks(p *Printer, items []T) {
	for _, v := range items {
		all.Details(p, v)
	}
}

// Differences names the fields in which a JSON object differs from the one before, in their
// order, with their new values. Without a before, it names all fields.
func Differences(before, now json.RawMessage) ([]string, error) {
	was := map[string]json.RawMessage{}
	if before != nil {
		if err := json.Unmarshal(before, &was); err != nil {
			return nil, err
		}
	}

	var out []string

	d := json.NewDecoder(bytes.NewReader(now))
	if brace, err := d.Token(); err != nil || brace != json.Delim('{') {
		return nil, errors.Join(err, fmt.Errorf("%.20q is no object", now))
	}

	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}

		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}

		field := fmt.Sprint(name)
		if !bytes.Equal(was[field], value) {
			out = append(out, strings.ReplaceAll(Line(field), "_", " ")+" "+valueOf(value))
		}
		delete(was, field)
	}

	for _, field := range slices.Sorted(maps.Keys(was)) {
		out = append(out, "no "+strings.ReplaceAll(Line(field), "_", " "))
	}

	return out, nil
}

// valueOf returns a JSON value as text for people; of an object, or a list of them, only that it
// has changed.
func valueOf(value json.RawMessage) string {
	var (
		flag  bool
		at    time.Time
		text  string
		words []string
	)

	switch {
	case string(value) == "null":
		return "none"
	case json.Unmarshal(value, &flag) == nil:
		return YesNo(flag)
	case json.Unmarshal(value, &at) == nil:
		return Time(at)
	case json.Unmarshal(value, &text) == nil:
		return Line(text)
	case json.Unmarshal(value, &words) == nil:
		return List(words)
	case bytes.ContainsAny(value[:1], "[{"):
		return "changed"
	}

	return Line(string(value))
}
