// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"golang.org/x/crypto/ssh"

	"github.com/contiv/cluster/inventory"
)

// maxKeys bounds a file of keys, in bytes.
const maxKeys = 1 << 20

// verify refuses a commit that none of the keys of Options.SignedBy has signed. Without
// keys it accepts every commit.
func (m *Mirror) verify(c *object.Commit) error {
	if len(m.Options.SignedBy) == 0 {
		return nil
	}

	// Keys that cannot be read must not pass for keys that did not sign.
	keys, err := readKeys(m.Options.SignedBy)
	if err != nil {
		return inventory.Errorf(inventory.KindUnavailable, "the signature of commit %s cannot be checked: %s",
			short(c.Hash), errorMessage(err)).Do("correct the files of repository.signed_by")
	}

	unsigned := inventory.Errorf(inventory.KindRefused, "commit %s is not signed by a key of repository.signed_by",
		short(c.Hash))

	switch {
	case c.PGPSignature == "":
		unsigned.Message = fmt.Sprintf("commit %s has no signature", short(c.Hash))
	case strings.Contains(c.PGPSignature, sshBlock):
		if err = keys.verifySSH(c); err == nil {
			return nil
		}
	default:
		if err = keys.verifyOpenPGP(c); err == nil {
			return nil
		}
	}

	if err != nil {
		unsigned.Message += ": " + plain(err.Error(), 200)
	}

	return unsigned.Do("push a commit that is signed (git commit -S), or add the key of its author to the list")
}

// keyring has the keys that may sign.
type keyring struct {
	openPGP []string // armored
	ssh     []ssh.PublicKey
}

// CheckKeys refuses files without public keys. Others than root must not be able to
// change them, which the caller checks.
func CheckKeys(files []string) error {
	_, err := readKeys(files)
	return err
}

// KeysDigest identifies the keys in files, regardless of order and comments. It is empty
// without files. It reads the files.
func KeysDigest(files []string) (string, error) {
	if len(files) == 0 {
		return "", nil
	}

	keys, err := readKeys(files)
	if err != nil {
		return "", err
	}
	sums := make([]string, 0, len(keys.openPGP)+len(keys.ssh))

	for _, armored := range keys.openPGP {
		sum := sha256.Sum256([]byte(strings.TrimSpace(armored)))
		sums = append(sums, hex.EncodeToString(sum[:]))
	}

	for _, key := range keys.ssh {
		sums = append(sums, ssh.FingerprintSHA256(key))
	}

	slices.Sort(sums)
	sum := sha256.Sum256([]byte(strings.Join(slices.Compact(sums), "\n")))

	return hex.EncodeToString(sum[:8]), nil
}

func readKeys(files []string) (keyring, error) {
	var k keyring

	for _, path := range files {
		text, err := readBounded(path)
		if err != nil {
			return k, about("signed_by", err)
		}

		if bytes.Contains(text, []byte("-----BEGIN PGP PUBLIC KEY BLOCK-----")) {
			k.openPGP = append(k.openPGP, string(text))
			continue
		}

		for rest := text; len(bytes.TrimSpace(rest)) > 0; {
			key, _, options, after, err := ssh.ParseAuthorizedKey(rest)
			if err != nil || len(options) > 0 {
				return k, about("signed_by", fmt.Errorf("%s has neither an armored OpenPGP key nor lines with ssh "+
					"public keys", path))
			}

			k.ssh, rest = append(k.ssh, key), after
		}
	}

	return k, nil
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	text, err := io.ReadAll(io.LimitReader(f, maxKeys+1))

	switch {
	case err != nil:
		return nil, err
	case len(text) > maxKeys:
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxKeys)
	case len(bytes.TrimSpace(text)) == 0:
		return nil, fmt.Errorf("%s has no key", path)
	}

	return text, nil
}

func (k keyring) verifyOpenPGP(c *object.Commit) error {
	err := errors.New("the list has no OpenPGP key")

	for _, armored := range k.openPGP {
		if _, err = c.Verify(armored); err == nil {
			return nil
		}
	}

	return err
}

// The form of signatures by ssh-keygen -Y sign, see PROTOCOL.sshsig of OpenSSH.
const (
	sshBlock     = "-----BEGIN SSH SIGNATURE-----"
	sshMagic     = "SSHSIG"
	sshNamespace = "git"
)

// sshSignature is the blob of a signature, without the magic.
type sshSignature struct {
	Version       uint32
	PublicKey     []byte
	Namespace     string
	Reserved      string
	HashAlgorithm string
	Signature     []byte
}

// signedData is the text under a signature, without the magic.
type signedData struct {
	Namespace     string
	Reserved      string
	HashAlgorithm string
	Hash          []byte
}

func (k keyring) verifySSH(c *object.Commit) error {
	s, err := parseSSHSignature(c.PGPSignature)
	if err != nil {
		return err
	}
	key, err := ssh.ParsePublicKey(s.PublicKey)
	if err != nil {
		return err
	}

	// A certificate is not its key.
	if !slices.ContainsFunc(k.ssh, func(own ssh.PublicKey) bool { return bytes.Equal(own.Marshal(), key.Marshal()) }) {
		return fmt.Errorf("it is signed by %s", ssh.FingerprintSHA256(key))
	}

	content, err := withoutSignature(c)
	if err != nil {
		return err
	}

	var hash []byte

	switch s.HashAlgorithm {
	case "sha256":
		sum := sha256.Sum256(content)
		hash = sum[:]
	case "sha512":
		sum := sha512.Sum512(content)
		hash = sum[:]
	default:
		return fmt.Errorf("the hash %q of the signature is unknown", s.HashAlgorithm)
	}

	var signature ssh.Signature
	if err := ssh.Unmarshal(s.Signature, &signature); err != nil {
		return err
	}

	if signature.Format == ssh.KeyAlgoRSA {
		return errors.New("the signature uses SHA-1")
	}

	data := ssh.Marshal(signedData{s.Namespace, s.Reserved, s.HashAlgorithm, hash})

	return key.Verify(append([]byte(sshMagic), data...), &signature)
}

func parseSSHSignature(text string) (sshSignature, error) {
	var s sshSignature

	block, _ := pem.Decode([]byte(strings.TrimSpace(text) + "\n"))
	if block == nil || block.Type != "SSH SIGNATURE" || !bytes.HasPrefix(block.Bytes, []byte(sshMagic)) {
		return s, errors.New("the signature is damaged")
	}
	if err := ssh.Unmarshal(block.Bytes[len(sshMagic):], &s); err != nil {
		return s, err
	}

	if s.Version != 1 || s.Namespace != sshNamespace {
		return s, fmt.Errorf("the signature is for %q, not for git", s.Namespace)
	}

	return s, nil
}

// withoutSignature returns the commit as it was signed.
func withoutSignature(c *object.Commit) ([]byte, error) {
	encoded := &plumbing.MemoryObject{}
	if err := c.EncodeWithoutSignature(encoded); err != nil {
		return nil, err
	}
	r, err := encoded.Reader()
	if err != nil {
		return nil, err
	}
	defer r.Close()

	return io.ReadAll(r)
}
