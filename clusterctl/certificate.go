// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

var certificates = noun[api.Certificate]{
	columns: print.CertificateColumns,
	name:    func(known api.Certificate) string { return known.Serial },
	empty:   "no client certificates found",
	all:     every((*client.Client).Certificates),
}

func (a *app) certificate() leaf {
	return leaf{
		name: "certificate", usage: "list and revoke client certificates",
		commands: []leaf{
			certificates.list(leaf{
				name: "list", usage: "list the client certificates that were issued or revoked",
				about: "`clusterm ca issue` on the manager's host makes a certificate. One of a site's own CA is " +
					"listed once it is revoked. Some time after it has expired, a certificate leaves the list.",
				examples: []string{"clusterctl certificate list", "clusterctl certificate list --sort expires"},
			}),
			{
				name: "revoke", args: "CERTIFICATE…", usage: "revoke client certificates, by name or serial number",
				about: "A name stands for all certificates with that name; one that is issued later is valid. The " +
					"certificate is refused at once, on open connections as well, and its open streams end. A " +
					"revocation is for good. Write serial:HEX for a certificate of a site's own CA.",
				examples: []string{
					"clusterctl certificate revoke rack1",
					"clusterctl certificate revoke serial:5a2b64cc0f19",
				},
				complete: certificates.offer(func(known api.Certificate) candidate {
					if known.Revoked != nil {
						return candidate{}
					}
					return candidate{known.Name, known.Role}
				}),
				run: func(ctx context.Context, c *call) error {
					return c.changeEach(ctx, c.manager.RevokeCertificate, "the certificate %s is revoked")
				},
			},
		},
	}
}
