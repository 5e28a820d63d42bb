// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"fmt"
	"path/filepath"
	"regexp"
)

var safePath = regexp.MustCompile(`^/[A-Za-z0-9._/@+=,-]*$`)

// CheckPath accepts a clean absolute path that needs no quotes in ansible.cfg,
// in a list of paths and in the options of ssh. The error names the path as
// what.
func CheckPath(what, path string) error {
	if !safePath.MatchString(path) || filepath.Clean(path) != path {
		return fmt.Errorf("%s %q is not an absolute path of letters, digits and ._/@+,=-", what, path)
	}

	return nil
}
