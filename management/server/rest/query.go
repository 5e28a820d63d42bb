// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/gorilla/mux"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/openapi"
)

// Param returns a parameter of the path, or "" if the path has none of that name.
func Param(r *http.Request, name string) (string, error) {
	value, err := url.PathUnescape(mux.Vars(r)[name])
	if err != nil {
		return "", inventory.Errorf(inventory.KindInvalid, "the %s in the path is not escaped properly: %w", name, err)
	}

	return value, nil
}

// Query parses the query and refuses parameters that the route does not accept.
func Query(r *http.Request) (url.Values, error) {
	allowed := noteOf(r).route.Query

	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "cannot parse the query: %w", err)
	}

	for _, name := range slices.Sorted(maps.Keys(q)) {
		if slices.ContainsFunc(allowed, func(p openapi.Param) bool { return p.Name == name }) {
			continue
		}

		unknown := inventory.Errorf(inventory.KindInvalid, "there is no query parameter %q here", name)
		if len(allowed) == 0 {
			return nil, unknown.Do("leave it out: there are none")
		}

		return nil, unknown.Do("use %s", Names(allowed, func(i int) string { return allowed[i].Name }))
	}

	return q, nil
}

// NoQuery refuses every query parameter that the route does not accept.
func NoQuery(r *http.Request) error {
	_, err := Query(r)
	return err
}

// Single returns the only value of a query parameter, or "" if it is absent.
func Single(q url.Values, name string) (string, error) {
	switch values := q[name]; {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", inventory.
			Errorf(inventory.KindInvalid, "the query parameter %s is given %d times", name, len(values)).
			Do("give it once")
	case values[0] == "":
		return "", inventory.Errorf(inventory.KindInvalid, "the query parameter %s is empty", name).
			Do("give it a value, or leave it out")
	default:
		return values[0], nil
	}
}

// Number returns a query parameter as a number of 0 or more, and whether it is given.
func Number(q url.Values, name string) (n int64, given bool, err error) {
	text, err := Single(q, name)
	if err != nil || text == "" {
		return 0, false, err
	}

	n, err = strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, false, inventory.Errorf(inventory.KindInvalid, "the query parameter %s is %q", name, text).
			Do("write a whole number, 0 or more")
	}

	return n, true, nil
}

// Bool returns a query parameter as a boolean, or fallback if it is absent.
func Bool(q url.Values, name string, fallback bool) (bool, error) {
	text, err := Single(q, name)
	if err != nil || text == "" {
		return fallback, err
	}

	switch text {
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}

	return false, inventory.Errorf(inventory.KindInvalid, "the query parameter %s is %q", name, text).
		Do("write true or false")
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
