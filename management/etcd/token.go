// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
)

var (
	_ access.TokenStore  = (*Store)(nil)
	_ access.TokenWriter = (*Store)(nil)
)

// tokenRecord is a bearer token without its secret.
type tokenRecord struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Role      string    `json:"role"`
	Groups    []string  `json:"scope_groups,omitempty"`
	Selector  string    `json:"scope_selector,omitempty"`
	Hash      string    `json:"hash"`
	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by,omitempty"`
	Expires   time.Time `json:"expires"`
}

func newTokenRecord(t access.Token) tokenRecord {
	return tokenRecord{
		ID: t.ID, Name: t.Name, Role: string(t.Role), Hash: t.Hash,
		Groups: t.Scope.Groups, Selector: t.Scope.Selector,
		Created: t.Created, CreatedBy: t.CreatedBy, Expires: t.Expires,
	}
}

func (r tokenRecord) token() access.Token {
	return access.Token{
		ID: r.ID, Name: r.Name, Role: access.Role(r.Role), Hash: r.Hash,
		Scope:   access.Scope{Groups: r.Groups, Selector: r.Selector},
		Created: r.Created, CreatedBy: r.CreatedBy, Expires: r.Expires,
	}
}

// tokenUseRecord is the last use of a token.
type tokenUseRecord struct {
	Time time.Time `json:"time"`
}

func (r tokenUseRecord) time() time.Time { return r.Time }

func (s *Store) tokenKey(id string) string    { return s.key("/v/tokens/%s", id) }
func (s *Store) tokenUseKey(id string) string { return s.key("/v/token-uses/%s", id) }

// Tokens returns the tokens of the newest view by id, without their last use.
func (s *Store) Tokens() map[string]access.Token {
	s.view.mu.Lock()
	defer s.view.mu.Unlock()

	return s.view.tokens.share()
}

// TokenUses returns the times of last use by id of the token.
func (s *Store) TokenUses() map[string]time.Time {
	s.view.mu.Lock()
	defer s.view.mu.Unlock()

	return s.view.tokenUses.share()
}

// AddToken stores a new token. It is KindConflict if the id exists.
func (s *Store) AddToken(ctx context.Context, t access.Token) (int64, error) {
	key := s.tokenKey(t.ID)

	write, err := put(key, newTokenRecord(t))
	if err != nil {
		return 0, err
	}

	return s.commit(ctx, etcd.Ops{If: []clientv3.Cmp{atRevision(key, 0)}, Then: []clientv3.Op{write}})
}

// RemoveToken removes a token and its last use. A full store accepts it as well.
func (s *Store) RemoveToken(ctx context.Context, id string) (int64, error) {
	err := s.delete(ctx, clientv3.OpDelete(s.tokenUseKey(id)), clientv3.OpDelete(s.tokenKey(id)))
	return s.View().Revision, err
}

// NoteTokenUse stores the time of the last use of a token that exists.
func (s *Store) NoteTokenUse(ctx context.Context, id string, at time.Time) error {
	use, err := put(s.tokenUseKey(id), tokenUseRecord{at})
	if err != nil {
		return err
	}

	_, err = s.commit(ctx, etcd.Ops{If: []clientv3.Cmp{exists(s.tokenKey(id))}, Then: []clientv3.Op{use}})

	return err
}

// exists is the condition that a key exists.
func exists(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), ">", 0) }
