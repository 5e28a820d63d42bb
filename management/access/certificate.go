// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/record"
)

// MaxRevocations bounds the revoked certificates. Those that have expired make room.
const MaxRevocations = 10_000

// maxSerial bounds a serial number, in hexadecimal digits (RFC 5280 section 4.1.2.2).
const maxSerial = 40

// SerialPrefix begins a reference to a certificate that another CA has issued.
const SerialPrefix = "serial:"

// Certificate is a client certificate that the manager knows: one that its CA has issued,
// or one that is revoked.
type Certificate struct {
	Serial  string // in lower-case hexadecimal digits
	Name    string // the principal is "certificate:NAME"; empty: unknown
	Role    Role
	Scope   Scope
	Issued  time.Time // zero: unknown, as of another CA
	Expires time.Time // zero: unknown
	// Revoked is the time of the revocation; zero: none.
	Revoked   time.Time
	RevokedBy string
}

// Revocation is the record of a revoked certificate.
type Revocation struct {
	Serial  string    `json:"serial"`
	Name    string    `json:"name,omitempty"`   // empty: unknown
	Expires time.Time `json:"expires,omitzero"` // zero: unknown
	Time    time.Time `json:"time"`
	By      string    `json:"by,omitempty"`
}

// RevocationKind are the revocations by serial number. One that cannot be read revokes all the
// same.
var RevocationKind = record.Kind[Revocation]{
	Name:    "revocations",
	Key:     func(r *Revocation) string { return r.Serial },
	Damaged: func(serial string, _ *Revocation) *Revocation { return &Revocation{Serial: serial} },
}

// Certificates lists, revokes and checks client certificates. Its methods may be called
// concurrently.
type Certificates struct {
	store  record.Store
	audit  Auditor
	issued IssuedFunc
}

// IssuedFunc returns the certificates that the CA of the manager has issued, and the
// reasons why some of them cannot be read.
type IssuedFunc func() (all []Certificate, damaged []error, err error)

// NewCertificates returns the use cases of client certificates.
func NewCertificates(store record.Store, audit Auditor, issued IssuedFunc) *Certificates {
	return &Certificates{store: store, audit: audit, issued: issued}
}

// Check returns KindUnauthenticated for a revoked certificate. It reads the view only.
func (c *Certificates) Check(serial string) error {
	latest, _ := c.store.Latest()
	if record.Get(latest, &RevocationKind, serial) != nil {
		return errRevokedCertificate
	}
	return nil
}

var errRevokedCertificate = inventory.Errorf(inventory.KindUnauthenticated, "the client certificate is revoked").
	Do("ask an admin for a new one")

// certificateCredential returns the credential of the certificate with the serial number.
func certificateCredential(serial string) string { return "certificate:" + serial }

// Identity returns the identity behind a certificate that the handshake has verified, or
// refuses it.
func (c *Certificates) Identity(known Certificate, issuer string) (Identity, error) {
	if _, err := ParseReusable(string(known.Role)); err != nil {
		return Identity{}, inventory.Errorf(inventory.KindForbidden, "the client certificate: %w", err)
	}

	// A scope that does not hold must not become every node. Another CA has not checked it.
	err := known.Scope.CheckForm()
	if err == nil {
		err = known.Scope.CheckRole(known.Role)
	}

	if err != nil {
		return Identity{}, inventory.Errorf(inventory.KindForbidden, "the scope of the client certificate: %w", err).
			Do("issue a new one with another scope")
	}

	if err := c.Check(known.Serial); err != nil {
		return Identity{}, err
	}

	return Identity{
		Principal: "certificate:" + known.Name, Role: known.Role, Scope: known.Scope,
		Credential: certificateCredential(known.Serial), Issuer: issuer, Expires: known.Expires,
	}, nil
}

// List returns the certificates that were issued or revoked, by serial number, without
// those that cannot be read.
func (c *Certificates) List() ([]Certificate, error) {
	all, _, err := c.list()
	return all, err
}

// list returns List, and the reasons why some certificates cannot be read.
func (c *Certificates) list() (all []Certificate, damaged []error, err error) {
	all, damaged, err = c.issued()
	if err != nil {
		return nil, nil, err
	}

	latest, _ := c.store.Latest()
	known := map[string]bool{}

	for i, issued := range all {
		if r := record.Get(latest, &RevocationKind, issued.Serial); r != nil {
			all[i].Revoked, all[i].RevokedBy = r.Time, r.By
		}

		known[issued.Serial] = true
	}

	for serial, r := range record.All(latest, &RevocationKind) {
		if !known[serial] {
			all = append(all, Certificate{
				Serial: serial, Name: r.Name, Expires: r.Expires, Revoked: r.Time, RevokedBy: r.By,
			})
		}
	}

	slices.SortFunc(all, func(a, b Certificate) int { return strings.Compare(a.Serial, b.Serial) })

	return all, damaged, nil
}

