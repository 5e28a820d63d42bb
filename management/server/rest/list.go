// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
)

// Linearizable is the only value of the query parameter consistency.
const Linearizable = "linearizable"

// ViewQuery are the query parameters that set how recent an answer must be.
var ViewQuery = []openapi.Param{
	{
		Name: openapi.MinRevision, Type: openapi.Number,
		Help: "The oldest acceptable revision of the answer. The request waits for it for up to 10 s, then fails " +
			"with 503.",
	},
	{
		Name: "consistency", Values: []string{Linearizable},
		Help: "`linearizable`: the answer includes every change that any instance acknowledged before the request. " +
			"Fails with 503 after 10 s, or after 1 s if etcd has not responded for 3 s.",
	},
}

// positional are the query parameters that may differ between the pages of a
// list: they change neither its items nor their order.
var positional = []string{"limit", "continue", "fields", openapi.MinRevision, "consistency"}

// Snapshot is the state that an answer shows.
type Snapshot struct {
	Revision int64
	Stale    bool // the store has not confirmed it recently
}

// Tag returns the entity tag of a list. It is weak: two answers with the same
// tag may differ in fields outside the snapshot.
func (s Snapshot) Tag() string {
	if s.Stale {
		return fmt.Sprintf(`W/"%d.stale"`, s.Revision)
	}
	return fmt.Sprintf(`W/"%d"`, s.Revision)
}

// Listing is a kind of list. Its items come in ascending order of Key.
type Listing[T any] struct {
	Key     string // the unique field; every order ends with it
	Default string // the order without the query parameter sort
	// Fields maps each sortable field to text that sorts as the field does.
	Fields map[string]func(T) string
	// Outside: not all of an item is in the view, so that the revision does not tell whether it has changed.
	Outside bool
}

// Query returns the query parameters of the list, with these filters.
func (l Listing[T]) Query(filters ...openapi.Param) []openapi.Param {
	return append(
		slices.Clone(filters),
		openapi.Param{
			Name: "limit", Type: openapi.Number,
			Help: "The maximum number of items on a page; 0 or absent for all.",
		},
		openapi.Param{
			Name: "continue",
			Help: "The `continue` of the previous page, to get the next one. Only `limit` and `fields` may differ " +
				"from the previous request.",
		},
		openapi.Param{
			Name: "sort",
			Help: fmt.Sprintf("Fields to sort by, separated by commas; `-` before a field reverses its order: %s. "+
				"Default `%s`.", l.fieldNames(), l.Default),
		},
		openapi.Param{
			Name: "fields",
			Help: "The fields to return in each item, separated by commas. Required fields are absent too unless " +
				"listed.",
		},
	)
}

func (l Listing[T]) fieldNames() string {
	return strings.Join(slices.Sorted(maps.Keys(l.Fields)), ", ")
}

// ListingOf returns a listing in the default order, by fields of a wire type under their names
// in JSON. The first field is the key.
func ListingOf[W any](order string, fields ...string) *Listing[W] {
	l := &Listing[W]{Key: fields[0], Default: order, Fields: map[string]func(W) string{}}
	columns := columnsOf(reflect.TypeFor[W]())

	for _, name := range fields {
		i := slices.IndexFunc(columns, func(c column) bool { return c.name == name })
		if i < 0 {
			panic(fmt.Sprintf("%T has no field %s", *new(W), name))
		}
		l.Fields[name] = func(item W) string {
			return sortText(name, reflect.ValueOf(item).FieldByIndex(columns[i].at.Index).Interface())
		}
	}

	return l
}

// By lets items be sorted by one more name.
func (l *Listing[T]) By(name string, text func(T) string) *Listing[T] {
	l.Fields[name] = text
	return l
}

// sortText returns text that sorts as the value of a field does.
func sortText(field string, value any) string {
	text := fmt.Sprint(value)

	switch t := value.(type) {
	case time.Time:
		return SortTime(t)
	case *time.Time:
		if t == nil {
			return ""
		}
		return SortTime(*t)
	}

	switch {
	case reflect.ValueOf(value).CanInt(), reflect.ValueOf(value).CanUint():
		return SortNumber(text)
	case field == "addr":
		return SortAddr(text)
	}

	return text
}

// Contents are the items of one list and their wire form.
type Contents[T, W any] struct {
	At    Snapshot
	Tag   string // covers everything that the items show
	Items []T
	Show  func(T) W
}

// SortNumber pads a whole number so that text sorts by its size. "" sorts first.
func SortNumber(s string) string {
	if s == "" {
		return ""
	}
	return strings.Repeat("0", max(0, 20-len(s))) + s
}

