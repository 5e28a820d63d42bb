// SPDX-License-Identifier: Apache-2.0

package access

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/record"
)

// The limits of tokens.
const (
	DefaultTokenAge = 720 * time.Hour
	MaxTokenAge     = 10 * 365 * 24 * time.Hour
	MaxTokens       = 1000
	maxTokenName    = 63
)

// noteEvery is the least time between two notes of the use of a token.
const noteEvery = time.Minute

// TokenRequest describes a new token.
type TokenRequest struct {
	Name    string // empty: the id
	Role    Role
	Scope   Scope
	Expires time.Duration // after now; 0: DefaultTokenAge
}

// Tokens creates, lists, revokes and verifies bearer tokens. Its Loops run while it is in use.
type Tokens struct {
	store  record.Store
	audit  Auditor
	groups func() inventory.Groups
	issuer Verifier      // of other tokens; nil: none
	certs  *Certificates // nil: none
	notes  *control.Loop
	ends   *control.Loop

	mu     sync.Mutex
	noted  map[string]time.Time                             // the last note by id
	used   []string                                         // ids to note
	served map[string]map[*context.CancelCauseFunc]struct{} // open requests by credential
}

// NewTokens returns the use cases of tokens. groups returns the configured groups, which
// scopes name.
func NewTokens(store record.Store, audit Auditor, groups func() inventory.Groups) *Tokens {
	t := &Tokens{
		store: store, audit: audit, groups: groups,
		noted: map[string]time.Time{}, served: map[string]map[*context.CancelCauseFunc]struct{}{},
	}
	t.notes = control.New(control.Options{Name: "use of tokens", Round: t.noteUses})
	t.ends = control.New(control.Options{Name: "revoked tokens", Changed: store.Changed, Round: t.endRevoked})

	return t
}

// Verifier verifies the tokens of an issuer outside of the manager.
type Verifier interface {
	// Verify returns the identity behind a token. It may block for some seconds.
	Verify(ctx context.Context, token string) (Identity, error)
}

// Trust accepts the tokens of an issuer beside those of the manager. Call it before the
// first request.
func (t *Tokens) Trust(issuer Verifier) { t.issuer = issuer }

// WatchCertificates ends the open requests of revoked certificates, too. Call it before
// the first request.
func (t *Tokens) WatchCertificates(c *Certificates) { t.certs = c }

// Loops returns the loops that note uses, and that end the requests of revoked tokens.
func (t *Tokens) Loops() []*control.Loop { return []*control.Loop{t.notes, t.ends} }

// Create makes a token for a caller with the identity. The token is returned here
// only. Its role has no permission that the caller lacks.
func (t *Tokens) Create(
	ctx context.Context, c Caller, by Identity, r TokenRequest,
) (made Token, token string, err error) {
	r.Expires = cmp.Or(r.Expires, DefaultTokenAge)
	now := time.Now().UTC().Truncate(time.Second)

	made.ID, token = newToken()
	made.Name, made.Role, made.Scope, made.Hash = cmp.Or(r.Name, made.ID), r.Role, r.Scope, hashOf(token)
	made.Created, made.CreatedBy, made.Expires = now, c.Principal, now.Add(r.Expires)

	entry := Record{Action: "tokens.create", Targets: []string{made.ID, r.Name, string(r.Role)}}
	if !r.Scope.All() {
		entry.Targets = append(entry.Targets, r.Scope.String())
	}

	err = Audited(ctx, t.audit, c, entry, func(ctx context.Context, _ *Record) error {
		return t.decide(ctx, func(tx *record.Tx) error {
			if err := t.check(tx, made, by, r.Expires); err != nil {
				return err
			}

			record.Put(tx, &TokenKind, &made)
			return nil
		})
	})
	if err != nil {
		return Token{}, "", err
	}

	return made, token, nil
}

// check refuses an invalid token, and one with more permissions than its maker.
func (t *Tokens) check(tx *record.Tx, made Token, by Identity, age time.Duration) error {
	if _, err := ParseRole(string(made.Role)); err != nil {
		return err
	}

	if len(made.Name) > maxTokenName || inventory.CheckLabel(made.Name) != nil {
		return inventory.Errorf(inventory.KindInvalid, "%q cannot be the name of a token", made.Name).
			Do("use letters, digits, '.', '_' and '-', at most %d bytes", maxTokenName)
	}

	if age < time.Minute || age > MaxTokenAge {
		return inventory.Errorf(inventory.KindInvalid, "a token cannot expire after %s", age).
			Do("choose a time between %s and %s", time.Minute, MaxTokenAge)
	}

	if !covers(by.Role, made.Role) || !by.Scope.All() {
		return inventory.Errorf(inventory.KindForbidden, "the role %q cannot give the role %q", by.Role, made.Role).
			Do("choose a role with fewer permissions, or ask an admin")
	}

	if err := made.Scope.CheckRole(made.Role); err != nil {
		return err
	}

	if err := made.Scope.Check(t.groups()); err != nil {
		return err
	}

	tokens := record.List(tx, &TokenKind)
	if len(tokens) >= MaxTokens {
		return inventory.Errorf(inventory.KindRefused, "there are %d tokens already", len(tokens)).
			Do("revoke those that have expired or are not in use")
	}

	for _, other := range tokens {
		if other.Name == made.Name {
			return inventory.Errorf(inventory.KindRefused, "the token %s has the name %s", other.ID, made.Name).
				Do("choose another name, or revoke that token first")
		}
	}

	return nil
}

// decide decides on the newest tokens.
func (t *Tokens) decide(ctx context.Context, decide func(*record.Tx) error) error {
	_, _, err := record.Decide(ctx, t.store, func(tx *record.Tx) (struct{}, error) { return struct{}{}, decide(tx) })
	return err
}

