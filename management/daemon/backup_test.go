// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/audit"
	"github.com/contiv/cluster/management/backup"
	"github.com/contiv/cluster/management/client"
)

// TestBackupIsForAdmins: nobody else gets a byte of it, and the trail has both.
func TestBackupIsForAdmins(t *testing.T) {
	t.Parallel()

	s := begin(t)
	s.report("a b")

	for _, role := range []access.Role{access.RoleViewer, access.RoleOperator, access.RoleMonitor} {
		c, err := client.New(client.Options{
			Socket: s.dir + "/s", Token: s.tokenFor(api.TokenRequest{Name: string(role), Role: string(role)}),
		})
		s.must(err)

		var got bytes.Buffer
		if err := c.Backup(s.ctx(), &got); inventory.KindOf(err) != inventory.KindForbidden || got.Len() > 0 {
			t.Errorf("%s gets %d bytes, %v", role, got.Len(), err)
		}
	}

	var file bytes.Buffer
	s.must(s.Client.Backup(s.ctx(), &file))

	end, err := backup.Scan(&file, func(h backup.Header) error {
		if h.Manager != s.managerID() || h.Version != s.opts.Version.Version {
			t.Errorf("%+v", h)
		}
		return nil
	}, nil)
	if err != nil || end.Records < 4 {
		t.Errorf("%+v, %v", end, err)
	}

	results := map[string]int{}

	s.must(s.readAudit(audit.Filter{Verb: "backup"}, func(e audit.Entry) error {
		results[e.Result]++
		return nil
	}))

	if results[audit.Done] != 1 {
		t.Errorf("the trail has %v of verb backup, want one that is done", results)
	}
}
