// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/contiv/cluster/inventory/errtest"
)

var (
	fencePattern   = regexp.MustCompile("^ *(```|~~~)")
	codePattern    = regexp.MustCompile("`[^`]*`")
	linkPattern    = regexp.MustCompile(`\]\(<?([^)\s>]+)>?(?: "[^"]*")?\)`)
	sourcePattern  = regexp.MustCompile(`<(?:img|a|source)\b[^>]*\b(?:src|href|srcset)="([^"]+)"`)
	headingPattern = regexp.MustCompile(`^#{1,6} +(.*?) *#* *$`)
	markPattern    = regexp.MustCompile(`\b(?:id|name)="([^"]+)"`)
)

// TestLinks checks every relative link and anchor in the repository's markdown.
func TestLinks(t *testing.T) {
	t.Parallel()

	pages := markdown(t)
	anchors := map[string]map[string]bool{}

	for path, text := range pages {
		anchors[path] = anchorsOf(text)
	}

	links := 0
	for path, text := range pages {
		for _, link := range linksOf(text) {
			if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
				continue
			}

			links++

			if problem := checkLink(path, link, anchors); problem != "" {
				t.Errorf("%s: link %s: %s", path, link, problem)
			}
		}
	}

	if len(pages) < 10 || links < 50 {
		t.Fatalf("found %d pages with %d links; the search misses some", len(pages), links)
	}
}

// checkLink returns the defect of a relative link on the page, or "".
func checkLink(page, link string, anchors map[string]map[string]bool) string {
	file, anchor, hasAnchor := strings.Cut(link, "#")

	target := page
	if file != "" {
		target = filepath.Join(filepath.Dir(page), file)
	}
	info, err := os.Stat(filepath.Join(root, target))
	switch {
	case err != nil:
		return "there is no such file"
	case !hasAnchor:
		return ""
	case info.IsDir():
		target = filepath.Join(target, "README.md")
	}

	known, isPage := anchors[target]
	if isPage && !known[anchor] {
		return fmt.Sprintf("%s has no heading for this anchor", target)
	}

	return ""
}

// markdown returns the text of each markdown file by its path below root.
func markdown(t *testing.T) map[string]string {
	t.Helper()

	pages := map[string]string{}

	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		// Hidden folders and build results are not part of the repository.
		name := entry.Name()
		if entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "dist") {
			return filepath.SkipDir
		}
		if entry.IsDir() || filepath.Ext(name) != ".md" {
			return nil
		}

		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		rel, err := filepath.Rel(root, path)
		pages[rel] = string(text)

		return err
	})
	errtest.None(t, err)

	return pages
}

// prose returns the lines of a page outside of code blocks.
func prose(text string) []string {
	var out []string

	inCode := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if fencePattern.MatchString(line) {
			inCode = !inCode
			continue
		}

		if !inCode {
			out = append(out, line)
		}
	}

	return out
}

func linksOf(text string) []string {
	var out []string

	for _, line := range prose(text) {
		line = codePattern.ReplaceAllString(line, "`")
		for _, pattern := range []*regexp.Regexp{linkPattern, sourcePattern} {
			for _, match := range pattern.FindAllStringSubmatch(line, -1) {
				out = append(out, match[1])
			}
		}
	}

	return out
}

// anchorsOf returns the anchors of a page: those that GitHub derives from its
// headings, and those written as HTML attributes.
func anchorsOf(text string) map[string]bool {
	out := map[string]bool{}
	seen := map[string]int{}

	for _, line := range prose(text) {
		for _, match := range markPattern.FindAllStringSubmatch(line, -1) {
			out[match[1]] = true
		}

		heading := headingPattern.FindStringSubmatch(line)
		if heading == nil {
			continue
		}
		anchor := slug(heading[1])
		if n := seen[anchor]; n > 0 {
			out[fmt.Sprintf("%s-%d", anchor, n)] = true
		} else {
			out[anchor] = true
		}

		seen[anchor]++
	}

	return out
}

// slug returns the anchor that GitHub gives a heading: lower case, blanks as
// hyphens, no punctuation.
func slug(heading string) string {
	heading = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(heading, "$1")

	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}

		return -1
	}, heading)
}
