// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/contiv/cluster/inventory/localfile"
)

const (
	stateFile = "gossip.json"
	lockFile  = "gossip.lock"
	maxPeers  = 256     // stored addresses
	maxState  = 4 << 20 // bytes of the state file
)

var suffixForm = regexp.MustCompile(`^[0-9a-f]{8}$`)

// state is the part of an agent that survives a restart. It may be lost: the agent
// then gets a new name and depends on the configured addresses to join.
type state struct {
	Suffix string   `json:"suffix"` // makes the member's name unique
	Peers  []string `json:"peers"`  // ip:port of the members of the last run
	Alive  []string `json:"alive"`  // the nodes alive by the last acknowledged report
	Keys   []string `json:"keys"`   // a copy of the keyring
	Seed   string   `json:"seed"`   // digest of the key file that the keyring was made from
}

// store keeps the state in a directory, or in memory only.
type store struct {
	dir    string
	unlock func() // nil without a directory
	last   []byte // the last content of the file
	state
}

// openStore locks the directory and reads the state. damage is the defect of a
// state file that could not be used; the file is renamed.
func openStore(dir string) (s *store, damage error, err error) {
	s = &store{dir: dir}
	if dir == "" {
		s.Suffix = newSuffix()
		return s, nil, nil
	}

	if s.unlock, err = localfile.Lock(dir, lockFile); err != nil {
		return nil, nil, fmt.Errorf("cannot use the gossip data directory: %w", err)
	}

	path := filepath.Join(dir, stateFile)

	damage = s.read(path)
	if damage != nil {
		_ = os.Rename(path, path+".bad") // for the operator; the agent starts without it
		s.state = state{}
	}

	if s.Suffix == "" {
		s.Suffix = newSuffix()
	}

	// An unwritable directory fails the start, not some later save.
	if err := s.save(); err != nil {
		s.close()
		return nil, nil, err
	}

	return s, damage, nil
}

// read loads the state; a missing file is no error.
func (s *store) read(path string) error {
	st, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}

	if err != nil {
		return err
	}

	if st.Size() > maxState {
		return fmt.Errorf("%s has %d bytes, more than any state", path, st.Size())
	}

	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &s.state); err != nil {
		return fmt.Errorf("%s does not parse: %w", path, err)
	}

	if !suffixForm.MatchString(s.Suffix) {
		return fmt.Errorf("%s holds no valid suffix", path)
	}

	if i := slices.IndexFunc(s.Peers, func(p string) bool { return checkPeer(p) != nil }); i >= 0 {
		return fmt.Errorf("%s holds an invalid address of a peer: %q", path, s.Peers[i])
	}

	return nil
}

// save writes the state if it has changed.
func (s *store) save() error {
	if s.dir == "" {
		return nil
	}

	if len(s.Peers) > maxPeers {
		s.Peers = s.Peers[:maxPeers]
	}

	b, err := json.MarshalIndent(s.state, "", "  ")
	if err != nil {
		return err
	}
	if bytes.Equal(b, s.last) {
		return nil
	}

	if err := localfile.Replace(filepath.Join(s.dir, stateFile), b); err != nil {
		return fmt.Errorf("cannot write the state: %w", err)
	}

	s.last = b

	return nil
}

func (s *store) close() {
	if s.unlock != nil {
		s.unlock()
	}
}

func newSuffix() string {
	b := make([]byte, 4)
	rand.Read(b) // never fails, see crypto/rand
	return hex.EncodeToString(b)
}
