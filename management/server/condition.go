// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/state"
)

// A tag of a single resource is "REVISION.HASH", quotes included: the revision
// of its record, and a hash of the answer. The whole tells answers apart, also
// by what they show beside the record: the size of a job's log, or what it
// waits for. The revision alone tells whether somebody has changed the record;
// that is what a change depends on (If-Match), and "REVISION" is enough for it.
func tagOf(revision int64, body []byte) string {
	h := fnv.New64a()
	_, _ = h.Write(body)

	return fmt.Sprintf(`"%d.%016x"`, revision, h.Sum64())
}

// recordTag is the tag of a record, whatever an answer shows of it.
func recordTag(revision int64) string { return `"` + strconv.FormatInt(revision, 10) + `"` }

// viewTag is the tag of what a view shows: weak, because two answers with it
// may differ in what is not of the view.
func viewTag(v *state.View) string {
	if v.Stale {
		return fmt.Sprintf(`W/"%d.stale"`, v.Revision)
	}

	return fmt.Sprintf(`W/"%d"`, v.Revision)
}

// tags are the entity tags of one header; any: it is "*".
type tags struct {
	any  bool
	list []string
}

func (t tags) given() bool { return t.any || len(t.list) > 0 }

// tagsIn reads If-Match or If-None-Match.
func tagsIn(r *http.Request, header string) (tags, error) {
	values := r.Header.Values(header)

	text := strings.TrimSpace(strings.Join(values, ","))
	if len(values) == 0 {
		return tags{}, nil
	}

	if text == "" { // of a script without the tag, say: what was to depend on it must not happen anyhow
		return tags{}, inventory.Errorf(inventory.KindInvalid, "the header %s is empty", header).
			Do(`write it like %s: "17", quotes included, as an answer's ETag has it, or leave it out`, header)
	}

	if text == "*" {
		return tags{any: true}, nil
	}

	var out tags
	for rest := text; ; {
		rest = strings.TrimSpace(rest)
		body, weak := strings.CutPrefix(rest, "W/")

		end := -1
		if strings.HasPrefix(body, `"`) {
			end = strings.IndexByte(body[1:], '"')
		}

		if end < 0 {
			return tags{}, inventory.Errorf(inventory.KindInvalid, "the header %s is no list of entity tags: %s",
				header, text).
				Do(`write it like %s: "17", quotes included, as an answer's ETag has it`, header)
		}

		tag := body[:end+2]
		if weak {
			tag = "W/" + tag
		}

		out.list = append(out.list, tag)
		if rest = strings.TrimSpace(body[end+2:]); rest == "" {
			return out, nil
		}

		var comma bool
		if rest, comma = strings.CutPrefix(rest, ","); !comma {
			return tags{}, inventory.Errorf(inventory.KindInvalid, "the header %s is no list of entity tags: %s",
				header, text).
				Do("put commas between the tags")
		}
	}
}

// sameRecord tells whether one of the tags is of the record at that revision.
// A weak tag is of no record.
func (t tags) sameRecord(revision int64) bool {
	return t.any || slices.ContainsFunc(t.list, func(tag string) bool {
		record, _, _ := strings.Cut(strings.Trim(tag, `"`), ".")
		return record == strconv.FormatInt(revision, 10)
	})
}

// same tells whether one of the tags is this one, weak or not.
func (t tags) same(tag string) bool {
	return t.any ||
		slices.ContainsFunc(
			t.list,
			func(has string) bool { return strings.TrimPrefix(has, "W/") == strings.TrimPrefix(tag, "W/") },
		)
}

// guard is what the headers of a change say that the record has to be; nil
// where they say nothing. match tells whether one of the tags is the record's.
func guard(r *http.Request) (func(what string, match func(tags) bool) error, error) {
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

	return func(what string, match func(tags) bool) error {
		if must.given() && !match(must) {
			return inventory.Errorf(inventory.KindPrecondition, "%s is no longer what If-Match names", what).
				Do("read it again, decide anew, and repeat with the ETag of that answer")
		}

		if mustNot.given() && match(mustNot) {
			return inventory.Errorf(inventory.KindPrecondition, "%s is what If-None-Match excludes", what).
				Do("leave the header out, if the change is wanted all the same")
		}

		return nil
	}, nil
}

// condition is what the headers of a change make it depend on; at is the
// revision of the record that is to be changed.
func condition(r *http.Request, what string, at func(*state.View) (int64, error)) (access.Precondition, error) {
	check, err := guard(r)
	if err != nil || check == nil {
		return nil, err
	}

	return func(v *state.View) error {
		revision, err := at(v)
		if err != nil {
			return err
		}

		return check(what, func(t tags) bool { return t.sameRecord(revision) })
	}, nil
}

// meant refuses the headers of a promise that the route does not keep: to pass
// over them would break it.
func meant(r *http.Request, rt route) error {
	given := func(header string) bool { return len(r.Header.Values(header)) > 0 }

	none := func(header, remedy string) error {
		return inventory.Errorf(inventory.KindInvalid, "the header %s has no meaning for %s %s", header, r.Method,
			r.URL.Path).
			Do("%s", remedy)
	}
	if !rt.changes() {
		if given("If-Match") {
			return none("If-Match", "leave it out, and compare the answer's ETag; If-None-Match asks for what is new")
		}

		return nil
	}

	for _, header := range []string{"If-Match", "If-None-Match"} {
		if given(header) && !rt.tagged {
			return none(header, "leave it out: there is no record yet that it could be compared with")
		}
	}

	if given(api.HeaderIdempotencyKey) && !rt.once {
		return none(
			api.HeaderIdempotencyKey,
			"leave it out: to do the same twice is to do it once; against changes by others there is If-Match",
		)
	}

	return nil
}

// unchanged answers 304 where the request names the tag of the answer that it
// would get.
func unchanged(w http.ResponseWriter, r *http.Request, tag string) (bool, error) {
	w.Header().Set("ETag", tag)

	has, err := tagsIn(r, "If-None-Match")
	if err != nil || !has.given() || !has.same(tag) {
		return false, err
	}

	w.WriteHeader(http.StatusNotModified)

	return true, nil
}

// writeTagged answers a read of one resource.
func writeTagged(w http.ResponseWriter, r *http.Request, revision int64, value any) error {
	body, err := encodeJSON(value)
	if err != nil {
		return err
	}

	if done, err := unchanged(w, r, tagOf(revision, body)); done || err != nil {
		return err
	}

	writeBody(w, http.StatusOK, body)

	return nil
}
