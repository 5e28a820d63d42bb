// SPDX-License-Identifier: Apache-2.0

package server

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
	"net/url"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// listQuery are the query parameters that every list takes.
var listQuery = []string{"limit", "continue", "sort", "fields"}

// positional are the query parameters that may differ between the pages of a
// list: they do not change what is in it, nor in which order.
var positional = append([]string{"limit", "continue", "fields"}, viewQuery...)

// listing is one kind of list of items that are given in the order of their key.
type listing[T any] struct {
	key   string // the field that no two items have in common; the last to sort by
	usual string // what is sorted by where nothing is asked for
	// fields are what can be sorted by: text that sorts as the field does.
	fields map[string]func(T) string
}

var nodeList = listing[*inventory.Node]{key: "name", usual: "name", fields: map[string]func(*inventory.Node) string{
	"name":     func(n *inventory.Node) string { return n.Name },
	"label":    func(n *inventory.Node) string { return n.Label },
	"serial":   func(n *inventory.Node) string { return n.Serial },
	"addr":     func(n *inventory.Node) string { return sortAddr(n.Addr) },
	"status":   func(n *inventory.Node) string { return string(n.Status) },
	"state":    func(n *inventory.Node) string { return string(n.State) },
	"group":    func(n *inventory.Node) string { return n.Group },
	"job":      func(n *inventory.Node) string { return sortNumber(n.Job) },
	"verb":     func(n *inventory.Node) string { return string(n.Verb) },
	"created":  func(n *inventory.Node) string { return sortTime(n.Created) },
	"updated":  func(n *inventory.Node) string { return sortTime(n.Updated) },
	"revision": func(n *inventory.Node) string { return sortNumber(strconv.FormatInt(n.Revision, 10)) },
}}

var jobList = listing[*job.Job]{key: "id", usual: "-id", fields: map[string]func(*job.Job) string{
	"id":       func(j *job.Job) string { return sortNumber(j.ID) },
	"verb":     func(j *job.Job) string { return string(j.Verb) },
	"status":   func(j *job.Job) string { return string(j.Status) },
	"group":    func(j *job.Job) string { return j.Group },
	"actor":    func(j *job.Job) string { return j.Actor },
	"accepted": func(j *job.Job) string { return sortTime(j.Accepted) },
	"started":  func(j *job.Job) string { return sortTime(j.Started) },
	"ended":    func(j *job.Job) string { return sortTime(j.Ended) },
}}

var historyList = listing[inventory.HistoryEntry]{key: "seq", usual: "-seq",
	fields: map[string]func(inventory.HistoryEntry) string{
		"seq":  func(e inventory.HistoryEntry) string { return sortNumber(strconv.FormatUint(e.Seq, 10)) },
		"time": func(e inventory.HistoryEntry) string { return sortTime(e.Time) },
		"verb": func(e inventory.HistoryEntry) string { return string(e.Verb) },
		"to":   func(e inventory.HistoryEntry) string { return string(e.To) },
	}}

// placedGroup is a group with its place in the configuration, by which groups
// are listed.
type placedGroup struct {
	place int
	group inventory.Group
}

var groupList = listing[placedGroup]{key: "place", usual: "place", fields: map[string]func(placedGroup) string{
	"place": func(g placedGroup) string { return sortNumber(strconv.Itoa(g.place)) },
	"name":  func(g placedGroup) string { return g.group.Name },
	"needs": func(g placedGroup) string { return g.group.Needs },
}}

var instanceList = listing[state.Instance]{
	key:   "id",
	usual: "started",
	fields: map[string]func(state.Instance) string{
		"id":      func(in state.Instance) string { return in.ID },
		"node":    func(in state.Instance) string { return in.Node },
		"addr":    func(in state.Instance) string { return sortAddr(in.Addr) },
		"version": func(in state.Instance) string { return in.Version },
		"started": func(in state.Instance) string { return sortTime(in.Started) },
	},
}

// sortNumber makes whole numbers sort by their size; an empty one is the least.
func sortNumber(s string) string {
	if s == "" {
		return ""
	}

	return strings.Repeat("0", max(0, 20-len(s))) + s
}

// sortTime makes times sort by their age; none is the least.
func sortTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}

	return t.UTC().Format("2006-01-02T15:04:05.000000000")
}

