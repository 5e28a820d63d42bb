// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/management/boot"
)

// Boot says where registered machines get their addresses, and which.
type Boot struct {
	Interfaces []string `yaml:"interfaces"` // empty: nobody is served
	Pool       []string `yaml:"pool"`       // see boot.ParseRange
	Gateway    string   `yaml:"gateway"`    // empty: none
	DNS        []string `yaml:"dns"`
	Lease      Duration `yaml:"lease"`
	IPXE       string   `yaml:"ipxe"` // the folder with the programs of iPXE
}

// maxInterfaces bounds the interfaces of one instance.
const maxInterfaces = 16

// parsed returns the addresses, and the error of the first text that is none, with its key.
func (b Boot) parsed() (boot.Config, error) {
	parsed := boot.Config{Interfaces: b.Interfaces, Lease: time.Duration(b.Lease), IPXE: b.IPXE}

	for _, text := range b.Pool {
		r, err := boot.ParseRange(text)
		if err != nil {
			return parsed, invalid("boot.pool", "%w", err)
		}
		parsed.Pool = append(parsed.Pool, r)
	}

	if b.Gateway != "" {
		var err error
		if parsed.Gateway, err = boot.ParseAddr(b.Gateway); err != nil {
			return parsed, invalid("boot.gateway", "%w", err)
		}
	}

	for _, text := range b.DNS {
		addr, err := boot.ParseAddr(text)
		if err != nil {
			return parsed, invalid("boot.dns", "%w", err)
		}
		parsed.DNS = append(parsed.DNS, addr)
	}

	return parsed, nil
}

// checkBoot does not ask whether the interfaces exist: one may come later, and health reports those that are missing.
func (c *Config) checkBoot() error {
	names := slices.Clone(c.Boot.Interfaces)
	slices.Sort(names)

	for i, name := range names {
		switch {
		case name == "" || len(name) > 15 || strings.ContainsAny(name, "/: \t\n"):
			return invalid("boot.interfaces", "%q is no name of a network interface", name)
		case i > 0 && names[i-1] == name:
			return invalid("boot.interfaces", "%s is there twice", name)
		}
	}

	if !filepath.IsAbs(c.Boot.IPXE) {
		return invalid("boot.ipxe", "%q is no absolute path of a folder", c.Boot.IPXE)
	}

	if len(names) > maxInterfaces {
		return invalid("boot.interfaces", "there are %d, and may be %d", len(names), maxInterfaces)
	}

	parsed, err := c.Boot.parsed()
	if err != nil {
		return err
	}

	if err := parsed.Check(); err != nil {
		return invalid("boot.pool", "%w", err)
	}

	return nil
}

// Boot returns where registered machines get their addresses, and which.
func (s *Settings) Boot() boot.Config {
	parsed, _ := s.Current().Boot.parsed() // it was checked
	return parsed
}
