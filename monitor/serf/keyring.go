// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"
	hserf "github.com/hashicorp/serf/serf"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
	"github.com/contiv/cluster/monitor"
)

const (
	// keyringFile holds the keys of an agent as serf writes them: a list in JSON, the
	// one in use first.
	keyringFile = "keyring.json"

	maxKeys    = 8       // of one member
	maxKeyring = 4 << 10 // bytes of a file of keys
)

// ParseKeys returns the keys of a key file, one per line, without white space. The
// first one encrypts, and all decrypt.
func ParseKeys(text string) ([]string, error) {
	var keys []string
	for line := range strings.Lines(text) {
		key := strings.TrimSpace(line)
		if key == "" {
			continue
		}
		if err := CheckKey(key); err != nil {
			return nil, err
		}

		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}

	if len(keys) == 0 {
		return nil, CheckKey("")
	}

	if len(keys) > maxKeys {
		return nil, fmt.Errorf("it has %d gossip keys, the limit is %d", len(keys), maxKeys)
	}

	return keys, nil
}

// digestOf identifies the keys of a file.
func digestOf(keys []string) string {
	sum := sha256.Sum256([]byte(strings.Join(keys, "\n")))
	return hex.EncodeToString(sum[:])
}

// keys returns the keys to start with, given those of the key file. The keyring of the
// last run counts, because it may have been rotated since; a key file that was changed
// meanwhile counts more. damage is the defect of a keyring that could not be read.
func (s *store) keys(file []string) (keys []string, damage error) {
	if s.dir == "" {
		return file, nil
	}

	kept, err := readKeyring(filepath.Join(s.dir, keyringFile))

	// serf does not write the file atomically. The copy is at most one tick older.
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		kept, damage = s.Keys, err
	case err != nil:
		kept = nil
	}

	switch {
	case len(kept) == 0, s.Seed != "" && s.Seed != digestOf(file):
		return file, damage
	case s.Seed == "":
		// The state is lost, and with it what the keyring was made from.
		return union(kept, file), damage
	}

	return kept, damage
}

// union returns the keys of both lists, each once.
func union(first, second []string) []string {
	all := slices.Clone(first)
	for _, key := range second {
		if !slices.Contains(all, key) {
			all = append(all, key)
		}
	}

	return all
}

func readKeyring(path string) ([]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	var keys []string
	if len(b) > maxKeyring || json.Unmarshal(b, &keys) != nil {
		return nil, fmt.Errorf("%s does not parse", path)
	}

	if keys, err = ParseKeys(strings.Join(keys, "\n")); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	return keys, nil
}

// openKeyring makes the keyring of the agent, and writes it before any state refers to
// the key file that it was made from.
func (s *store) openKeyring(file []string) (ring *memberlist.Keyring, damage error, err error) {
	keys, damage := s.keys(file)

	raw := make([][]byte, len(keys))
	for i, key := range keys {
		if raw[i], err = parseKey(key); err != nil {
			return nil, damage, err
		}
	}

	if ring, err = memberlist.NewKeyring(raw, raw[0]); err != nil {
		return nil, damage, err
	}

	if s.dir != "" {
		b, err := json.MarshalIndent(keys, "", "  ")
		if err != nil {
			return nil, damage, err
		}
		if err := localfile.Replace(filepath.Join(s.dir, keyringFile), b); err != nil {
			return nil, damage, fmt.Errorf("cannot write the gossip keys: %w", err)
		}
	}

	s.Keys, s.Seed = keys, digestOf(file)

	return ring, damage, s.save()
}

// keysOf returns the keys of a keyring, the one in use first.
func keysOf(ring *memberlist.Keyring) []string {
	raw := ring.GetKeys()

	keys := make([]string, len(raw))
	for i, key := range raw {
		keys[i] = base64.StdEncoding.EncodeToString(key)
	}

	return keys
}

// Keys returns the gossip keys of this member, the one in use first.
func (a *Agent) Keys(context.Context) ([]string, error) { return keysOf(a.ring), nil }

// AskKeys carries an operation out on every live member, this one included. It blocks
// until all have answered, or for some seconds.
func (a *Agent) AskKeys(ctx context.Context, op monitor.KeyOp, key string) ([]monitor.KeyAnswer, error) {
	raw, err := parseKey(key)
	if err != nil {
		return nil, err
	}
	request, err := encodeKeyRequest(raw)
	if err != nil {
		return nil, err
	}

	in := a.current()

	members := liveMembers(in.s.Members())

	response, err := in.s.Query(hserf.InternalQueryPrefix+string(op), request, in.s.DefaultQueryParams())
	if err != nil {
		return nil, fmt.Errorf("cannot ask the members for their keys: %w", err)
	}
	defer response.Close()

	problems := map[string]string{}
	for len(problems) < len(members) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case r, open := <-response.ResponseCh():
			if !open {
				return answersOf(members, problems, "it does not answer"), nil
			}

			problems[r.From] = keyProblem(r.Payload)
		}
	}

	return answersOf(members, problems, "it does not answer"), nil
}

func liveMembers(ms []hserf.Member) []hserf.Member {
	return slices.DeleteFunc(slices.Clone(ms), func(m hserf.Member) bool { return !alive(m) })
}

