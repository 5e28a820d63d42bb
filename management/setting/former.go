// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"context"
	"slices"
	"time"

	"github.com/contiv/cluster/management/api"
)

// keyPlaybooks is the key of the folder of playbooks.
const keyPlaybooks = "playbooks"

// formerTimeout bounds the copy of the folder of playbooks for addFormer.
const formerTimeout = time.Minute

// addFormer adds to the key of the folder the nodes that other playbooks than the configured ones clean, because
// those configured them, and returns them. It is called after a change that has taken effect, so a folder that cannot
// be read is logged only.
func (s *Settings) addFormer(ctx context.Context, config api.Config) (names []string) {
	ctx, cancel := context.WithTimeout(ctx, formerTimeout)
	defer cancel()

	digest, err := s.opts.Pin(ctx)
	if err != nil {
		s.opts.Logger.WithError(err).Warn("the nodes with other playbooks than the configured ones are unknown")
		return nil
	}

	for _, n := range s.opts.State.View().Nodes() {
		if n.CarriesOther(digest) {
			names = append(names, n.Name)
		}
	}

	slices.Sort(names)

	folder := config[keyPlaybooks]
	folder.Former = names
	config[keyPlaybooks] = folder

	return names
}
