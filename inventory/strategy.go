// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"strings"
	"time"
)

// MaxSoak is the longest soak time of a node in a rollout.
const MaxSoak = 7 * 24 * time.Hour

// Strategy is bounds for the nodes of a group in every rollout that does not say otherwise.
//
// The zero value is no further bound.
type Strategy struct {
	// As in RolloutSpec, of the nodes of the group.
	MaxUnavailable Amount `json:"max_unavailable,omitempty" yaml:"max_unavailable,omitempty"`
	// As in RolloutSpec, of the nodes of the group.
	MaxFailures *int `json:"max_failures,omitempty" yaml:"max_failures,omitempty" type:"integer,null"`
	// The soak time of the nodes of the group, as it is configured: 5m.
	Soak string `json:"soak,omitempty" yaml:"soak,omitempty"`
}

// SoakTime returns the soak time; nil without one. It returns an error of KindInvalid if
// it is not from 0 to MaxSoak.
func (s Strategy) SoakTime() (*time.Duration, error) {
	if s.Soak == "" {
		return nil, nil //nolint:nilnil // Without a soak time there is none.
	}

	d, err := time.ParseDuration(s.Soak)
	if err != nil || d < 0 || d > MaxSoak {
		return nil, Errorf(KindInvalid, "soak is %q", s.Soak).
			Do("write a time such as 5m, from 0s to %s, or leave it out", ShortDuration(MaxSoak))
	}

	return &d, nil
}

// Check validates the strategy. It returns an error of KindInvalid.
func (s Strategy) Check() error {
	if s.MaxUnavailable != "" {
		if _, err := s.MaxUnavailable.Of(1); err != nil {
			return Errorf(KindInvalid, "max_unavailable is %q", string(s.MaxUnavailable)).
				Do("write a number of nodes from 1, or their share from 1%% to 100%%, such as 25%%")
		}
	}

	if s.MaxFailures != nil && *s.MaxFailures < 0 {
		return Errorf(KindInvalid, "max_failures is %d", *s.MaxFailures).
			Do("write the number of failed nodes with which further nodes are begun: 0 or more")
	}

	_, err := s.SoakTime()

	return err
}

// String returns the bounds for people, such as "max_unavailable 2, soak 5m". It is empty
// without any.
func (s Strategy) String() string {
	var bounds []string
	if s.MaxUnavailable != "" {
		bounds = append(bounds, "max_unavailable "+string(s.MaxUnavailable))
	}

	if s.MaxFailures != nil {
		bounds = append(bounds, fmt.Sprintf("max_failures %d", *s.MaxFailures))
	}

	if s.Soak != "" {
		bounds = append(bounds, "soak "+s.Soak)
	}

	return strings.Join(bounds, ", ")
}
