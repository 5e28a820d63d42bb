// SPDX-License-Identifier: Apache-2.0

package print

import (
	"strconv"
	"strings"

	"github.com/contiv/cluster/management/api"
)

// Secrets prints the state of the secret variables.
func (p *Printer) Secrets(s api.Secrets) {
	p.Printf("key file: %s\n", Line(s.KeyFile))

	if s.Problem != "" {
		p.Printf("problem:  %s\n", Line(s.Problem))
	}

	if s.Rotating {
		p.Printf("a rotation of the key is under way\n")
	}

	if s.Plain > 0 {
		p.Printf("not encrypted yet: %d\n", s.Plain)
	}

	if len(s.Locked) > 0 {
		p.Printf("locked: %s\n", Line(strings.Join(s.Locked, ", ")))
	}

	if len(s.Sources) > 0 {
		p.Printf("from outside: %s\n", Line(strings.Join(s.Sources, ", ")))
	}

	if len(s.Keys) == 0 {
		return
	}

	p.Printf("\n")

	rows := make([][]string, len(s.Keys))
	for i, k := range s.Keys {
		use := "decrypts"
		if k.ID == s.Key {
			use = "encrypts"
		}

		rows[i] = []string{Line(k.ID), use, strconv.Itoa(k.Secrets)}
	}

	p.Rows([]string{"KEY", "USE", "SECRETS"}, rows)
}
