// SPDX-License-Identifier: Apache-2.0

// Package processtest holds the tests of clusterm as a process: its commands, its
// signals, what it says and how it ends. They stand beside the program, because
// tests in its own folder would each time be linked with all that it links.
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

// Build puts clusterm into the folder, for a test, and returns its path. It has
// the race detector where the test has it. It is called by a test, not by
// TestMain, where go does not notice which files it looks at.
func Build(dir string) (string, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("clusterm cannot be built: %w", err)
	}

	module := strings.TrimSpace(string(root))
	// What go test has found out is good for as long as the files are the same that
	// the test looked at: the program is made of all of them.
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
	// It is a run, of cp, because go keeps what it has linked for one.
	args := []string{"run", "-exec", "cp"}
	if info, ok := debug.ReadBuildInfo(); ok &&
		slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}

	if out, err := exec.Command("go", append(args, filepath.Join(module, "cmd", "clusterm"), program)...).
		CombinedOutput(); err != nil {
		return "", fmt.Errorf("clusterm cannot be built: %w\n%s", err, out)
	}

	return program, nil
}
