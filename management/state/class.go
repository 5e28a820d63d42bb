// SPDX-License-Identifier: Apache-2.0

package state

import (
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/management/record"
)

// Classes are the classes of hardware, by name.
var Classes = record.Kind[facts.Class]{
	Name: "classes",
	Key:  func(c *facts.Class) string { return c.Name },
}
