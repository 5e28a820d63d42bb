// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// Tag returns the strong entity tag "REVISION.HASH" of one resource: the
// revision of its record, and a hash of the answer. The hash covers fields
// outside the record, such as the size of a job's log. If-Match compares the
// revision only, so "REVISION" is enough for it.
func Tag(revision int64, body []byte) string {
	h := fnv.New64a()
	_, _ = h.Write(body)
	return fmt.Sprintf(`"%d.%016x"`, revision, h.Sum64())
}

// RecordTag returns the entity tag of a record in any representation.
func RecordTag(revision int64) string { return `"` + strconv.FormatInt(revision, 10) + `"` }

// Tags are the entity tags of one header. The zero value is an absent header.
type Tags struct {
	any  bool // the header is "*"
	list []string
}

func (t Tags) given() bool { return t.any || len(t.list) > 0 }

// MatchRecord reports whether one of the tags is a strong tag of the record at
// that revision.
func (t Tags) MatchRecord(revision int64) bool {
	return t.any || slices.ContainsFunc(t.list, func(tag string) bool {
		record, _, _ := strings.Cut(strings.Trim(tag, `"`), ".")
		return record == strconv.FormatInt(revision, 10)
	})
}

// matchWeak compares the tags with one tag by the weak comparison of RFC 9110.
func (t Tags) matchWeak(tag string) bool {
	return t.any || slices.ContainsFunc(t.list, func(has string) bool {
		return strings.TrimPrefix(has, "W/") == strings.TrimPrefix(tag, "W/")
	})
}

// tagsIn parses If-Match or If-None-Match.
func tagsIn(r *http.Request, header string) (Tags, error) {
	values := r.Header.Values(header)
	if len(values) == 0 {
		return Tags{}, nil
	}
	text := strings.TrimSpace(strings.Join(values, ","))

	switch text {
	case "":
		// Typically a script with an unset variable. Without the precondition the
		// change could overwrite another one, so it is refused.
		return Tags{}, inventory.Errorf(inventory.KindInvalid, "the header %s is empty", header).
			Do(`write it like %s: "17", quotes included, as in the ETag of an answer, or leave it out`, header)
	case "*":
		return Tags{any: true}, nil
	}

	invalid := func(remedy string, args ...any) (Tags, error) {
		return Tags{}, inventory.
			Errorf(inventory.KindInvalid, "the header %s is no list of entity tags: %s", header, text).
			Do(remedy, args...)
	}

	var tags Tags
	for rest := text; ; {
		rest = strings.TrimSpace(rest)
		body, weak := strings.CutPrefix(rest, "W/")

		// A quoted tag may contain commas, so the header cannot be split at them.
		end := -1
		if strings.HasPrefix(body, `"`) {
			end = strings.IndexByte(body[1:], '"')
		}
		if end < 0 {
			return invalid(`write it like %s: "17", quotes included, as in the ETag of an answer`, header)
		}

		tag := body[:end+2]
		if weak {
			tag = "W/" + tag
		}
		tags.list = append(tags.list, tag)
		if rest = strings.TrimSpace(body[end+2:]); rest == "" {
			return tags, nil
		}

		var comma bool
		if rest, comma = strings.CutPrefix(rest, ","); !comma {
			return invalid("put commas between the tags")
		}
	}
}

// Precondition returns KindPrecondition unless the current tags of a record meet
// the headers of a request. match reports whether one of the given tags is
// current; name names the record in the error.
type Precondition func(name string, match func(Tags) bool) error

// PreconditionOf returns the precondition in If-Match and If-None-Match, or nil
// if neither is set.
func PreconditionOf(r *http.Request) (Precondition, error) {
	// If both headers are set, the change needs both.
	must, err := tagsIn(r, "If-Match")
	if err != nil {
		return nil, err
	}

	mustNot, err := tagsIn(r, "If-None-Match")
	if err != nil {
		return nil, err
	}
	if !must.given() && !mustNot.given() {
		return nil, nil
	}

	return func(name string, match func(Tags) bool) error {
		if must.given() && !match(must) {
			return inventory.
				Errorf(inventory.KindPrecondition, "%s has changed: its ETag does not match If-Match", name).
				Do("read it again, and repeat the change with the ETag of that answer")
		}

		if mustNot.given() && match(mustNot) {
			return inventory.Errorf(inventory.KindPrecondition, "the ETag of %s matches If-None-Match", name).
				Do("leave the header out to make the change anyway")
		}

		return nil
	}, nil
}

// checkHeaders refuses preconditions and keys that the route would ignore: the
// client relies on them.
func checkHeaders(r *http.Request, rt Route) error {
	given := func(header string) bool { return len(r.Header.Values(header)) > 0 }

	unused := func(header, remedy string) error {
		return inventory.
			Errorf(inventory.KindInvalid, "the header %s has no meaning for %s %s", header, r.Method, r.URL.Path).
			Do("%s", remedy)
	}

	if !rt.Mutates() {
		if given("If-Match") {
			return unused("If-Match", "compare the ETag of the answer, or send If-None-Match to receive changes only")
		}
		return nil
	}

	for _, header := range []string{"If-Match", "If-None-Match"} {
		if given(header) && !rt.Conditional {
			return unused(header, "leave it out: the request changes no existing record")
		}
	}

	if given(api.HeaderIdempotencyKey) && !rt.Keyed() {
		return unused(api.HeaderIdempotencyKey, "leave it out; after a lost answer, look before you repeat the request")
	}

	return nil
}

// NotModified sets the ETag. If the request has the tag already, it answers 304
// and returns true.
func NotModified(w http.ResponseWriter, r *http.Request, tag string) (bool, error) {
	w.Header().Set("ETag", tag)

	has, err := tagsIn(r, "If-None-Match")
	if err != nil || !has.given() || !has.matchWeak(tag) {
		return false, err
	}

	w.WriteHeader(http.StatusNotModified)

	return true, nil
}

// WriteTagged answers with one resource and its tag, or with 304.
func WriteTagged(w http.ResponseWriter, r *http.Request, revision int64, v any) error {
	body, err := EncodeJSON(v)
	if err != nil {
		return err
	}
	if done, err := NotModified(w, r, Tag(revision, body)); done || err != nil {
		return err
	}

	writeBody(w, http.StatusOK, body)

	return nil
}
