// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"maps"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/state"
)

// TestCorruptAlarm does what is advised under the alarm CORRUPT, with and without a daemon.
func TestCorruptAlarm(t *testing.T) {
	t.Parallel()

	s := begin(t)
	s.report("a")

	tool := s.tool()
	members, err := tool.Client.MemberList(s.ctx())
	s.must(err)
	_, err = pb.NewMaintenanceClient(tool.Client.ActiveConnection()).Alarm(s.ctx(), &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, MemberID: members.Members[0].ID, Alarm: pb.AlarmType_CORRUPT,
	})
	s.must(err)
	s.must(tool.Close())

	change := func() error {
		_, err := s.policies.Pause(s.ctx(), access.Caller{Principal: "anna"}, state.AllPolicies, "")
		return err
	}

	if err := change(); err == nil || !strings.Contains(err.Error(), "alarm CORRUPT") {
		t.Errorf("a change under the alarm: %v", err)
	}

	h, err := s.Health(s.ctx())
	s.must(err)

	advice := strings.Join(slices.Collect(maps.Values(h.Checks)), "\n")
	if !strings.Contains(advice, "run clusterm store check") || !strings.Contains(advice, "clusterm store disarm") {
		t.Errorf("the health advises %q", advice)
	}

	// It works without a daemon, and the advice is to look for damage first.
	s.down()
	tool = s.tool()

	r, err := tool.Check(s.ctx())
	if err != nil || r.Problem() == nil || !strings.Contains(r.Problem().Error(), "CORRUPT") || len(r.Unreadable) > 0 {
		t.Errorf("%+v, %v, %v", r, err, r.Problem())
	}

	cleared, err := tool.Disarm(s.ctx())
	if err != nil || !slices.Equal(cleared, []etcd.Alarm{etcd.AlarmCorrupt}) {
		t.Errorf("%v, %v", cleared, err)
	}

	s.must(tool.Close())
	s.up()
	s.must(change())
}