// SortTime formats a time so that text sorts by it. The zero time sorts first.
func SortTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000000")
}

// SortAddr formats an address so that IPv4 sorts by number, then IPv6, then names.
func SortAddr(s string) string {
	ip, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		return "n" + s
	case ip.Is4():
		return fmt.Sprintf("4%x", ip.As4())
	}

	return fmt.Sprintf("6%x", ip.As16())
}

// order is one field of the order of a list.
type order struct {
	field      string
	descending bool
}

// orders parses the query parameter sort. The key always comes last.
func (l Listing[T]) orders(text string) ([]order, error) {
	if text == "" {
		text = l.Default
	}

	var out []order
	for _, term := range strings.Split(text, ",") {
		field, descending := strings.CutPrefix(strings.TrimSpace(term), "-")
		if l.Fields[field] == nil {
			return nil, inventory.Errorf(inventory.KindInvalid, "the list cannot be sorted by %q", field).
				Do("sort by %s, each with - before it for the other direction", l.fieldNames())
		}

		if slices.ContainsFunc(out, func(o order) bool { return o.field == field }) {
			return nil, inventory.Errorf(inventory.KindInvalid, "the query parameter sort has %q twice", field).
				Do("name a field once")
		}

		out = append(out, order{field, descending})
	}

	last := len(out) - 1
	for i, o := range out {
		if o.field == l.Key && i < last {
			return nil, inventory.
				Errorf(inventory.KindInvalid, "%s is unique, so the fields after it cannot sort anything", l.Key).
				Do("put %s last, or leave it out", l.Key)
		}
	}

	if out[last].field != l.Key {
		out = append(out, order{l.Key, false})
	}

	return out, nil
}

// cursor is the position of the last item of a page: its values of the fields of
// the order. An unchanged item stays on the same side of it, regardless of the
// items that come and go between two pages.
type cursor struct {
	Query uint64   `json:"q"` // identifies the list and its order
	After []string `json:"a"`
}

// place returns the position of an item in the order.
func (l Listing[T]) place(item T, by []order) []string {
	values := make([]string, len(by))
	for i, o := range by {
		values[i] = l.Fields[o.field](item)
	}

	return values
}

// comparePlaces compares two positions in the order.
func comparePlaces(a, b []string, by []order) int {
	for i, o := range by {
		if c := strings.Compare(a[i], b[i]); c != 0 {
			if o.descending {
				return -c
			}
			return c
		}
	}

	return 0
}

// sorted returns the items in the order. It does not change items.
func (l Listing[T]) sorted(items []T, by []order) []T {
	// A single field is the key: the items are in ascending order of it.
	if len(by) == 1 {
		if by[0].descending {
			items = slices.Clone(items)
			slices.Reverse(items)
		}

		return items
	}

	type placed struct {
		at   []string
		item T
	}

	all := make([]placed, len(items))
	for i, item := range items {
		all[i] = placed{l.place(item, by), item}
	}

	slices.SortFunc(all, func(a, b placed) int { return comparePlaces(a.at, b.at, by) })

	items = make([]T, len(all))
	for i := range all {
		items[i] = all[i].item
	}

	return items
}

// page returns the requested page of the items, in the requested order, and the
// token of the next page, or "".
func (l Listing[T]) page(r *http.Request, q Values, items []T) (out []T, next string, err error) {
	limit := q.Number("limit")

	by, err := l.orders(q.Text("sort"))
	if err != nil {
		return nil, "", err
	}

	here := cursor{Query: fingerprint(r, q)}

	if token := q.Text("continue"); token != "" {
		if here.After, err = resume(token, here.Query, len(by)); err != nil {
			return nil, "", err
		}
	}

	// Sort before cutting the page: the view may have changed since the last page.
	items = l.sorted(items, by)

	if here.After != nil {
		// The last item may be gone; its position still separates the pages.
		first := sort.Search(len(items), func(i int) bool {
			return comparePlaces(l.place(items[i], by), here.After, by) > 0
		})
		items = items[first:]
	}

	if limit > 0 && limit < int64(len(items)) {
		items = items[:limit]
		here.After = l.place(items[limit-1], by)

		b, err := json.Marshal(here)
		if err != nil {
			return nil, "", err
		}
		next = base64.RawURLEncoding.EncodeToString(b)
	}

	return items, next, nil
}

// fingerprint identifies a list by its path, filters and order.
func fingerprint(r *http.Request, q Values) uint64 {
	of := maps.Clone(q.given)
	for _, name := range positional {
		delete(of, name)
	}

	sum := sha256.Sum256([]byte(r.URL.EscapedPath() + "?" + of.Encode()))

	return binary.BigEndian.Uint64(sum[:])
}

