// SPDX-License-Identifier: Apache-2.0

package setting

import "github.com/contiv/cluster/management/hardware"

// Inspection says what follows from what inspections find.
type Inspection struct {
	Rules []hardware.Rule `yaml:"rules"`
	// ClassBlocks: a node that does not fit its class is not provided.
	ClassBlocks bool `yaml:"class_blocks"`
}

func (c *Config) checkInspection() error {
	if err := hardware.Check(c.Inspection.Rules, c.Groups); err != nil {
		return invalid("inspection.rules", "%w", err)
	}
	return nil
}

// Inspection returns what follows from inspections.
func (s *Settings) Inspection() hardware.Site {
	c := s.Current()
	return hardware.Site{Rules: c.Inspection.Rules, Groups: c.Groups, ClassBlocks: c.Inspection.ClassBlocks}
}
