// SPDX-License-Identifier: Apache-2.0

package monitor

// KeyOp is an operation on the keyrings of all live members. Each may be repeated
// without harm.
type KeyOp string

// The operations.
const (
	KeyInstall KeyOp = "install-key" // accept messages with the key
	KeyUse     KeyOp = "use-key"     // encrypt with the key; it must be installed
	KeyRemove  KeyOp = "remove-key"  // accept it no longer; it must not be in use
)

// KeyAnswer is the result of an operation on the keyring of one live member.
type KeyAnswer struct {
	Member  string // its name in the gossip
	Node    string // the node that it claims to be; empty: none
	Problem string // why the member has not confirmed; empty: it has
}
