// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

var (
	// pasted matches a command line in a text, from its beginning to the first sign
	// of prose. What precedes it sets it apart from a sentence about the program.
	pasted = regexp.MustCompile(`(?m)(^ *|[:;(] |['\x60(]|\b(?:run|see|or|and|with|&&|\|) )` +
		`((?:clusterctl|clusterm|systemctl|journalctl) [^'\x60;,:()<>\n&|]*)`)
	// formatVerb matches the place of a value in a text.
	formatVerb = regexp.MustCompile(`%(\[\d+\])?[a-z]`)
	// absent matches programs that a manager with the etcd inside does not have.
	absent = regexp.MustCompile(`\betcdctl [a-z]+ `)
)

// otherSense lists the files that use the name of the program in another sense, with the
// beginnings of these texts.
var otherSense = map[string][]string{
	"management/pki/ca.go": {"clusterm CA "}, // the name of a certificate
}

// isOtherSense reports whether the line is no command.
func isOtherSense(where, line string) bool {
	file, _, _ := strings.Cut(strings.TrimPrefix(filepath.ToSlash(where), "../../"), ":")
	return slices.ContainsFunc(otherSense[file], func(start string) bool { return strings.HasPrefix(line, start) })
}

// TestRemediesAreCommands collects the command lines in the texts of the programs, and
// compares each with the commands of clusterctl and clusterm, or with the units.
func TestRemediesAreCommands(t *testing.T) {
	t.Parallel()

	found := map[string]int{}

	for where, text := range texts(t) {
		if absent.MatchString(text) {
			t.Errorf("%s: %q names a program that may be missing", where, text)
		}

		for _, match := range pasted.FindAllStringSubmatch(text, -1) {
			line, _, _ := strings.Cut(match[2], " and ")
			words := strings.Fields(strings.TrimRight(line, ". "))
			certain := strings.ContainsAny(match[1], ":('`&|") || match[1] == "run "

			// An optional word is part of a usage line.
			words = slices.DeleteFunc(words, func(w string) bool { return strings.HasPrefix(w, "[") })
			if len(words) < 2 || strings.Contains(words[1], "|") {
				continue
			}

			problem := ""
			switch words[0] {
			case "clusterctl":
				problem = checkClusterctl(t, words)
			case "clusterm":
				problem = checkClusterm(words[1:], certain)
			default:
				problem = checkUnit(words)
			}

			found[words[0]]++

			if problem != "" && !isOtherSense(where, strings.Join(words, " ")) {
				t.Errorf("%s: %q: %s", where, strings.Join(words, " "), problem)
			}
		}
	}

	if found["clusterctl"] < 50 || found["clusterm"] < 20 || found["systemctl"] < 5 || found["journalctl"] < 3 {
		t.Errorf("only %v were found: the test misses some", found)
	}
}

// texts returns the strings of all programs by their place. The parts of a sum are one
// string.
func texts(t *testing.T) map[string]string {
	t.Helper()

	const root = "../.."

	out := map[string]string{}

	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}

		skipped := []string{".git", "bin", "vagrant"}
		if entry.IsDir() && slices.Contains(skipped, rel) {
			return filepath.SkipDir
		}

		if entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}

		set := token.NewFileSet()

		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}

		ast.Inspect(file, func(n ast.Node) bool {
			if _, isImport := n.(*ast.ImportSpec); isImport {
				return false
			}

			x, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			text, isText := textOf(x)
			if isText {
				out[fmt.Sprint(set.Position(x.Pos()))] = formatVerb.ReplaceAllString(text, "X")
			}
			return !isText
		})

		return nil
	})
	errtest.None(t, err)

	return out
}

// textOf returns the text of a string or of a sum with one. Other values are X.
func textOf(x ast.Expr) (string, bool) {
	switch x := x.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(x.Value)
		return text, err == nil && x.Kind == token.STRING
	case *ast.BinaryExpr:
		left, isLeft := textOf(x.X)
		right, isRight := textOf(x.Y)

		if x.Op != token.ADD || !isLeft && !isRight {
			return "", false
		}

		if !isLeft {
			left = "X"
		}

		if !isRight {
			right = "X"
		}

		return left + right, true
	}

	return "", false
}

// checkClusterctl returns the defect of a command line of clusterctl, or "". Every
// command accepts --help, with any arguments.
func checkClusterctl(t *testing.T, words []string) string {
	t.Helper()

	// Sentences about the program.
	if slices.Contains([]string{"talks", "needs", "has", "have", "is"}, words[1]) {
		return ""
	}

	// The command is not in the text.
	if slices.Contains(words[:min(3, len(words))], "X") {
		return ""
	}

	// A quoted value is cut off.
	words = slices.DeleteFunc(words, func(w string) bool { return w == "--help" })
	if last := len(words) - 1; slices.Contains([]string{"-e", "-l", "--reason"}, words[last]) {
		words = words[:last]
	}
	words = slices.Insert(words, 1, "--help")

	var out, problem bytes.Buffer
	if clusterctl.Run(t.Context(), words, clusterctl.Options{
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &problem,
	}) != 0 {
		return strings.TrimSpace(problem.String())
	}

	return ""
}

// checkClusterm returns the defect of the words after clusterm, or "". Where it is not
// certain that they are a command line, an unknown word is one of a sentence, unless
// it resembles a command.
func checkClusterm(words []string, certain bool) string {
	at := rootCommand(func(int) error { return nil })

	flags := at.Flags
	for len(words) > 0 && len(at.Commands) > 0 && !strings.HasPrefix(words[0], "-") {
		next := at.Command(words[0])
		if next == nil {
			var names []string
			for _, c := range at.Commands {
				names = append(names, c.Name)
			}

			isSentence := slices.Contains([]string{"needs", "is"}, words[0])

			near := inventory.Closest(words[0], names)
			if certain && !isSentence || near != "" {
				return fmt.Sprintf("there is no command %q; the nearest is %q", words[0], near)
			}

			return ""
		}

		at, words = next, words[1:]
		flags = append(flags, at.Flags...)
	}

	known := func(name string) bool {
		return slices.ContainsFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
	}
	for _, w := range words {
		name := strings.TrimLeft(strings.TrimLeft(w, "["), "-")
		name = strings.TrimRight(name, "]")

		isOption := strings.HasPrefix(strings.TrimLeft(w, "["), "-")
		if isOption && name != "help" && !known(name) {
			return "there is no option " + w
		}
	}

	return ""
}

// units are the services of the packages.
var units = []string{"clusterm", "clusterm-agent", "clusterm-monitor"}

// checkUnit returns the defect of a call of systemctl or journalctl, or "".
func checkUnit(words []string) string {
	verbs := []string{
		"start", "stop", "restart", "try-restart", "reload", "status", "show", "enable", "disable", "kill", "-u",
	}
	if !slices.Contains(verbs, words[1]) {
		if words[0] == "journalctl" {
			return "" // a sentence about the program
		}
		return "there is no verb " + words[1]
	}

	if !slices.ContainsFunc(words[2:], func(w string) bool { return slices.Contains(units, w) }) {
		return "it names no unit"
	}

	return ""
}
