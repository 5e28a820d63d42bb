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
	maxPeers  = 256     // remembered addresses
	maxState  = 4 << 20 // bytes of the state file
)

var suffixForm = regexp.MustCompile(`^[0-9a-f]{8}$`)

// memory is what an agent keeps over a restart. None of it is precious: an agent
// without it gets a new name and depends on the addresses it is told to join.
type memory struct {
	Suffix string   `json:"suffix"` // makes the member's name unique
	Peers  []string `json:"peers"`  // ip:port of the members last known
	Alive  []string `json:"alive"`  // the nodes alive by the last recorded word
}

// store keeps the memory in a directory, or nowhere.
type store struct {
	dir    string
	unlock func() // nil without a directory
	last   []byte // as written
	memory
}

// openStore reads the memory and takes the directory for this process.
// complaint tells of a memory that could not be used and was put aside.
func openStore(dir string) (s *store, complaint error, err error) {
	s = &store{dir: dir}
	if dir == "" {
		s.Suffix = newSuffix()
		return s, nil, nil
	}

	if s.unlock, err = localfile.Lock(dir, lockFile); err != nil {
		return nil, nil, fmt.Errorf("the gossip data directory cannot be used: %w", err)
	}

	path := filepath.Join(dir, stateFile)

	complaint = s.read(path)
	if complaint != nil {
		os.Rename(path, path+".bad")
		s.memory = memory{}
	}

	if s.Suffix == "" {
		s.Suffix = newSuffix()
	}

	if err := s.save(); err != nil {
		s.close()
		return nil, nil, err
	}

	return s, complaint, nil
}

func (s *store) read(path string) error {
	st, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}

	if err != nil {
		return err
	}

	if st.Size() > maxState {
		return fmt.Errorf("%s has %d bytes", path, st.Size())
	}

	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}

	if err := json.Unmarshal(b, &s.memory); err != nil {
		return fmt.Errorf("%s does not parse: %w", path, err)
	}

	if !suffixForm.MatchString(s.Suffix) {
		return fmt.Errorf("%s holds no usable name", path)
	}

	if i := slices.IndexFunc(s.Peers, func(p string) bool { return checkPeer(p) != nil }); i >= 0 {
		return fmt.Errorf("%s holds a peer that is no address: %q", path, s.Peers[i])
	}

	return nil
}

// save writes the memory if it has changed.
func (s *store) save() error {
	if s.dir == "" {
		return nil
	}

	if len(s.Peers) > maxPeers {
		s.Peers = s.Peers[:maxPeers]
	}

	b, err := json.MarshalIndent(s.memory, "", "  ")
	if err != nil {
		return err
	}

	if bytes.Equal(b, s.last) {
		return nil
	}

	if err := localfile.Replace(filepath.Join(s.dir, stateFile), b); err != nil {
		return fmt.Errorf("the gossip state cannot be written: %w", err)
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
