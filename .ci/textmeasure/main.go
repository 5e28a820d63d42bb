// SPDX-License-Identifier: Apache-2.0

// Textmeasure prints how the Go text of a checkout reads, in figures: space and
// comments in functions, line length, wording of comments, size of interfaces.
// Each figure has a bound, taken from well-known projects in the field; the exit
// status is 1 if a figure is out of bounds.
//
//	go run ./.ci/textmeasure [DIR...]
package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	maxColumns = 120
	tabWidth   = 4
	// longRun is the number of lines without a blank one that counts as unbroken.
	longRun = 30
)

func main() {
	list := flag.Bool("l", false, "list the lines that count against the figures of line length and wording")
	flag.Parse()

	dirs := flag.Args()
	if len(dirs) == 0 {
		dirs = []string{"."}
	}

	ok, err := run(os.Stdout, dirs, *list)

	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "textmeasure:", err)
		os.Exit(2)
	case !ok:
		os.Exit(1)
	}
}

// run measures the directories and prints the table. It returns false if a
// figure is out of bounds.
func run(out io.Writer, dirs []string, list bool) (bool, error) {
	var c counts
	if list {
		c.findings = out
	}

	for _, dir := range dirs {
		files, err := goFiles(dir)
		if err != nil {
			return false, err
		}

		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				return false, err
			}

			if err := c.add(file, source); err != nil {
				return false, err
			}
		}
	}

	outOfBounds := 0

	for _, f := range c.figures() {
		state := "ok "
		if !f.withinBound() {
			state = "OFF"
			outOfBounds++
		}

		fmt.Fprintf(out, "%8.1f  %s %-5g %s %s\n", f.value, f.relation, f.bound, state, f.name)
	}

	fmt.Fprintf(out, "%d of %d figures out of bounds (%d files)\n", outOfBounds, len(c.figures()), c.files)

	return outOfBounds == 0, nil
}

// goFiles lists the Go files below dir that people write and that are no tests.
func goFiles(dir string) ([]string, error) {
	skipped := []string{".git", "vendor", "node_modules", "testdata", "bin", "dist"}

	var files []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != dir && slices.Contains(skipped, entry.Name()):
			return filepath.SkipDir
		case entry.Type().IsRegular() && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			files = append(files, path)
		}

		return nil
	})

	return files, err
}

// counts accumulates over files.
type counts struct {
	files        int
	lines        int
	longLines    int
	bodyLines    int
	blankLines   int
	innerComment int // comment lines inside function bodies
	longRuns     int
	commentLines int
	freeClauses  int
	speaking     int
	methods      []int // of each interface

	findings io.Writer // receives the lines that count against a figure; nil: none
}

var (
	generated  = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	freeClause = regexp.MustCompile(`(?i)\b(?:what|who|whoever|whatever|whose)\b`)
	speech     = regexp.MustCompile(`(?i)\b(?:says?|said|tells?|told|knows?|known)\b`)
)

// add measures one file.
func (c *counts) add(name string, source []byte) error {
	if generated.Match(source) {
		return nil
	}

	set := token.NewFileSet()

	file, err := parser.ParseFile(set, name, source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}

	lines := strings.Split(string(bytes.TrimSuffix(source, []byte("\n"))), "\n")
	c.files++
	c.lines += len(lines)

	for i, line := range lines {
		c.addLine(fmt.Sprintf("%s:%d", name, i+1), line)
	}

	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Body != nil {
				first, end := set.Position(n.Body.Lbrace).Line, set.Position(n.Body.Rbrace).Line-1
				c.addBody(lines[first:max(first, end)])
			}
		case *ast.TypeSpec:
			if i, ok := n.Type.(*ast.InterfaceType); ok && !isConstraint(i) {
				c.methods = append(c.methods, len(i.Methods.List))
			}
		}

		return true
	})

	return nil
}

// addLine counts the length of a line and the wording of a comment.
func (c *counts) addLine(position, line string) {
	if columns(line) > maxColumns {
		c.longLines++
		c.find(position, "long", line)
	}

	text := strings.TrimSpace(line)
	if !strings.HasPrefix(text, "//") || strings.HasPrefix(text, "// SPDX") || strings.HasPrefix(text, "//go:") {
		return
	}

	free, speaking := len(freeClause.FindAllString(text, -1)), len(speech.FindAllString(text, -1))
	c.commentLines++
	c.freeClauses += free
	c.speaking += speaking

	if free+speaking > 0 {
		c.find(position, "wording", text)
	}
}

func (c *counts) find(position, kind, line string) {
	if c.findings != nil {
		fmt.Fprintf(c.findings, "%s: %s: %s\n", position, kind, line)
	}
}

// addBody counts paragraphs and comments in the lines between a function's braces.
func (c *counts) addBody(lines []string) {
	c.bodyLines += len(lines)

	length := 0

	for _, line := range lines {
		text := strings.TrimSpace(line)
		if text == "" {
			c.blankLines++
			length = 0

			continue
		}

		if strings.HasPrefix(text, "//") {
			c.innerComment++
		}

		length++
		// Counted as it becomes long, and not again as it grows.
		if length == longRun {
			c.longRuns++
		}
	}
}

// isConstraint reports whether an interface lists types, so that it has no methods
// that a consumer could call.
func isConstraint(i *ast.InterfaceType) bool {
	return slices.ContainsFunc(i.Methods.List, func(f *ast.Field) bool {
		switch f.Type.(type) {
		case *ast.BinaryExpr, *ast.UnaryExpr:
			return true
		}

		return false
	})
}

// columns is the width of a line with tabs expanded.
func columns(line string) int {
	width := 0

	for _, r := range line {
		if r == '\t' {
			width += tabWidth - width%tabWidth
		} else {
			width++
		}
	}

	return width
}

// figure is one row of the table.
type figure struct {
	name     string
	value    float64
	relation string // "≥" or "≤"
	bound    float64
}

func (f figure) withinBound() bool {
	if f.relation == "≥" {
		return f.value >= f.bound
	}

	return f.value <= f.bound
}

func (c *counts) figures() []figure {
	var sum, largest int
	for _, n := range c.methods {
		sum += n
		largest = max(largest, n)
	}

	return []figure{
		{"blank lines in function bodies, %", ratio(c.blankLines, c.bodyLines, 100), "≥", 5},
		{"comments inside function bodies, %", ratio(c.innerComment, c.bodyLines, 100), "≥", 2},
		{"unbroken runs of 30 lines and more, per 1000 lines", ratio(c.longRuns, c.lines, 1000), "≤", 1.2},
		{"lines over 120 columns, per 1000 lines", ratio(c.longLines, c.lines, 1000), "≤", 5},
		{"what/who and the like, per 1000 comment lines", ratio(c.freeClauses, c.commentLines, 1000), "≤", 15},
		{"say/tell/know, per 1000 comment lines", ratio(c.speaking, c.commentLines, 1000), "≤", 15},
		{"methods of an interface, average", ratio(sum, len(c.methods), 1), "≤", 4},
		{"methods of the largest interface", float64(largest), "≤", 10},
	}
}

// ratio is n per whole, times a factor.
func ratio(n, whole, factor int) float64 {
	return float64(n*factor) / float64(cmp.Or(whole, 1))
}
