// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
)

func (a *app) certificate() *cli.Command {
	return &cli.Command{
		Name: "certificate", Usage: "list and revoke client certificates",
		Commands: []*cli.Command{
			a.leaf(leaf{
				name:  "list",
				usage: "list the client certificates that were issued or revoked",
				about: "`clusterm ca issue` on the manager's host makes a certificate. One of a site's own CA is " +
					"listed once it is revoked. Some time after it has expired, a certificate leaves the list.",
				formats: tableFormats,
				flags:   columnFlags(print.CertificateColumns.Names()),
				examples: []string{
					"clusterctl certificate list",
					"clusterctl certificate list --sort expires",
				},
				run: certificateList,
			}),
			a.leaf(leaf{
				name:  "revoke",
				args:  "CERTIFICATE…",
				min:   1,
				max:   -1,
				usage: "revoke client certificates, by name or serial number",
				about: "A name stands for all certificates with that name; one that is issued later is valid. The " +
					"certificate is refused at once, on open connections as well, and its open streams end. A " +
					"revocation is for good. Write serial:HEX for a certificate of a site's own CA.",
				examples: []string{
					"clusterctl certificate revoke rack1",
					"clusterctl certificate revoke serial:5a2b64cc0f19",
				},
				run: certificateRevoke,
			}),
		},
	}
}

func certificateList(ctx context.Context, c *call) error {
	load := func() (listing[api.Certificate], error) { return listingOf(c.manager.Certificates(ctx)) }

	return showList(c, print.CertificateColumns, load, func(known api.Certificate) string { return known.Serial },
		"no client certificates found")
}

func certificateRevoke(ctx context.Context, c *call) error {
	for _, ref := range c.args {
		done, err := c.manager.RevokeCertificate(ctx, ref)
		if err != nil {
			return err
		}

		for _, w := range done.Warnings {
			c.say("warning: %s", w)
		}

		c.say("the certificate %s is revoked", ref)
	}

	return nil
}

// certificateNames completes the names of certificates that are not revoked.
func certificateNames(ctx context.Context, c *completer, _ string) []candidate {
	if c.manager == nil {
		return nil
	}

	known, err := c.manager.Certificates(ctx)
	if err != nil {
		return nil
	}

	var out []candidate

	for _, known := range known.Items {
		if known.Revoked == nil {
			out = append(out, candidate{known.Name, known.Role})
		}
	}

	return out
}