// Revoke refuses from now on the certificate with a serial number, or all with a name,
// and ends their open requests. ref names one that the manager has issued, or with
// SerialPrefix any. One that is revoked already stays so. A warning names a certificate
// that cannot be read and may have the name.
func (c *Certificates) Revoke(
	ctx context.Context, caller Caller, ref string,
) (revision int64, warnings []string, err error) {
	entry := Record{Action: "certificates.revoke", Targets: []string{ref}}
	err = Audited(ctx, c.audit, caller, entry, func(ctx context.Context, entry *Record) error {
		named, damaged, err := c.find(ref)
		warnings = damagedWarnings(damaged)

		if err != nil {
			return err
		}

		entry.Targets = nil
		for _, known := range named {
			entry.Targets = append(entry.Targets, known.Serial)
		}

		// One transaction each, because a name may have many.
		for _, known := range named {
			_, at, err := record.Decide(ctx, c.store, func(tx *record.Tx) (struct{}, error) {
				return struct{}{}, revoke(tx, caller, known)
			})
			if err != nil {
				return err
			}
			revision = max(revision, at)
		}

		return nil
	})

	return revision, warnings, err
}

// damagedWarnings returns warnings about certificates that a name does not reach.
func damagedWarnings(damaged []error) (warnings []string) {
	for _, err := range damaged {
		warnings = append(warnings, "another certificate may have that name, and is not revoked: "+err.Error()+
			"; revoke it by its serial number, which is the name of the file")
	}

	return warnings
}

// find returns the certificates that a reference names. damaged are the reasons why
// others cannot be read that may have the name.
func (c *Certificates) find(ref string) (named []Certificate, damaged []error, err error) {
	serial, bySerial := strings.CutPrefix(ref, SerialPrefix)
	if bySerial {
		if serial, err = normalSerial(serial); err != nil {
			return nil, nil, err
		}
	}

	all, damaged, err := c.list()
	if err != nil && !bySerial {
		return nil, nil, err
	}
	named = slices.DeleteFunc(all, func(known Certificate) bool {
		return known.Serial != serial && (bySerial || known.Name != ref)
	})

	switch {
	case bySerial && len(named) == 0:
		return []Certificate{{Serial: serial}}, nil, nil
	case bySerial:
		return named, nil, nil
	case len(named) > 0:
		return named, damaged, nil
	}

	missing := inventory.Errorf(inventory.KindNotFound, "there is no certificate %q", ref)
	if len(damaged) > 0 {
		missing = inventory.Errorf(inventory.KindNotFound, "there is no certificate %q, or it cannot be read: %w", ref,
			errors.Join(damaged...))
	}

	return nil, nil, missing.
		Do("list the certificates: name and serial number are accepted; for one of another CA write %sHEX, as the "+
			"audit trail shows it", SerialPrefix)
}

// normalSerial returns a serial number as Certificate has it. It accepts the output of
// openssl x509 -serial.
func normalSerial(text string) (string, error) {
	serial := strings.TrimLeft(strings.ToLower(strings.ReplaceAll(text, ":", "")), "0")

	even := serial
	if len(even)%2 == 1 {
		even = "0" + even
	}

	if _, err := hex.DecodeString(even); err != nil || serial == "" || len(serial) > maxSerial {
		return "", inventory.Errorf(inventory.KindInvalid, "%q is not a serial number", text).
			Do("write 1 to %d hexadecimal digits", maxSerial)
	}

	return serial, nil
}

// revoke adds a revocation. At the limit it removes those of certificates that have expired.
func revoke(tx *record.Tx, caller Caller, known Certificate) error {
	now := time.Now().UTC().Truncate(time.Second)

	if record.Get(tx, &RevocationKind, known.Serial) != nil {
		return nil
	}

	if revoked := record.List(tx, &RevocationKind); len(revoked) >= MaxRevocations {
		removed := 0

		for _, r := range revoked {
			// One transaction has room for some.
			if !r.Expires.IsZero() && now.After(r.Expires) && removed < 100 {
				record.Remove(tx, &RevocationKind, r.Serial)
				removed++
			}
		}

		if removed == 0 {
			return inventory.Errorf(inventory.KindRefused, "%d certificates are revoked, and that is the limit",
				len(revoked)).Do("use a new CA: remove it from tls.client_ca_file, or the folder pki in data_dir")
		}
	}

	record.Put(tx, &RevocationKind, &Revocation{
		Serial: known.Serial, Name: known.Name, Expires: known.Expires, Time: now, By: caller.Principal,
	})

	return nil
}