// resume parses the continue token of an earlier page of the same list.
func resume(token string, query uint64, fields int) ([]string, error) {
	var c cursor

	b, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}

	if err != nil || c.After == nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "invalid continue token").
			Do("begin the list again without it")
	}

	if c.Query != query || len(c.After) != fields {
		return nil, inventory.
			Errorf(inventory.KindInvalid, "the continue token belongs to another list: filters or order differ").
			Do("repeat the first query with it, or begin again without it")
	}

	return c.After, nil
}

// WriteList answers with the requested page of a list, in full or with the
// requested fields only.
func WriteList[T, W any](w http.ResponseWriter, r *http.Request, l Listing[T], c Contents[T, W]) error {
	return WriteShown(w, r, l, c, func(item T) (W, error) { return c.Show(item), nil })
}

// WriteShown is WriteList with show in place of Contents.Show. The first error of
// show is the answer.
func WriteShown[T, W any](
	w http.ResponseWriter, r *http.Request, l Listing[T], c Contents[T, W], show func(T) (W, error),
) error {
	pick, err := picker[W](Query(r).Text("fields"))
	if err != nil {
		return err
	}
	if pick == nil {
		return writePage(w, r, l, c, show)
	}

	return writePage(w, r, l, c, func(item T) (json.RawMessage, error) {
		shown, err := show(item)
		if err != nil {
			return nil, err
		}
		return pick(reflect.ValueOf(shown))
	})
}

func writePage[T, W, P any](
	w http.ResponseWriter, r *http.Request, l Listing[T], c Contents[T, W], show func(T) (P, error),
) error {
	page, list, err := Page[T, P](r, Query(r), l, c.At, c.Items)
	if err != nil {
		return err
	}

	if done, err := NotModified(w, r, c.Tag); done || err != nil {
		return err
	}

	for _, item := range page {
		shown, err := show(item)
		if err != nil {
			return err
		}
		list.Items = append(list.Items, shown)
	}

	return WriteJSON(w, http.StatusOK, list)
}

// Page returns the requested page of the items, and the list to show it in,
// still without items.
func Page[T, W any](
	r *http.Request, q Values, l Listing[T], at Snapshot, items []T,
) ([]T, api.List[W], error) {
	page, next, err := l.page(r, q, items)

	return page, api.List[W]{
		Items: []W{}, Continue: next, Total: len(items), Revision: at.Revision, Stale: at.Stale,
	}, err
}

// column is a field of a wire type.
type column struct {
	name string
	at   reflect.StructField
	omit string // omitempty, omitzero or nothing
}

// columnsOf returns the fields of a wire type that JSON shows.
func columnsOf(t reflect.Type) []column {
	var all []column

	for _, f := range reflect.VisibleFields(t) {
		name, omit, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && !f.Anonymous && name != "-" {
			all = append(all, column{name, f, omit})
		}
	}

	return all
}

// picker returns a function that encodes an item with only the fields that the
// text lists, in their usual order, or nil if the text lists none.
func picker[W any](text string) (func(reflect.Value) (json.RawMessage, error), error) {
	if text == "" {
		return nil, nil
	}

	all := columnsOf(reflect.TypeFor[W]())

	wanted := map[string]bool{}
	for _, name := range strings.Split(text, ",") {
		name = strings.TrimSpace(name)
		if !slices.ContainsFunc(all, func(c column) bool { return c.name == name }) {
			return nil, inventory.Errorf(inventory.KindInvalid, "there is no field %q to show", name).
				Do("the fields are %s", Names(all, func(i int) string { return all[i].name }))
		}

		wanted[name] = true
	}

	// The fields keep the order of the whole object, not that of the query.
	all = slices.DeleteFunc(all, func(c column) bool { return !wanted[c.name] })

	return func(item reflect.Value) (json.RawMessage, error) { return encodeColumns(item, all) }, nil
}

func encodeColumns(item reflect.Value, columns []column) (json.RawMessage, error) {
	var b bytes.Buffer
	b.WriteByte('{')

	for _, c := range columns {
		value := item.FieldByIndex(c.at.Index)
		if c.omit == "omitzero" && value.IsZero() || c.omit == "omitempty" && isEmpty(value) {
			continue
		}

		if b.Len() > 1 {
			b.WriteByte(',')
		}

		text, err := json.Marshal(value.Interface())
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%q:%s", c.name, text)
	}

	b.WriteByte('}')

	return b.Bytes(), nil
}

// isEmpty reports whether omitempty of encoding/json leaves the value out.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice, reflect.Array:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}

	return v.IsZero()
}
