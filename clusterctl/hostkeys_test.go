// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"slices"
	"testing"
)

// TestKnownKeys reads plain, hashed, listed and bracketed names. The hashed line is by
// ssh-keygen -H.
func TestKnownKeys(t *testing.T) {
	t.Parallel()

	const content = `# ssh-ed25519 comment
192.0.2.1,web.example ssh-ed25519 AAAA1 comment
192.0.2.1 ssh-rsa AAAA2
192.0.2.1 ssh-rsa AAAA2
[192.0.2.2]:2222 ssh-ed25519 AAAA3
|1|mqTq1qtfeHUcFSWf/WE6qDQ0Vhw=|PyS/OPh4gkTn1TjcDjpRvzcxj0I= ssh-ed25519 AAAA4
@cert-authority 192.0.2.1 ssh-ed25519 AAAA5
@revoked 192.0.2.1 ssh-ed25519 AAAA6
* ssh-ed25519 AAAA7
|1|no base64|x ssh-ed25519 AAAA8
192.0.2.1
`
	for addr, want := range map[string][]string{
		"192.0.2.1":   {"ssh-ed25519 AAAA1", "ssh-rsa AAAA2"},
		"WEB.example": {"ssh-ed25519 AAAA1"},
		"192.0.2.2":   {"ssh-ed25519 AAAA3"},
		"192.0.2.3":   {"ssh-ed25519 AAAA4"},
		"192.0.2.10":  nil,
		"*":           {"ssh-ed25519 AAAA7"},
	} {
		if got := knownKeys(content, addr); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", addr, got, want)
		}
	}
}
