// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"

	"github.com/contiv/cluster/clusterctl/print"
)

// helpColumns is the width of help in a file or a pipe.
const helpColumns = 100

// columns returns the width of the terminal at f; 0 if there is none.
func columns(f *os.File) int {
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// printHelp prints help of the library in lines of at most width columns.
func printHelp(w io.Writer, template string, data any, width int) {
	var b bytes.Buffer
	cli.DefaultPrintHelp(&b, template, data)
	_, _ = io.WriteString(w, foldHelp(b.String(), width))
}

// term of a list in help with the space before its text, e.g. "    --config FILE  ".
var listed = regexp.MustCompile(`^ +\S.*?\S {2,}(?:\S)`)

// foldHelp breaks long lines of help. The text of a list continues below its first
// line.
func foldHelp(help string, width int) string {
	var b strings.Builder

	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, " \n")
		at := len(listed.FindString(line)) - 1

		if at <= 0 {
			b.WriteString(print.Fold(line, width) + "\n")
			continue
		}

		text := print.Fold(line[at:], max(width-at, 1))
		b.WriteString(line[:at] + strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", at)) + "\n")
	}

	return b.String()
}
