// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/openapi"
)

// Param returns a parameter of the path, or "" if the path has none of that name.
func Param(r *http.Request, name string) string { return noteOf(r).params[name] }

// paramsOf returns the parameters of the path.
func paramsOf(r *http.Request) (map[string]string, error) {
	params := map[string]string{}

	for name, text := range mux.Vars(r) {
		value, err := url.PathUnescape(text)
		if err != nil {
			return nil, inventory.
				Errorf(inventory.KindInvalid, "the %s in the path is not escaped properly: %w", name, err)
		}

		params[name] = value
	}

	return params, nil
}

// Values are the query parameters of a request. Each has the form that the route declares.
type Values struct {
	given  url.Values
	params []openapi.Param
}

// Query returns the query parameters of a request of a strict family.
func Query(r *http.Request) Values { return noteOf(r).query }

// ParseQuery parses a query, and refuses unknown and missing parameters, and values in another form than
// the declared one.
func ParseQuery(query string, params []openapi.Param) (Values, error) {
	q, err := url.ParseQuery(query)
	if err != nil {
		return Values{}, inventory.Errorf(inventory.KindInvalid, "cannot parse the query: %w", err)
	}

	for _, name := range slices.Sorted(maps.Keys(q)) {
		i := slices.IndexFunc(params, func(p openapi.Param) bool { return p.Name == name })
		if i < 0 {
			unknown := inventory.Errorf(inventory.KindInvalid, "there is no query parameter %q here", name)
			if len(params) == 0 {
				return Values{}, unknown.Do("leave it out: there are none")
			}
			return Values{}, unknown.Do("use %s", Names(params, func(i int) string { return params[i].Name }))
		}

		if err := check(params[i], q[name]); err != nil {
			return Values{}, err
		}
	}

	for _, p := range params {
		if p.Required && !q.Has(p.Name) {
			return Values{}, inventory.Errorf(inventory.KindInvalid, "the query parameter %s is missing", p.Name).
				Do("add %s=%s", p.Name, p.Example)
		}
	}

	return Values{q, params}, nil
}

// check returns an error unless the values of a parameter have its form.
func check(p openapi.Param, values []string) error {
	switch {
	case p.Type == openapi.Texts:
		return nil
	case len(values) > 1:
		return inventory.
			Errorf(inventory.KindInvalid, "the query parameter %s is given %d times", p.Name, len(values)).
			Do("give it once")
	case values[0] == "":
		return inventory.Errorf(inventory.KindInvalid, "the query parameter %s is empty", p.Name).
			Do("give it a value, or leave it out")
	}

	wanted := ""

	switch text := values[0]; p.Type {
	case openapi.Number:
		n, err := strconv.ParseInt(text, 10, 64)

		switch {
		case err == nil && n >= p.Min && (p.Max == 0 || n <= p.Max):
		case p.Max > 0:
			wanted = "a number from " + strconv.FormatInt(p.Min, 10) + " to " + strconv.FormatInt(p.Max, 10)
		default:
			wanted = "a whole number, 0 or more"
		}
	case openapi.Flag:
		if !slices.Contains([]string{"true", "1", "false", "0"}, text) {
			wanted = "true or false"
		}
	case openapi.Time:
		if _, err := time.Parse(time.RFC3339, text); err != nil {
			wanted = "a time like 2026-01-02T15:04:05Z"
		}
	case openapi.Duration:
		most := time.Duration(p.Max)
		if d, err := time.ParseDuration(text); err != nil || d < 0 || d > most {
			wanted = "a duration from 0s to " + inventory.ShortDuration(most)
		}
	default:
		if len(p.Values) > 0 && !slices.Contains(p.Values, text) {
			wanted = strings.Join(p.Values, ", ")
		}
	}

	if wanted == "" {
		return nil
	}

	return inventory.Errorf(inventory.KindInvalid, "the query parameter %s is %q", p.Name, values[0]).
		Do("write %s", wanted)
}

// Has reports whether a parameter is given.
func (v Values) Has(name string) bool { return v.given.Has(name) }

// Texts returns every value of a parameter that may be repeated.
func (v Values) Texts(name string) []string { return v.given[name] }

// Text returns a parameter, its default, or "".
func (v Values) Text(name string) string {
	if v.given.Has(name) {
		return v.given.Get(name)
	}

	if i := slices.IndexFunc(v.params, func(p openapi.Param) bool { return p.Name == name }); i >= 0 {
		return v.params[i].Default
	}
	return ""
}

// Number returns a parameter, its default, or 0.
func (v Values) Number(name string) int64 {
	n, _ := strconv.ParseInt(v.Text(name), 10, 64)
	return n
}

// Flag returns a parameter, its default, or false.
func (v Values) Flag(name string) bool {
	text := v.Text(name)
	return text == "true" || text == "1"
}

// Time returns a parameter, or the zero time.
func (v Values) Time(name string) time.Time {
	t, _ := time.Parse(time.RFC3339, v.Text(name))
	return t
}

// Duration returns a parameter, or 0.
func (v Values) Duration(name string) time.Duration {
	d, _ := time.ParseDuration(v.Text(name))
	return d
}

// ParseEach parses every text. remedy belongs to the error of a text that does
// not parse.
func ParseEach[T any](texts []string, parse func(string) (T, error), remedy string) ([]T, error) {
	var all []T
	for _, text := range texts {
		value, err := parse(text)
		if err != nil {
			return nil, inventory.Errorf(inventory.KindInvalid, "%w", err).Do("%s", remedy)
		}
		all = append(all, value)
	}

	return all, nil
}

// Names joins the names of all rows, by their index, for a remedy.
func Names[T any](rows []T, name func(i int) string) string {
	names := make([]string, len(rows))
	for i := range rows {
		names[i] = name(i)
	}

	return strings.Join(names, ", ")
}
