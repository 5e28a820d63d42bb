// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"maps"
	"slices"

	"github.com/contiv/cluster/inventory"
)

// Expected is the condition of a request on a node: its status and group once every job
// ahead has succeeded.
type Expected struct {
	Status inventory.Status
	Group  string // empty: no group
}

// checkExpected returns KindPrecondition if a node is not, or will not be, as the
// request expects it. Each expected node is one of the request.
func (s Snapshot) checkExpected(projected []*inventory.Node, r Request) error {
	if len(r.Expect) == 0 {
		return nil
	}

	var (
		differ []*inventory.Error
		names  []string
	)

	for _, name := range slices.Sorted(maps.Keys(r.Expect)) {
		if !slices.Contains(r.Nodes, name) {
			return inventory.Errorf(inventory.KindInvalid, "expect: %s is no node of the request", name).
				Do("name it in nodes, or leave it out")
		}

		want, n := r.Expect[name], Find(projected, name)
		if n == nil || n.Status == want.Status && n.Group == want.Group {
			continue
		}
		differ = append(differ, inventory.Errorf(inventory.KindPrecondition, "%s is %s, and was expected to be %s",
			name, describePlace(n.Status, n.Group), describePlace(want.Status, want.Group)))
		names = append(names, name)
	}

	if len(differ) == 0 {
		return nil
	}

	message := differ[0].Message
	if more := len(differ) - 1; more > 0 {
		message += fmt.Sprintf("; so are %d more", more)
	}

	// A job ahead may be the reason.
	if slices.ContainsFunc(names, func(name string) bool {
		is := s.Find(name)
		return is != nil && is.Status == r.Expect[name].Status && is.Group == r.Expect[name].Group
	}) {
		message += s.describeAhead(names)
	}

	return inventory.Errorf(inventory.KindPrecondition, "%s", message).
		Do("read the nodes again, and decide again").With(inventory.ListNodes()).About(names...)
}

// describePlace returns a status and a group in words.
func describePlace(status inventory.Status, group string) string {
	if group == "" {
		return string(status)
	}
	return fmt.Sprintf("%s in %s", status, group)
}
