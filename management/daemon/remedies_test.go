// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
)

// commandLine matches text that only an operator of the command line can follow:
// a command of clusterctl, or an option.
var commandLine = regexp.MustCompile(`\bclusterctl\b|(^|\s)--[a-z]`)

// domain lists the packages that do not speak command line: their remedies are
// actions (inventory.Action), and each client renders them in its own form.
var domain = []string{
	"inventory",
	"monitor",
	"configuration",
	"management/access",
	"management/engine",
	"management/etcd",
	"management/explain",
	"management/job",
	"management/node",
	"management/server",
	"management/setting",
	"management/state",
	"management/variable",
}

// commandLineAllowed lists the exceptions by file and a part of the text, with
// their reason.
var commandLineAllowed = []struct{ file, text, reason string }{
	{"management/server/rest/problem.go", "clusterctl", "the first generation answers with text, not actions"},
	{"monitor/report/config.go", "clusterm monitor --example", "an agent has only its own program, and no API"},
	{"monitor/report/manager.go", "clusterm ca issue", "an agent has only its own program, and no API"},
	{"management/setting/setting.go", "clusterctl config unset", "a warning of the health is a text, without actions"},
	{"inventory/etcd/open.go", "--accept-empty-store", "a manager that does not start has only its own program"},
	{"inventory/etcd/recover.go", "clusterm recover --yes", "a manager that does not start has only its own program"},
	{"management/node/node.go", "systemctl", "the manager cannot end itself on request"},
	{"configuration/ansible/check.go", "--version", "an option of ansible-playbook"},
	{"configuration/ansible/spec.go", "--", "options of ansible-playbook"},
	{"configuration/ansible/syntax.go", "--syntax-check", "an option of ansible-playbook"},
	{"configuration/ansible/vitals.go", "systemctl show", "a script on a host"},
	{"configuration/ansible/plays.go", "--list-hosts", "an option of ansible-playbook"},
	{"configuration/ansible/galaxy.go", "--", "options of ansible-galaxy"},
	{"inventory/bmc/errors.go", "power login", "the result of a node in a job is a text, without actions"},
	{"management/explain/node.go", "clusterctl power", "the operator enters the login, or decides on the power"},
	{"management/explain/node.go", "nodes merge", "the operator chooses which of the two nodes stays"},
	{"management/explain/node.go", "nodes import", "the operator has the list"},
	{"configuration/repository/git/diff.go", "diff --git", "the first line of a difference, in the form of git"},
}

// TestDomainSpeaksNoCommandLine expects no command line in the strings of the
// domain.
func TestDomainSpeaksNoCommandLine(t *testing.T) {
	t.Parallel()

	texts := 0
	for _, folder := range domain {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			isSource := err == nil && !entry.IsDir() && strings.HasSuffix(path, ".go") &&
				!strings.HasSuffix(path, "_test.go")
			if !isSource {
				return err
			}

			set := token.NewFileSet()

			file, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}

			ast.Inspect(file, func(n ast.Node) bool {
				// A path of this project may contain the word.
				if _, isImport := n.(*ast.ImportSpec); isImport {
					return false
				}

				// The document of the API describes the programs, too.
				if value, ok := n.(*ast.CompositeLit); ok {
					if of, ok := value.Type.(*ast.SelectorExpr); ok && of.Sel.Name == "Doc" {
						return false
					}
				}

				literal, ok := n.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					return true
				}
				text, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Errorf("%s: %v", set.Position(literal.Pos()), err)
				}

				texts++

				if commandLine.MatchString(text) && !isCommandLineAllowed(path, text) {
					t.Errorf("%s: %q speaks command line: return an inventory.Action in its place",
						set.Position(literal.Pos()), text)
				}

				return true
			})

			return nil
		})
		errtest.None(t, err)
	}

	if texts < 1000 {
		t.Errorf("only %d strings were found: the test looks in the wrong place", texts)
	}
}

func isCommandLineAllowed(path, text string) bool {
	for _, e := range commandLineAllowed {
		if strings.HasSuffix(filepath.ToSlash(path), e.file) && strings.Contains(text, e.text) {
			return true
		}
	}

	return false
}
