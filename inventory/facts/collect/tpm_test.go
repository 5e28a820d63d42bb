// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2/transport"
	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/inventory/errtest"
)

// softwareTPM starts a TPM of swtpm, made with the options. It returns what swtpm_setup printed.
func softwareTPM(t *testing.T, options ...string) (tpm transport.TPM, made string) {
	t.Helper()

	for _, program := range []string{"swtpm", "swtpm_setup"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("no software TPM; make deps installs it: ", err)
		}
	}

	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		errtest.None(t, os.WriteFile(path, []byte(text), 0o600))

		return path
	}

	// The authority for certificates keeps its keys here, and not in /var/lib.
	ca := file("ca.conf", strings.ReplaceAll(
		"statedir=DIR\nsigningkey=DIR/key.pem\nissuercert=DIR/issuer.pem\ncertserial=DIR/serial\n", "DIR", dir))
	config := file("setup.conf", "create_certs_tool=swtpm_localca\ncreate_certs_tool_config="+ca+
		"\ncreate_certs_tool_options="+file("ca.options", "")+"\nactive_pcr_banks=sha256\n")

	setup := exec.CommandContext(t.Context(), "swtpm_setup", append([]string{
		"--tpm2", "--tpmstate", dir, "--config", config,
	}, options...)...)

	out, err := setup.CombinedOutput()
	if err != nil {
		t.Fatalf("swtpm_setup: %v\n%s", err, out)
	}

	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	errtest.None(t, err)

	ours, its := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "its")
	run := exec.CommandContext(t.Context(), "swtpm", "socket", "--tpm2", "--tpmstate", "dir="+dir,
		"--flags", "not-need-init,startup-clear", "--fd", "3", "--terminate")
	run.ExtraFiles = []*os.File{its}
	errtest.None(t, run.Start())
	errtest.None(t, its.Close())

	// It ends with the connection.
	t.Cleanup(func() {
		errtest.None(t, ours.Close())
		_ = run.Wait()
	})

	return transport.FromReadWriter(socket{ours}), string(out)
}

// socket hides that it is a file: go-tpm takes each file for a device.
type socket struct{ io.ReadWriter }

// sumOf returns the SHA-256 of a public key as OpenSSL writes it.
func sumOf(t *testing.T, key any) string {
	t.Helper()

	der, err := x509.MarshalPKIXPublicKey(key)
	errtest.None(t, err)

	return fmt.Sprintf("%x", sha256.Sum256(der))
}

// printedKey returns the endorsement key that swtpm_setup printed.
func printedKey(t *testing.T, made string) string {
	t.Helper()

	found := regexp.MustCompile(`--ek ([0-9a-f]{512}) `).FindStringSubmatch(made)
	if found == nil {
		t.Fatalf("no key:\n%s", made)
	}

	n, _ := new(big.Int).SetString(found[1], 16)

	return sumOf(t, &rsa.PublicKey{N: n, E: 65537})
}

// TestEndorsementKey: a TPM with a certificate and one that lost it have the same endorsement key, which is that of its
// maker. Another TPM has another one.
func TestEndorsementKey(t *testing.T) {
	t.Parallel()

	tpm, made := softwareTPM(t, "--create-ek-cert")
	want := printedKey(t, made)

	for range 2 {
		got, err := endorsementKey(tpm)
		if err != nil || got != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}

	// Each way alone.
	for name, way := range map[string]func(transport.TPM) (crypto.PublicKey, error){
		"certificate": certifiedKey, "template": createdKey,
	} {
		key, err := way(tpm)
		if err != nil || sumOf(t, key) != want {
			t.Errorf("by the %s: %v, %v", name, key, err)
		}
	}

	// Many keys fit into no TPM: none stays.
	for range 8 {
		_, err := createdKey(tpm)
		errtest.None(t, err)
	}

	other, _ := softwareTPM(t, "--createek")

	if _, err := certifiedKey(other); err == nil {
		t.Error("a TPM without a certificate has one")
	}

	if got, err := endorsementKey(other); err != nil || len(got) != 64 || got == want {
		t.Errorf("another TPM: %s, %v", got, err)
	}
}

// garbage is a TPM that answers anything with the same bytes.
type garbage []byte

func (g garbage) Send([]byte) ([]byte, error) { return g, nil }

// TestWrongTPM: a TPM that answers anything has no endorsement key, and costs no other fact.
func TestWrongTPM(t *testing.T) {
	t.Parallel()

	ok := "\x80\x01\x00\x00\x00\x0a\x00\x00\x00\x00"

	for _, answer := range []string{
		"", "\x00", ok, ok + "\xff\xff", ok + strings.Repeat("\x00", 64), strings.Repeat("\xff", 4096),
		"\x80\x02\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x00\x10\x00",
	} {
		got, err := within(t.Context(), func() (string, error) { return endorsementKey(garbage(answer)) })
		if err == nil {
			t.Errorf("%q: %s", answer, got)
		}
	}

	if _, err := within(t.Context(), func() (string, error) { panic("surprise") }); err == nil {
		t.Error("a panic is an answer")
	}
}

// TestSilentTPM: a TPM that never answers holds up nothing.
func TestSilentTPM(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithCancel(t.Context())
	asked, end := make(chan struct{}), make(chan struct{})

	t.Cleanup(func() { close(end) })

	go func() {
		<-asked
		cancel()
	}()

	_, err := within(ctx, func() (string, error) {
		close(asked)
		<-end

		return "too late", nil
	})
	if err == nil {
		t.Error("it answers")
	}
}

// TestNoTPM: a machine without a TPM has no problem.
func TestNoTPM(t *testing.T) {
	t.Parallel()

	f := Collect(t.Context(), write(t, machine))
	if f.System.TPM != "" || strings.Contains(strings.Join(f.Problems, "\n"), "TPM") {
		t.Errorf("%q, %q", f.System.TPM, f.Problems)
	}

	f = Collect(t.Context(), write(t, map[string]string{"dev/tpmrm0": "a file"}))
	if !strings.Contains(strings.Join(f.Problems, "\n"), "the TPM: ") {
		t.Errorf("a TPM that is a file: %q", f.Problems)
	}
}
