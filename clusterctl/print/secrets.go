// SPDX-License-Identifier: Apache-2.0

package print

import "github.com/contiv/cluster/management/api"

var secretsDetails = ColumnsOf(Cells[api.Secrets]{
	"rotation": func(_ Paint, s *api.Secrets) string {
		if s.Rotating {
			return "under way"
		}
		return ""
	},
	"not encrypted yet": func(_ Paint, s *api.Secrets) string { return positive(s.Plain) },
}, "key_file", "problem", "rotation", "not encrypted yet", "locked", "From outside=sources")

// Secrets prints the state of the secret variables.
func (p *Printer) Secrets(s api.Secrets) {
	secretsDetails.Details(p, s)

	ColumnsOf(Cells[api.SecretKey]{
		"use": func(_ Paint, k *api.SecretKey) string {
			if k.ID == s.Key {
				return "encrypts"
			}
			return "decrypts"
		},
	}, "key=id", "use", "secrets").Table(p, s.Keys)
}
