// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/client"
)

// issuer is an OpenID Connect issuer with one key.
type issuer struct {
	*httptest.Server

	key *ecdsa.PrivateKey
}

func startIssuer(t *testing.T) issuer {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	errtest.None(t, err)
	i := issuer{key: key}

	b64 := base64.RawURLEncoding.EncodeToString
	x, y := key.X.FillBytes(make([]byte, 32)), key.Y.FillBytes(make([]byte, 32))

	i.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")

		if r.URL.Path == "/keys" {
			fmt.Fprintf(
				w,
				`{"keys":[{"kty":"EC","crv":"P-256","kid":"1","alg":"ES256","x":%q,"y":%q}]}`,
				b64(x),
				b64(y),
			)

			return
		}

		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, i.URL, i.URL+"/keys")
	}))
	t.Cleanup(i.Close)

	return i
}

// caFile returns a file with the CA of the issuer.
func (i issuer) caFile(t *testing.T) string {
	t.Helper()

	path := filepath.Join(t.TempDir(), "ca.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw}

	errtest.None(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))

	return path
}

// token returns a token for a person in the groups.
func (i issuer) token(t *testing.T, audience string, groups ...string) string {
	t.Helper()

	b64 := base64.RawURLEncoding.EncodeToString

	claims, err := json.Marshal(map[string]any{
		"iss": i.URL, "aud": audience, "sub": "1", "email": "ann@example.com", "email_verified": true,
		"groups": groups,
		"exp":    time.Now().Add(time.Hour).Unix(),
	})
	errtest.None(t, err)
	text := b64([]byte(`{"alg":"ES256","kid":"1"}`)) + "." + b64(claims)
	digest := sha256.Sum256([]byte(text))

	r, s, err := ecdsa.Sign(rand.Reader, i.key, digest[:])
	errtest.None(t, err)
	return text + "." + b64(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

// TestOIDC expects the rules of the configuration to give the tokens of an issuer their
// role and scope, and the daemon to start and serve without the issuer.
func TestOIDC(t *testing.T) {
	t.Parallel()

	i := startIssuer(t)
	s := begin(t, fmt.Sprintf("oidc: {issuer: %q, audience: clusterm, ca_file: %q, name_claim: email, rules: ["+
		"{value: sre, role: admin}, {value: workers, role: operator, groups: [service-worker]}]}", i.URL, i.caFile(t)))
	s.report("a")

	with := func(token string) *client.Client {
		c, err := client.New(client.Options{Socket: s.dir + "/s", Token: token})
		s.must(err)
		return c
	}

	id, err := with(i.token(t, "clusterm", "staff", "sre")).WhoAmI(s.ctx())
	s.must(err)

	if id.Principal != "oidc:ann@example.com" || id.Role != "admin" || id.Credential != "oidc" || id.Issuer != i.URL {
		t.Errorf("%+v", id)
	}

	worker := with(i.token(t, "clusterm", "workers"))
	_, err = worker.Node(s.ctx(), "a-1")
	checkError(t, err, inventory.KindNotFound)
	_, err = worker.Config(s.ctx())
	checkError(t, err, inventory.KindForbidden, "oidc:ann@example.com has the scope group service-worker")

	_, err = with(i.token(t, "clusterm", "staff")).WhoAmI(s.ctx())
	checkError(t, err, inventory.KindForbidden, "has no role", "oidc.rules")
	_, err = with(i.token(t, "other", "sre")).WhoAmI(s.ctx())
	checkError(t, err, inventory.KindUnauthenticated, "audience")

	// The issuer is down, and the manager forgets its keys by a restart.
	known := i.token(t, "clusterm", "sre")
	i.Close()

	_, err = with(known).WhoAmI(s.ctx())
	s.must(err)
	s.restart()

	impatient, err := client.New(client.Options{Socket: s.dir + "/s", Token: known, Patience: -1})
	s.must(err)
	_, err = impatient.WhoAmI(s.ctx())
	checkError(t, err, inventory.KindUnavailable, "cannot be asked for its keys", "connection refused")

	_, err = s.WhoAmI(s.ctx())
	s.must(err)
}
