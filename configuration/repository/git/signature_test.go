// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bytes"
	"crypto/rand"
	"crypto/sha512"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/go-git/go-git/v5/plumbing/object"
	"golang.org/x/crypto/ssh"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

// signSSH signs a commit as git does with gpg.format=ssh.
func signSSH(t *testing.T, key ssh.Signer, namespace string) func(*object.Commit) {
	t.Helper()

	return func(c *object.Commit) {
		content, err := withoutSignature(c)
		errtest.None(t, err)

		sum := sha512.Sum512(content)
		data := ssh.Marshal(signedData{namespace, "", "sha512", sum[:]})

		signature, err := key.Sign(rand.Reader, append([]byte(sshMagic), data...))
		errtest.None(t, err)

		blob := ssh.Marshal(sshSignature{1, key.PublicKey().Marshal(), namespace, "", "sha512", ssh.Marshal(signature)})
		c.PGPSignature = string(pem.EncodeToMemory(
			&pem.Block{Type: "SSH SIGNATURE", Bytes: append([]byte(sshMagic), blob...)},
		))
	}
}

// openPGPKey returns a key, and its armored public part.
func openPGPKey(t *testing.T) (*openpgp.Entity, string) {
	t.Helper()

	entity, err := openpgp.NewEntity("A. Uthor", "", "a@example.com", nil)
	errtest.None(t, err)

	var b bytes.Buffer

	w, err := armor.Encode(&b, openpgp.PublicKeyType, nil)
	errtest.None(t, err)
	errtest.None(t, entity.Serialize(w))
	errtest.None(t, w.Close())

	return entity, b.String()
}

func signOpenPGP(t *testing.T, key *openpgp.Entity) func(*object.Commit) {
	t.Helper()

	return func(c *object.Commit) {
		content, err := withoutSignature(c)
		errtest.None(t, err)

		var b bytes.Buffer
		errtest.None(t, openpgp.ArmoredDetachSign(&b, key, bytes.NewReader(content), nil))
		c.PGPSignature = b.String()
	}
}

func TestSignatures(t *testing.T) {
	t.Parallel()

	sshSigner, _ := sshKey(t)
	otherSSH, _ := sshKey(t)
	pgp, armored := openPGPKey(t)
	otherPGP, _ := openPGPKey(t)
	keys := []string{
		write(t, "# the team\n"+string(ssh.MarshalAuthorizedKey(sshSigner.PublicKey()))), write(t, armored),
	}
	altered := func(sign func(*object.Commit)) func(*object.Commit) {
		return func(c *object.Commit) {
			sign(c)
			c.Message += "altered"
		}
	}
	damage := func(c *object.Commit) { c.PGPSignature = sshBlock + "\nx\n-----END SSH SIGNATURE-----\n" }

	for _, c := range []struct {
		name string
		sign func(*object.Commit)
		err  string
	}{
		{"ssh", signSSH(t, sshSigner, "git"), ""},
		{"OpenPGP", signOpenPGP(t, pgp), ""},
		{"none", func(*object.Commit) {}, "has no signature"},
		{"other ssh", signSSH(t, otherSSH, "git"), "it is signed by SHA256:"},
		{"for another use", signSSH(t, sshSigner, "file"), `for "file", not for git`},
		{"altered ssh", altered(signSSH(t, sshSigner, "git")), "not signed by a key"},
		{"other OpenPGP", signOpenPGP(t, otherPGP), "not signed by a key"},
		{"altered OpenPGP", altered(signOpenPGP(t, pgp)), "not signed by a key"},
		{"damaged", damage, "the signature is damaged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRepo(t)
			commit := r.push("main", playbooks(), c.sign)

			m := r.mirror()
			m.Options.SignedBy = keys

			// The commit is known, so that its refusal can be reported.
			got, err := m.Fetch(t.Context())
			errtest.None(t, err)

			if got.Hash != commit {
				t.Errorf("got %+v", got)
			}

			_, err = files(t, m, commit)
			expect(t, err, c.err)
		})
	}

	for name, file := range map[string]string{
		"missing": "/nonexistent", "empty": write(t, "\n"), "no key": write(t, "hello\n"),
		"private": write(t, "-----BEGIN OPENSSH PRIVATE KEY-----\n"),
	} {
		expect(t, CheckKeys(append([]string{file}, keys...)), "repository.signed_by: ")

		r := newRepo(t)
		commit := r.push("main", playbooks(), signSSH(t, sshSigner, "git"))

		m := r.mirror()
		m.Options.SignedBy = []string{file}

		_, err := m.Fetch(t.Context())
		errtest.None(t, err)

		// It is no verdict about the commit.
		if _, err := files(t, m, commit); inventory.KindOf(err) != inventory.KindUnavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestKeysDigest: the digest is that of the keys, not of their files.
func TestKeysDigest(t *testing.T) {
	t.Parallel()

	a, _ := sshKey(t)
	b, _ := sshKey(t)
	line := func(key ssh.Signer, comment string) string {
		return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey()))) + " " + comment + "\n"
	}
	digest := func(texts ...string) string {
		var files []string
		for _, text := range texts {
			files = append(files, write(t, text))
		}

		d, err := KeysDigest(files)
		errtest.None(t, err)

		return d
	}

	both := digest(line(a, "a"), line(b, "b"))
	if again := digest("# the team\n" + line(b, "") + line(a, "c") + line(a, "")); again != both {
		t.Errorf("the same keys have the digests %s and %s", both, again)
	}

	for name, other := range map[string]string{"one key": digest(line(a, "")), "no key": digest()} {
		if other == both {
			t.Errorf("%s has the digest of two", name)
		}
	}

	if digest() != "" {
		t.Error("no files have a digest")
	}

	if d, err := KeysDigest([]string{"/nonexistent"}); err == nil {
		t.Errorf("a missing file has the digest %q", d)
	}
}