// Revoke removes the token with the id or the name, and returns the revision. The
// open requests of the token end.
func (t *Tokens) Revoke(ctx context.Context, c Caller, ref string) (revision int64, err error) {
	entry := Record{Action: "tokens.revoke", Targets: []string{ref}}
	err = Audited(ctx, t.audit, c, entry, func(ctx context.Context, entry *Record) error {
		_, revision, err = record.Decide(ctx, t.store, func(tx *record.Tx) (struct{}, error) {
			for id, token := range record.All(tx, &TokenKind) {
				if ref == id || ref == token.Name {
					entry.Targets = []string{id, token.Name}
					record.Remove(tx, &TokenUseKind, id)
					record.Remove(tx, &TokenKind, id)
					return struct{}{}, nil
				}
			}

			return struct{}{}, inventory.Errorf(inventory.KindNotFound, "there is no token %q", ref).
				Do("list the tokens: the id and the name are accepted")
		})

		return err
	})

	return revision, err
}

// Spend removes the token of the caller, which is for one use: its role is RoleInstance. Anything else is refused. It
// belongs to the transaction of that use.
func Spend(tx *record.Tx, by Identity) error {
	id, ok := strings.CutPrefix(by.Credential, credentialOf(""))
	if by.Role != RoleInstance || !ok || record.Get(tx, &TokenKind, id) == nil {
		return errInvalidToken
	}

	record.Remove(tx, &TokenUseKind, id)
	record.Remove(tx, &TokenKind, id)

	return nil
}

// Authenticate returns the identity behind a token, or KindUnauthenticated. It reads
// the view only, except for a token of another issuer.
func (t *Tokens) Authenticate(ctx context.Context, token string) (Identity, error) {
	// A token of the manager has no dot, and one of an issuer two.
	if t.issuer != nil && strings.Count(token, ".") == 2 {
		return t.issuer.Verify(ctx, token)
	}

	now := time.Now()

	latest, _ := t.store.Latest()

	id, err := verify(latest, token, now)
	if err != nil {
		return Identity{}, err
	}
	t.noteUse(strings.TrimPrefix(id.Credential, credentialOf("")), now)

	return id, nil
}

// noteUse queues a note of the use of a token, unless the last note is recent.
func (t *Tokens) noteUse(id string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if now.Sub(t.noted[id]) < noteEvery {
		return
	}

	t.noted[id] = now
	t.used = append(t.used, id)
	t.notes.Kick()
}

// noteUses stores the queued notes.
func (t *Tokens) noteUses(ctx context.Context) (control.Next, error) {
	t.mu.Lock()
	used := t.used
	t.used = nil
	t.mu.Unlock()

	// Without the store there is no note, and the next one follows in a minute.
	_ = t.decide(ctx, func(tx *record.Tx) error {
		for _, id := range used {
			if record.Get(tx, &TokenKind, id) != nil {
				record.PutAt(tx, &TokenUseKind, id, &TokenUse{time.Now().UTC().Truncate(time.Minute)})
			}
		}

		return nil
	})

	return control.Next{}, nil
}

// Follow returns a context that ends when the credential behind the identity expires,
// or is revoked. Without either it is ctx itself.
func (t *Tokens) Follow(ctx context.Context, id Identity) context.Context {
	if !t.revocable(id.Credential) {
		return until(ctx, id.Expires)
	}

	followed, cancel := context.WithCancelCause(ctx)

	t.mu.Lock()
	if t.served[id.Credential] == nil {
		t.served[id.Credential] = map[*context.CancelCauseFunc]struct{}{}
	}

	t.served[id.Credential][&cancel] = struct{}{}
	t.mu.Unlock()

	context.AfterFunc(followed, func() {
		t.mu.Lock()
		defer t.mu.Unlock()

		delete(t.served[id.Credential], &cancel)

		if len(t.served[id.Credential]) == 0 {
			delete(t.served, id.Credential)
		}
	})

	// It may have been revoked since it was verified.
	if err := t.revoked(id.Credential); err != nil {
		cancel(err)
		return followed
	}

	return until(followed, id.Expires)
}

// revocable reports whether a credential is a token of the manager, or a certificate.
func (t *Tokens) revocable(credential string) bool {
	return strings.HasPrefix(credential, credentialOf("")) ||
		t.certs != nil && strings.HasPrefix(credential, certificateCredential(""))
}

// revoked returns the error for a credential that was revoked, or nil.
func (t *Tokens) revoked(credential string) error {
	if serial, ok := strings.CutPrefix(credential, certificateCredential("")); ok {
		return t.certs.Check(serial)
	}

	latest, _ := t.store.Latest()
	if record.Get(latest, &TokenKind, strings.TrimPrefix(credential, credentialOf(""))) == nil {
		return errInvalidToken
	}

	return nil
}

// until returns a context that ends with its credential; the zero time: never.
func until(ctx context.Context, expires time.Time) context.Context {
	if expires.IsZero() {
		return ctx
	}

	limited, release := context.WithDeadlineCause(ctx, expires, errExpired)
	context.AfterFunc(limited, release)

	return limited
}

// endRevoked ends the open requests of credentials that are revoked.
func (t *Tokens) endRevoked(context.Context) (control.Next, error) {
	type ending struct {
		cancel context.CancelCauseFunc
		cause  error
	}

	var endings []ending

	t.mu.Lock()
	for credential, open := range t.served {
		err := t.revoked(credential)
		if err == nil {
			continue
		}

		for cancel := range open {
			endings = append(endings, ending{*cancel, err})
		}
	}

	t.mu.Unlock()

	// Without the lock, which the end of a request takes.
	for _, e := range endings {
		e.cancel(e.cause)
	}

	return control.Next{}, nil
}
