// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRemediesHoldForBoth checks that a remedy with an option of clusterctl also has
// the field for a client of the API.
func TestRemediesHoldForBoth(t *testing.T) {
	t.Parallel()
	option := regexp.MustCompile(`--[a-z]`)

	found := 0
	for _, folder := range []string{"inventory", "configuration", "management"} {
		err := filepath.WalkDir(
			filepath.Join("..", "..", folder),
			func(path string, entry fs.DirEntry, err error) error {
				if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") ||
					strings.HasSuffix(path, "_test.go") {
					return err
				}

				set := token.NewFileSet()

				file, err := parser.ParseFile(set, path, nil, 0)
				if err != nil {
					return err
				}

				ast.Inspect(file, func(n ast.Node) bool {
					call, ok := n.(*ast.CallExpr)
					if !ok || len(call.Args) == 0 {
						return true
					}

					var name string
					switch f := call.Fun.(type) {
					case *ast.SelectorExpr:
						name = f.Sel.Name
					case *ast.Ident:
						name = f.Name
					}

					if name != "Do" && name != "add" {
						return true
					}

					for _, arg := range call.Args {
						ast.Inspect(arg, func(n ast.Node) bool {
							text, ok := n.(*ast.BasicLit)
							if !ok || text.Kind != token.STRING || !option.MatchString(text.Value) ||
								strings.Contains(text.Value, "systemctl") {
								return true
							}

							found++

							if !strings.Contains(text.Value, "in the API") {
								t.Errorf("%s: %s", set.Position(text.Pos()), text.Value)
							}

							return true
						})
					}

					return true
				})

				return nil
			},
		)
		if err != nil {
			t.Fatal(err)
		}
	}

	if found == 0 {
		t.Error("no remedy names an option: the test looks in the wrong place")
	}
}
