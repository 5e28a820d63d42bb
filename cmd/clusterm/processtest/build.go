// SPDX-License-Identifier: Apache-2.0

// Package processtest holds the tests of clusterm as a process: its commands,
// signals, output and exit status. It is apart from the program, because a test
// in the program's own package links all of its dependencies.
package processtest

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// Build builds clusterm into a folder and returns its path. The program has the race
// detector if the test has it. Call it from a test, not from TestMain: go test
// records only the files that a test opens.
func Build(dir string) (string, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("cannot build clusterm: %w", err)
	}
	module := strings.TrimSpace(string(root))
	// Visit every directory of the module: go test then reuses a cached result only
	// while the sources of the program are the same.
	err = fs.WalkDir(os.DirFS(module), ".", func(path string, d fs.DirEntry, err error) error {
		if name := d.Name(); d.IsDir() && path != "." && (name[0] == '.' || name == "bin" || name == "dist") {
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		return "", err
	}

	program := filepath.Join(dir, "clusterm")
	// go caches a linked program for go run, but not for go build: run it with cp.
	args := []string{"run", "-exec", "cp"}
	if info, ok := debug.ReadBuildInfo(); ok &&
		slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}

	args = append(args, filepath.Join(module, "cmd", "clusterm"), program)
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build clusterm: %w\n%s", err, out)
	}

	return program, nil
}
