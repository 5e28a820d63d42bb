// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
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

func certificateRows() rows {
	return rows{
		"certificate list": certificates.list(leaf{}),
		"certificate revoke": {
			complete: certificates.offer(func(known api.Certificate) candidate {
				if known.Revoked != nil {
					return candidate{}
				}
				return candidate{known.Name, known.Role}
			}),
			run: onEach((*client.Client).RevokeCertificate, "the certificate %s is revoked"),
		},
	}
}
