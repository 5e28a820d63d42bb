// SPDX-License-Identifier: Apache-2.0

package inventory

import "time"

// Installed is what was installed on a node.
type Installed struct {
	Image string    `json:"image"` // the name of the image
	Job   string    `json:"job"`   // which has installed it
	Since time.Time `json:"since"` // when its system called first
}
