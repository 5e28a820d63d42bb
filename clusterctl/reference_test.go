// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

var update = flag.Bool("update", false, "rewrite docs/cli.md")

const (
	document = "../docs/cli.md"
	// markdownWidth is the width of the reference, in columns.
	markdownWidth = 118
)

// TestReferenceDocument compares docs/cli.md with the command tree. With -update it
// rewrites the file.
func TestReferenceDocument(t *testing.T) {
	want := reference()
	if *update {
		errtest.None(t, os.WriteFile(document, want, 0o644))
	}
	if got, err := os.ReadFile(document); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s does not match the command tree (%v); to rewrite it: make docs", document, err)
	}
}

// TestReferenceIsWhole requires a section, an example and a manual page for every
// command, and has the man program check the page.
func TestReferenceIsWhole(t *testing.T) {
	text, pages := string(reference()), Man(api.Version{Version: "1.2-3"})
	each(tree(t), "clusterctl", func(c *cli.Command, path string) {
		page := string(pages[strings.ReplaceAll(path, " ", "-")+".1"])
		if len(c.VisibleCommands()) == 0 && !strings.Contains(text, "\n## "+path+"\n") {
			t.Errorf("%s is missing from the reference", path)
		}

		if !strings.Contains(page, roff(c.Usage)) || len(examplesOf(c)) == 0 ||
			!strings.Contains(page, roff(examplesOf(c)[0])) {
			t.Errorf("%s has no manual page with an example:\n%s", path, page)
		}
	})

	man, err := exec.LookPath("man")
	if err != nil {
		t.Skip("man is not installed")
	}

	dir := t.TempDir()

	name := filepath.Join(dir, "clusterctl.1")
	errtest.None(t, os.WriteFile(name, pages["clusterctl.1"], 0o600))
	c := exec.Command(man, "--warnings", "-l", name)
	c.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANPAGER=cat", "MANWIDTH=80")
	var errs bytes.Buffer
	c.Stderr = &errs

	out, err := c.Output()
	if err != nil || errs.Len() > 0 || !bytes.Contains(out, []byte("EXIT STATUS")) {
		t.Errorf("man: %v\n%s\n%s", err, errs.String(), out)
	}
}

// reference returns the reference of the command line in Markdown.
func reference() []byte {
	root := (&app{}).root()
	var b bytes.Buffer
	fmt.Fprintf(
		&b,
		"# clusterctl\n\n<!-- Generated from the command tree by `make docs`; do not edit. -->\n\n%s\n\n%s\n",
		sentence(root.Usage),
		markdown(root.Description),
	)
	b.WriteString(
		"\nOptions are accepted before and after arguments, until `--`. Standard output carries the requested " +
			"answer only;\n" +
			"progress, warnings and errors go to standard error. `-o json` prints the answer of the manager, and " +
			"only ever grows.\n",
	)
	tableOf(&b, "Global options", "option", flagRows(root.Flags))
	tableOf(&b, "Exit codes", "code", exitRows())
	b.WriteString("\n## Commands\n\n")
	// The index first, then one section per command.
	each(root, "clusterctl", func(c *cli.Command, path string) {
		if len(c.VisibleCommands()) == 0 {
			fmt.Fprintf(
				&b,
				"* [%s](#%s): %s\n",
				strings.TrimPrefix(path, "clusterctl "),
				strings.ReplaceAll(path, " ", "-"),
				c.Usage,
			)
		}
	})
	each(root, "clusterctl", func(c *cli.Command, path string) {
		if len(c.VisibleCommands()) > 0 {
			return
		}

		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n```\n%s\n```\n", path, sentence(c.Usage), synopsis(c, path))

		if c.Description != "" {
			fmt.Fprintf(&b, "\n%s\n", markdown(c.Description))
		}

		if options := flagRows(c.Flags); len(options) > 0 {
			b.WriteString("\n| option | |\n|---|---|\n")

			for _, r := range options {
				fmt.Fprintf(&b, "| `%s` | %s |\n", r[0], cell(r[1]))
			}
		}

		fmt.Fprintf(&b, "\n```\n%s\n```\n", strings.Join(examplesOf(c), "\n"))
	})

	return b.Bytes()
}

// tableOf writes a titled table of two columns.
func tableOf(b *bytes.Buffer, title, head string, rows [][2]string) {
	fmt.Fprintf(b, "\n## %s\n\n| %s | |\n|---|---|\n", title, head)

	for _, r := range rows {
		fmt.Fprintf(b, "| `%s` | %s |\n", r[0], cell(r[1]))
	}
}

// markdown returns help text with its lines as paragraphs.
func markdown(text string) string {
	var out []string
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if line = print.Fold(line, markdownWidth); line != "" {
			out = append(out, escapeMarkdown(line))
		}
	}

	return strings.Join(out, "\n\n")
}

// cell returns text for a cell of a Markdown table.
func cell(text string) string { return strings.ReplaceAll(escapeMarkdown(text), "|", `\|`) }

// escapeMarkdown escapes the characters that Markdown would interpret.
func escapeMarkdown(text string) string {
	return strings.NewReplacer("<", "&lt;", "*", `\*`, "_", `\_`, "[", `\[`).Replace(text)
}