// sortAddr makes IPv4 addresses sort by their numbers, then those of IPv6, then names.
func sortAddr(s string) string {
	ip, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		return "n" + s
	case ip.Is4():
		return fmt.Sprintf("4%x", ip.As4())
	}

	return fmt.Sprintf("6%x", ip.As16())
}

// order is one field that a list is sorted by.
type order struct {
	field   string
	falling bool
}

// orders reads what to sort by; the key is always the last.
func (l listing[T]) orders(text string) ([]order, error) {
	if text == "" {
		text = l.usual
	}

	var out []order
	for _, word := range strings.Split(text, ",") {
		field, falling := strings.CutPrefix(strings.TrimSpace(word), "-")
		if l.fields[field] == nil {
			return nil, inventory.Errorf(inventory.KindInvalid, "the list cannot be sorted by %q", field).
				Do("sort by %s, each with - before it for the other direction",
					strings.Join(slices.Sorted(maps.Keys(l.fields)), ", "))
		}

		if slices.ContainsFunc(out, func(o order) bool { return o.field == field }) {
			return nil, inventory.Errorf(inventory.KindInvalid, "the list is to be sorted by %q twice", field).
				Do("name a field once")
		}

		out = append(out, order{field, falling})
	}

	last := len(out) - 1
	for i, o := range out {
		if o.field == l.key && i < last {
			return nil, inventory.Errorf(inventory.KindInvalid,
				"no two items have the same %s, so nothing after it is sorted by", l.key).
				Do("put %s last, or leave it out", l.key)
		}
	}

	if out[last].field != l.key {
		out = append(out, order{l.key, false})
	}

	return out, nil
}

// cursor is where a page ended: the values that its last item is sorted by. An
// item that does not change has its place before or after it for ever, whatever
// is added or taken away meanwhile.
type cursor struct {
	Query uint64   `json:"q"` // of what list, and in which order
	After []string `json:"a"`
}

// page picks what the query asks for out of all items, in the order that it
// asks for, and says where the next page begins: "" where there is none.
func (l listing[T]) page(r *http.Request, q url.Values, items []T) (out []T, next string, err error) {
	limit, _, err := number(q, "limit")
	if err != nil {
		return nil, "", err
	}

	text, err := single(q, "sort")
	if err != nil {
		return nil, "", err
	}

	by, err := l.orders(text)
	if err != nil {
		return nil, "", err
	}

	here := cursor{Query: fingerprint(r, q)}

	token, err := single(q, "continue")
	if err != nil {
		return nil, "", err
	}

	if token != "" {
		if here.After, err = resume(token, here.Query, len(by)); err != nil {
			return nil, "", err
		}
	}

	place := func(item T) []string {
		values := make([]string, len(by))
		for i, o := range by {
			values[i] = l.fields[o.field](item)
		}

		return values
	}

	compare := func(a, b []string) int {
		for i, o := range by {
			if c := strings.Compare(a[i], b[i]); c != 0 {
				if o.falling {
					return -c
				}

				return c
			}
		}

		return 0
	}
	switch {
	case len(by) > 1:
		type placed struct {
			at   []string
			item T
		}

		all := make([]placed, len(items))
		for i, item := range items {
			all[i] = placed{place(item), item}
		}

		slices.SortFunc(all, func(a, b placed) int { return compare(a.at, b.at) })

		items = make([]T, len(all))
		for i := range all {
			items[i] = all[i].item
		}
	case by[0].falling:
		items = slices.Clone(items)
		slices.Reverse(items)
	}

	if here.After != nil {
		items = items[sort.Search(len(items), func(i int) bool { return compare(place(items[i]), here.After) > 0 }):]
	}

	if limit > 0 && limit < int64(len(items)) {
		items = items[:limit]
		here.After = place(items[limit-1])

		b, err := json.Marshal(here)
		if err != nil {
			return nil, "", err
		}

		next = base64.RawURLEncoding.EncodeToString(b)
	}

	return items, next, nil
}

// fingerprint tells lists apart: by path, filters and order.
func fingerprint(r *http.Request, q url.Values) uint64 {
	of := maps.Clone(q)
	for _, name := range positional {
		delete(of, name)
	}

	sum := sha256.Sum256([]byte(r.URL.EscapedPath() + "?" + of.Encode()))

	return binary.BigEndian.Uint64(sum[:])
}

