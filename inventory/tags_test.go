// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"strings"
	"testing"
)

// TestGroupTags refuses tags that would mean something else to Ansible, or nothing.
func TestGroupTags(t *testing.T) {
	t.Parallel()

	many := make([]string, MaxTags+1)
	for i := range many {
		many[i] = fmt.Sprint("t", i)
	}

	for _, tt := range []struct {
		group Group
		says  string // "": valid
	}{
		{Group{Tags: []string{"web", "a.b:c-d_1"}, SkipTags: []string{"slow"}}, ""},
		{Group{Tags: many[1:]}, ""},
		{Group{Tags: many}, "group a: tags has 51 tags, the limit is 50"},
		{Group{Tags: []string{""}}, `group a: tags: "" is not a tag`},
		{Group{SkipTags: []string{"a,b"}}, `group a: skip_tags: "a,b" is not a tag`},
		{Group{Tags: []string{"a b"}}, `"a b" is not a tag`},
		{Group{Tags: []string{"-v"}}, `"-v" is not a tag`},
		{Group{Tags: []string{"a\n"}}, `"a\n" is not a tag`},
		{Group{Tags: []string{"a\x1b[2J"}}, `is not a tag`},
		{Group{Tags: []string{strings.Repeat("x", 1<<20)}}, "is not a tag"},
		{Group{Tags: []string{"all"}}, `tags: "all" has a meaning of its own for Ansible`},
		{Group{Tags: []string{"never"}}, `tags: "never" has a meaning`},
		{Group{SkipTags: []string{"always"}}, `skip_tags: "always" has a meaning`},
		{Group{SkipTags: []string{"tagged"}}, `skip_tags: "tagged" has a meaning`},
		{Group{Tags: []string{"web", "db", "web"}}, `tags: "web" is there twice`},
		{Group{Tags: []string{"web"}, SkipTags: []string{"web"}}, `"web" is in tags and in skip_tags`},
	} {
		tt.group.Name = "a"

		err := Groups{tt.group}.Check()
		if tt.says == "" && err != nil || tt.says != "" && (KindOf(err) != KindInvalid ||
			!strings.Contains(err.Error(), tt.says) || len(err.Error()) > 300) {
			t.Errorf("got %v, want %q", err, tt.says)
		}
	}
}

// TestSelectionOfGroups: the order of tags in the configuration is no difference.
func TestSelectionOfGroups(t *testing.T) {
	t.Parallel()

	a := Group{Name: "a", Tags: []string{"web", "db"}, SkipTags: []string{"slow", "big"}}
	gs := Groups{a, {Name: "b", Tags: []string{"db", "web"}, SkipTags: []string{"big", "slow"}}, {Name: "c"}}

	if got := gs.Selection("a").String(); got != "tags db, web; skip_tags big, slow" {
		t.Error(got)
	}

	if a.Tags[0] != "web" {
		t.Error("the configuration was sorted")
	}

	if !gs.Selection("a").Equal(gs.Selection("b")) || gs.Selection("a").Equal(gs.Selection("c")) {
		t.Error("the order of tags counts")
	}

	if all := gs.Selections(); len(all) != 2 || !gs.Selection("c").Empty() || !gs.Selection("nobody").Empty() {
		t.Errorf("%v", all)
	}
}

// TestWithin: a request narrows the tasks of a group, and never widens them.
func TestWithin(t *testing.T) {
	t.Parallel()

	list := func(text string) []string {
		if text == "" {
			return nil
		}
		return strings.Split(text, " ")
	}
	selection := func(tags, skip string) Selection { return Selection{Tags: list(tags), SkipTags: list(skip)} }

	for _, tt := range []struct {
		request, group Selection
		want           string // the selection, or the refusal
	}{
		{selection("", ""), selection("", ""), ""},
		{selection("web", "slow"), selection("", ""), "tags web; skip_tags slow"},
		{selection("", ""), selection("web db", "slow"), "tags web, db; skip_tags slow"},
		{selection("db", ""), selection("web db", "slow"), "tags db; skip_tags slow"},
		{selection("db", "big slow"), selection("web db", "slow"), "tags db; skip_tags slow, big"},
		{selection("tls", ""), selection("", "slow"), "tags tls; skip_tags slow"},
		{selection("db tls", ""), selection("web db", ""), `tags: "tls" is not among the tags of group g: web, db`},
		{selection("all", ""), selection("web", ""), `tags: "all" is not among the tags of group g: web`},
		{selection("slow", ""), selection("", "slow"), `tags: group g skips the tag "slow"`},
	} {
		got, err := tt.request.Within("g", tt.group)

		text := got.String()
		if err != nil {
			text = err.Error()
		}
		if text, _, _ = strings.Cut(text, "; choose"); err != nil {
			text, _, _ = strings.Cut(text, "; leave")
		}

		if text != tt.want || err != nil && KindOf(err) != KindInvalid {
			t.Errorf("%v within %v: got %q, want %q", tt.request, tt.group, text, tt.want)
		}
	}

	skip := func(prefix string) Selection {
		var s Selection
		for i := range MaxTags {
			s.SkipTags = append(s.SkipTags, fmt.Sprint(prefix, i))
		}

		return s
	}

	if _, err := skip("a").Within("g", skip("b")); err == nil ||
		!strings.Contains(err.Error(), "with those of group g, skip_tags has 100 tags, the limit is 50") {
		t.Errorf("%v", err)
	}
}
