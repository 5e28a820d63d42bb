// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"crypto/x509"
	"os"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/access/oidc"
)

// openIssuer prepares the verification of an issuer's tokens, if one is configured. It
// does not ask the issuer: the manager starts without it.
func (d *Daemon) openIssuer() error {
	c := d.file.OIDC
	if c.Issuer == "" {
		return nil
	}
	o := oidc.Options{Issuer: c.Issuer, Audience: c.Audience, NameClaim: c.NameClaim, Claim: c.Claim}

	for _, r := range c.Rules {
		o.Rules = append(o.Rules, oidc.Rule{Value: r.Value, Role: access.Role(r.Role), Scope: r.Scope()})
	}

	if c.CAFile != "" {
		text, err := os.ReadFile(c.CAFile)
		if err != nil {
			return inventory.Errorf(inventory.KindInvalid, "oidc.ca_file: %w", err).
				Do("write the path of the CA of the issuer, or leave it empty")
		}

		if o.Roots = x509.NewCertPool(); !o.Roots.AppendCertsFromPEM(text) {
			return inventory.Errorf(inventory.KindInvalid, "oidc.ca_file: %s holds no certificate", c.CAFile).
				Do("write the CA of the issuer into it, PEM")
		}
	}

	d.issuer = oidc.New(o)

	return nil
}