// answersOf returns an answer for each member. silence is the problem of those without
// an entry.
func answersOf(members []hserf.Member, problems map[string]string, silence string) []monitor.KeyAnswer {
	answers := make([]monitor.KeyAnswer, 0, len(members))
	for _, m := range members {
		problem, answered := problems[m.Name]
		if !answered {
			problem = silence
		}

		// A member without a valid identity is none of the nodes.
		node := ""
		if id, err := monitor.IdentityOf(m.Tags); err == nil {
			node = id.Name()
		}
		answers = append(answers, monitor.KeyAnswer{Member: m.Name, Node: node, Problem: problem})
	}

	return answers
}

// serf's encoding of the queries about keys: the type of the message, and MessagePack.
const (
	messageKeyRequest  = 7
	messageKeyResponse = 8
)

func encodeKeyRequest(key []byte) ([]byte, error) {
	b := bytes.NewBuffer([]byte{messageKeyRequest})
	err := codec.NewEncoder(b, &codec.MsgpackHandle{}).Encode(struct{ Key []byte }{key})
	return b.Bytes(), err
}

// keyProblem returns why a member has not carried an operation out, or "". The payload
// is untrusted.
func keyProblem(payload []byte) string {
	var response struct {
		Result  bool
		Message string
	}

	if len(payload) == 0 || payload[0] != messageKeyResponse {
		return "its answer is malformed"
	}

	if err := codec.NewDecoderBytes(payload[1:], &codec.MsgpackHandle{}).Decode(&response); err != nil {
		return "its answer is malformed"
	}

	if response.Result {
		return ""
	}

	return refusalText(response.Message)
}

// refusalText returns the message of a member in one bounded line of visible text.
func refusalText(message string) string {
	visible := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, inventory.Shorten(message, 200))

	return "it refuses: " + visible
}

// rpcKeys is the answer of an existing agent to an operation on keys. It counts the
// members that confirmed, and names only those that did not.
type rpcKeys struct {
	Messages map[string]string
	Keys     map[string]int
	NumNodes int
	NumErr   int
	NumResp  int
}

// askRPC makes one request on a connection of its own: the members have longer to
// answer than a watch waits.
func (r *Remote) askRPC(ctx context.Context, command string, body any) (answer rpcKeys, err error) {
	key, _, err := readAuth(r.o.AuthFile)
	if err != nil {
		return answer, err
	}

	dial, cancel := context.WithTimeout(ctx, r.t.Dial)
	c, err := dialRPC(dial, r.o.Addr)
	cancel()

	if err != nil {
		return answer, fmt.Errorf("the serf agent at %s: %w", r.o.Addr, err)
	}

	c.details = true

	var reading sync.WaitGroup

	reading.Go(func() { c.read(func(rpcEvent) {}) })
	defer reading.Wait()
	defer c.close()

	if err := c.login(ctx, key); err != nil {
		return answer, fmt.Errorf("the serf agent at %s: %w", r.o.Addr, err)
	}

	err = c.call(ctx, command, body, &answer)

	// A member that refuses makes an error of the whole, whose details are in the body.
	if err != nil && answer.NumNodes == 0 {
		return answer, fmt.Errorf("the serf agent at %s: %w", r.o.Addr, err)
	}

	return answer, nil
}

// Keys returns the gossip keys that the members of the agent have, the most frequent
// first.
func (r *Remote) Keys(ctx context.Context) ([]string, error) {
	answer, err := r.askRPC(ctx, "list-keys", nil)
	if err != nil {
		return nil, err
	}
	keys := slices.Sorted(maps.Keys(answer.Keys))
	slices.SortStableFunc(keys, func(a, b string) int { return answer.Keys[b] - answer.Keys[a] })

	if _, err := ParseKeys(strings.Join(keys, "\n")); err != nil {
		return nil, fmt.Errorf("the serf agent at %s lists its keys: %w", r.o.Addr, err)
	}

	return keys, nil
}

// AskKeys carries an operation out on every live member. It blocks until all have
// answered, or for some seconds. Unless all have confirmed, those that are not named
// count as silent.
func (r *Remote) AskKeys(ctx context.Context, op monitor.KeyOp, key string) ([]monitor.KeyAnswer, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}

	r.mu.Lock()
	c := r.conn
	r.mu.Unlock()

	if c == nil {
		return nil, r.Err()
	}

	answer, err := r.askRPC(ctx, string(op), map[string]string{"Key": key})
	if err != nil {
		return nil, err
	}

	list, cancel := context.WithTimeout(ctx, r.t.Answer)
	defer cancel()

	ms, err := c.members(list)
	if err != nil {
		return nil, err
	}
	members := liveMembers(ms)

	problems := map[string]string{}
	for member, message := range answer.Messages {
		problems[member] = refusalText(message)
	}

	confirmed := answer.NumErr == 0 && answer.NumResp >= answer.NumNodes && answer.NumNodes >= len(members)
	if confirmed {
		for _, m := range members {
			problems[m.Name] = ""
		}
	}

	silence := fmt.Sprintf("%d of %d members have confirmed, and the serf agent does not name them",
		answer.NumResp-answer.NumErr, answer.NumNodes)

	return answersOf(members, problems, silence), nil
}
