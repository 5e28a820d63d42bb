// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"testing"

	"github.com/contiv/cluster/management/access"
)

// TestRestoredTokens drops the invitations of instances, which may have been spent since the backup, and no other
// token.
func TestRestoredTokens(t *testing.T) {
	for role, kept := range map[access.Role]bool{
		access.RoleInstance: false, access.RoleOperator: true, access.RoleViewer: true,
	} {
		value := fmt.Appendf(nil, `{"id":"t1","name":"n","role":%q,"hash":"h"}`, role)

		got, err := restored("v/tokens/t1", value)
		if err != nil || (got != nil) != kept {
			t.Errorf("a token of the role %s is restored as %q, %v", role, got, err)
		}
	}
}
