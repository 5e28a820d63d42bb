// SPDX-License-Identifier: Apache-2.0

package api

// Secrets is the state of the secret variables.
type Secrets struct {
	KeyFile string `json:"key_file"` // the file with the keys, on the manager's host
	// The id of the key that encrypts. Absent without a key.
	Key      string      `json:"key,omitempty"`
	Keys     []SecretKey `json:"keys"`     // the keys in the file, the one that encrypts first
	Rotating bool        `json:"rotating"` // a rotation has begun and is not complete
	Plain    int         `json:"plain"`    // the number of secrets that are not encrypted yet
	// Secrets that cannot be decrypted: variables with their level, and jobs.
	Locked  []string `json:"locked,omitempty"`
	Sources []string `json:"sources"`           // the variables that come from outside
	Problem string   `json:"problem,omitempty"` // why no secret can be stored
}

// SecretKey is a key of the secrets.
//
// The secrets of a job count as one.
type SecretKey struct {
	ID string `json:"id"` // the id of the key
	// The number of stored values that it has encrypted. The secrets of a job count as one.
	Secrets int `json:"secrets"`
}

// SecretsRotation is a new key for the secrets.
type SecretsRotation struct {
	// Begin with a new key although that of the store is missing. What it has encrypted stays locked until it is
	// set anew.
	Abandon bool `json:"abandon,omitempty"`
}
