// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/contiv/cluster/inventory/localfile"
)

// secretFiles are the files and folders of a run that may hold values of variables.
// Nothing needs them after the run: Ansible keeps rendered templates in tmp and home.
var secretFiles = []string{fileInventory, fileExtraVars, fileSecrets, dirTmp, dirHome}

// removeSecrets removes what a run in dir may have kept of its variables.
func removeSecrets(dir string) error {
	var errs []error
	for _, name := range secretFiles {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, name)))
	}

	return errors.Join(errs...)
}

// SweepSecrets removes what ended runs have kept of their variables, after the runner
// was killed or the machine went down. runs is the folder of the directories of runs.
// It leaves active runs alone.
func SweepSecrets(runs string) error {
	entries, err := os.ReadDir(runs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	errs := []error{err}

	for _, e := range entries {
		if e.IsDir() {
			errs = append(errs, sweepRun(filepath.Join(runs, e.Name())))
		}
	}

	return errors.Join(errs...)
}

func sweepRun(dir string) error {
	// The lock keeps a runner from beginning meanwhile.
	held, err := lock(dir)
	if errors.Is(err, localfile.ErrLocked) {
		return nil
	}

	if err != nil {
		return err
	}

	defer held.Unlock() //nolint:errcheck // closing the file releases it as well

	// Processes without their runner still use the files: Wait ends them first.
	if len(marked(dir, "")) > 0 {
		return nil
	}

	return removeSecrets(dir)
}
