// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

var members = noun[api.Member]{
	columns: print.MemberColumns,
	name:    func(m api.Member) string { return m.ID },
	empty:   "no instances found",
	all:     every((*client.Client).Members),
}

func instanceRows() rows {
	return rows{
		"instance list":   members.list(leaf{}),
		"instance invite": {run: instanceInvite},
		"instance remove": {
			complete: members.offer(func(m api.Member) candidate { return candidate{m.ID, m.Node} }),
			run:      onEach((*client.Client).RemoveMember, "the instance %s is removed"),
		},
	}
}

func instanceInvite(ctx context.Context, c *call) error {
	made, err := c.manager.Invite(ctx, api.InviteRequest{Expires: c.text("expires", "1h")})
	if err != nil {
		return err
	}

	c.say("one host can join until %s; on that host, as root, with an empty data directory, run the command, and "+
		"give it the token on stdin or at its prompt:", made.Expires.Format("2006-01-02 15:04:05 MST"))

	// Not on the command line, which other accounts see, and which a shell keeps.
	command := func(p *print.Printer) {
		p.Printf("clusterm join %s --fingerprint %s\n%s\n", made.URLs[0], made.Fingerprint, made.Token)
	}

	return c.show(print.Answer{Wire: made, Table: command, Long: command})
}
