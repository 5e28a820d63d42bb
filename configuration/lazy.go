// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"regexp"
	"sync"
)

// lazy returns the regular expression, compiled at its first use: clusterctl links
// this package and needs none of its expressions in most commands.
func lazy(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
