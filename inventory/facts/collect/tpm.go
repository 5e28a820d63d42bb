// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
	"github.com/google/go-tpm/tpm2/transport/linuxtpm"
)

// tpmTimeout bounds the questions to the TPM. Slow ones need many seconds to make an RSA key.
const tpmTimeout = 20 * time.Second

// tpm asks the TPM 2.0 of the machine for its endorsement key. The device of the kernel's resource manager serves
// several programs at a time, and forgets what each has loaded.
func (c *collector) tpm(ctx context.Context) error {
	t, err := linuxtpm.Open(c.path("dev/tpmrm0"))
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, tpmTimeout)
	defer cancel()

	c.facts.System.TPM, err = within(ctx, func() (string, error) {
		defer t.Close()

		return endorsementKey(t)
	})

	return err
}

// within returns what ask returns, or an error once the context has ended: the driver of a TPM cannot be interrupted.
// The call then goes on until the program ends.
func within(ctx context.Context, ask func() (string, error)) (string, error) {
	type answer struct {
		value string
		err   error
	}

	answers := make(chan answer, 1)

	go func() {
		a := answer{err: errors.New("it gives wrong answers")}

		// A panic would end the program.
		defer func() {
			_ = recover()
			answers <- a
		}()

		a.value, a.err = ask()
	}()

	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return "", errors.New("it gives no answer in time")
	}
}

// endorsementKey returns the SHA-256 of the public RSA endorsement key (SubjectPublicKeyInfo) of a TPM, hexadecimal.
// The key is in its certificate, where the maker has left one; else the TPM makes the key again, the same each time.
func endorsementKey(t transport.TPM) (string, error) {
	key, err := certifiedKey(t)
	if err != nil {
		key, err = createdKey(t)
	}
	if err != nil {
		return "", err
	}

	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", err
	}

	sum := sha256.Sum256(der)

	return fmt.Sprintf("%x", sum), nil
}

// What TCG's EK Credential Profile says of the certificate of the RSA key.
const (
	certificateIndex = 0x01c00002
	maxCertificate   = 8 << 10
	maxRead          = 512 // bytes at a time, which every TPM can
)

// certifiedKey reads the key from the certificate in the TPM.
func certifiedKey(t transport.TPM) (crypto.PublicKey, error) {
	index, err := tpm2.NVReadPublic{NVIndex: tpm2.TPMHandle(certificateIndex)}.Execute(t)
	if err != nil {
		return nil, err
	}

	public, err := index.NVPublic.Contents()
	if err != nil {
		return nil, err
	}

	var der []byte

	for size := min(int(public.DataSize), maxCertificate); len(der) < size; {
		handle := tpm2.AuthHandle{Handle: public.NVIndex, Name: index.NVName, Auth: tpm2.PasswordAuth(nil)}

		part, err := tpm2.NVRead{
			AuthHandle: handle, NVIndex: tpm2.NamedHandle{Handle: public.NVIndex, Name: index.NVName},
			Size:   uint16(min(size-len(der), maxRead)), //nolint:gosec // it is positive, and at most maxRead
			Offset: uint16(len(der)),                    //nolint:gosec // it is below maxCertificate
		}.Execute(t)
		if err != nil {
			return nil, err
		}

		if len(part.Data.Buffer) == 0 {
			return nil, errors.New("the certificate is shorter than its index")
		}

		der = append(der, part.Data.Buffer...)
	}

	// Makers fill the index up behind the certificate.
	var certificate asn1.RawValue
	if _, err := asn1.Unmarshal(der, &certificate); err != nil {
		return nil, err
	}

	parsed, err := x509.ParseCertificate(certificate.FullBytes)
	if err != nil {
		return nil, err
	}

	// Some certificates name the algorithm in a way that Go does not know.
	key, ok := parsed.PublicKey.(*rsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("the certificate is of a key of the kind %s", parsed.PublicKeyAlgorithm)
	}

	return key, nil
}

// createdKey lets the TPM make the key from its seed, by the default template of TCG's EK Credential Profile.
func createdKey(t transport.TPM) (crypto.PublicKey, error) {
	made, err := tpm2.CreatePrimary{
		PrimaryHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHEndorsement, Auth: tpm2.PasswordAuth(nil)},
		InPublic:      tpm2.New2B(tpm2.RSAEKTemplate),
	}.Execute(t)
	if err != nil {
		return nil, err
	}

	defer func() { _, _ = tpm2.FlushContext{FlushHandle: made.ObjectHandle}.Execute(t) }()

	public, err := made.OutPublic.Contents()
	if err != nil {
		return nil, err
	}

	return tpm2.Pub(*public)
}
