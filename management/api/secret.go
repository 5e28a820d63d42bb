// SPDX-License-Identifier: Apache-2.0

package api

// Secrets is the state of the secret variables, without their values.
type Secrets struct {
	KeyFile  string      `json:"key_file"`          // on the host of the manager
	Key      string      `json:"key,omitempty"`     // id of the key that encrypts
	Keys     []SecretKey `json:"keys"`              // all in the key file, the one that encrypts first
	Rotating bool        `json:"rotating"`          // a rotation has begun and is not complete
	Plain    int         `json:"plain"`             // secrets that are not encrypted yet
	Locked   []string    `json:"locked,omitempty"`  // cannot be decrypted: variables with their level, and jobs
	Sources  []string    `json:"sources"`           // variables that come from outside
	Problem  string      `json:"problem,omitempty"` // why secrets cannot be stored
}

// SecretKey is a key with the number of stored values that it has encrypted. The
// secrets of a job count as one.
type SecretKey struct {
	ID      string `json:"id"`
	Secrets int    `json:"secrets"`
}

// SecretsRotation is a request for a new key.
type SecretsRotation struct {
	// Abandon begins with a new key although that of the store is missing.
	Abandon bool `json:"abandon,omitempty"`
}