// resume reads a token that an earlier page of the same list ended with.
func resume(token string, query uint64, fields int) ([]string, error) {
	var c cursor

	b, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}

	if err != nil || c.After == nil {
		return nil, inventory.Errorf(inventory.KindInvalid,
			"the query parameter continue is nothing that a list has given").
			Do("begin the list again without it")
	}

	if c.Query != query || len(c.After) != fields {
		return nil, inventory.Errorf(inventory.KindInvalid,
			"the query parameter continue belongs to another list: filters and order have to stay as they were").
			Do("repeat the first query with it, or begin again without it")
	}

	return c.After, nil
}

// writeList answers with the page of the items that the query asks for, as show
// makes them, or with the fields of them that it asks for. The tag is of all that
// the items show.
func writeList[T, W any](
	w http.ResponseWriter,
	r *http.Request,
	v *state.View,
	q url.Values,
	l listing[T],
	tag string,
	items []T,
	show func(T) W,
) error {
	pick, err := picker[W](q)
	if err != nil {
		return err
	}

	if pick == nil {
		page, list, err := pageOf[T, W](r, v, q, l, items)
		if err != nil {
			return err
		}

		if done, err := unchanged(w, r, tag); done || err != nil {
			return err
		}

		for _, item := range page {
			list.Items = append(list.Items, show(item))
		}

		return writeJSON(w, http.StatusOK, list)
	}

	page, list, err := pageOf[T, json.RawMessage](r, v, q, l, items)
	if err != nil {
		return err
	}

	if done, err := unchanged(w, r, tag); done || err != nil {
		return err
	}

	for _, item := range page {
		part, err := pick(reflect.ValueOf(show(item)))
		if err != nil {
			return err
		}

		list.Items = append(list.Items, part)
	}

	return writeJSON(w, http.StatusOK, list)
}

// pageOf is the page of the items that the query asks for, and the list that
// it is to be shown in, which has no items yet.
func pageOf[T, W any](
	r *http.Request,
	v *state.View,
	q url.Values,
	l listing[T],
	items []T,
) ([]T, api.List[W], error) {
	page, next, err := l.page(r, q, items)
	list := listOf[W](v, nil)
	list.Continue, list.Total = next, len(items)

	return page, list, err
}

func listOf[T any](v *state.View, items []T) api.List[T] {
	if items == nil {
		items = []T{}
	}

	return api.List[T]{Items: items, Total: len(items), Revision: v.Revision, Stale: v.Stale}
}

// picker makes of an item an object with just the fields that the query asks
// for, in the order of the whole; nil: it asks for none in particular.
func picker[W any](q url.Values) (func(reflect.Value) (json.RawMessage, error), error) {
	text, err := single(q, "fields")
	if err != nil || text == "" {
		return nil, err
	}

	type column struct {
		name string
		at   reflect.StructField
		omit string // omitempty, omitzero or nothing
	}

	var all []column
	for _, f := range reflect.VisibleFields(reflect.TypeFor[W]()) {
		name, omit, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && !f.Anonymous && name != "-" {
			all = append(all, column{name, f, omit})
		}
	}

	wanted := map[string]bool{}
	for _, name := range strings.Split(text, ",") {
		if name = strings.TrimSpace(name); !slices.ContainsFunc(all, func(c column) bool { return c.name == name }) {
			known := make([]string, len(all))
			for i, c := range all {
				known[i] = c.name
			}

			return nil, inventory.Errorf(inventory.KindInvalid, "there is no field %q to show", name).
				Do("the fields are %s", strings.Join(known, ", "))
		}

		wanted[name] = true
	}

	all = slices.DeleteFunc(all, func(c column) bool { return !wanted[c.name] })

	return func(item reflect.Value) (json.RawMessage, error) {
		var b bytes.Buffer
		b.WriteByte('{')

		for _, c := range all {
			value := item.FieldByIndex(c.at.Index)
			if c.omit == "omitzero" && value.IsZero() || c.omit == "omitempty" && empty(value) {
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
	}, nil
}

// empty is what omitempty of encoding/json leaves out.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice, reflect.Array:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}

	return v.IsZero()
}
