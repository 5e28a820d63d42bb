// SPDX-License-Identifier: Apache-2.0

package state

import (
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/record"
)

// Powers has the power of each registered machine, as its BMC last said it.
var Powers = record.Kind[inventory.Power]{
	Name: "power", ByNode: true,
	Key: func(p *inventory.Power) string { return p.Node },
}
