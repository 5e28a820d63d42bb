// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// relayFolder is the environment variable that makes this program a relay of mail, with the
// folder of its files.
const relayFolder = "SYSTEMTEST_RELAY"

// relayIP and relayPort are where the relay listens: the lab's side of its network.
const (
	relayIP   = "10.77.0.1"
	relayPort = "2525"
)

// The files of a relay.
const (
	relayCert  = "cert.pem"
	relayKey   = "key.pem"
	relayReady = "ready"      // it listens
	relayMails = "mails.json" // the mails that it accepted, one in a line
)

// relayed is a mail that the relay accepted.
type relayed struct {
	To   []string `json:"to"`
	TLS  bool     `json:"tls"`
	Data string   `json:"data"`
}

// relay is an SMTP server that offers STARTTLS. It refuses every recipient nobody@… for good,
// and each busy@… once.
type relay struct {
	dir    string
	config *tls.Config

	mu   sync.Mutex
	busy map[string]bool // the recipients that were told so
}

// serveRelay serves until the process is killed, and returns the exit status.
func serveRelay(dir string) int {
	err := func() error {
		cert, err := tls.LoadX509KeyPair(filepath.Join(dir, relayCert), filepath.Join(dir, relayKey))
		if err != nil {
			return err
		}

		l, err := net.Listen("tcp", net.JoinHostPort(relayIP, relayPort))
		if err != nil {
			return err
		}

		if err := os.WriteFile(filepath.Join(dir, relayReady), nil, 0o600); err != nil {
			return err
		}

		r := &relay{dir: dir, busy: map[string]bool{}, config: &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert},
		}}

		for {
			conn, err := l.Accept()
			if err != nil {
				return err
			}
			go r.converse(conn)
		}
	}()

	fmt.Fprintln(os.Stderr, "relay:", err)

	return 1
}

// converse leads the dialogue of one connection.
func (r *relay) converse(conn net.Conn) {
	defer func() { _ = conn.Close() }()

	_ = conn.SetDeadline(time.Now().Add(time.Minute))

	// An answer that does not arrive ends the dialogue with the next line.
	text, mail := textproto.NewConn(conn), relayed{}
	say := func(format string, args ...any) { _ = text.PrintfLine(format, args...) }

	say("220 relay ESMTP")

	for {
		line, err := text.ReadLine()
		if err != nil {
			return
		}
		verb, argument, _ := strings.Cut(line, " ")

		switch strings.ToUpper(verb) {
		case "EHLO":
			if !mail.TLS {
				say("250-relay")
				say("250 STARTTLS")
			} else {
				say("250 relay")
			}
		case "STARTTLS":
			say("220 go on")
			text, mail.TLS = textproto.NewConn(tls.Server(conn, r.config)), true
		case "MAIL":
			mail = relayed{TLS: mail.TLS}
			say("250 ok")
		case "RCPT":
			to := strings.Trim(strings.TrimPrefix(argument, "TO:"), "<>")
			answer := r.recipient(to)

			if strings.HasPrefix(answer, "250") {
				mail.To = append(mail.To, to)
			}

			say("%s", answer)
		case "DATA":
			say("354 go on")

			data, err := text.ReadDotBytes()
			if err != nil {
				return
			}
			mail.Data = string(data)
			say("%s", r.keep(mail))
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

// recipient returns the answer to a recipient.
func (r *relay) recipient(to string) string {
	r.mu.Lock()
	defer r.mu.Unlock()

	switch name, _, _ := strings.Cut(to, "@"); {
	case name == "nobody":
		return "550 no such user"
	case name == "busy" && !r.busy[to]:
		r.busy[to] = true
		return "451 try again later"
	}

	return "250 ok"
}

// keep stores a mail, and returns the answer.
func (r *relay) keep(m relayed) string {
	r.mu.Lock()
	defer r.mu.Unlock()

	line, err := json.Marshal(m)
	if err != nil {
		return "554 " + err.Error()
	}

	f, err := os.OpenFile(filepath.Join(r.dir, relayMails), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return "554 " + err.Error()
	}
	_, err = f.Write(append(line, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		return "554 " + err.Error()
	}

	return "250 queued"
}

// startRelay starts a relay in the lab's network with the files of the folder. It ends with
// the test.
func (w *world) startRelay(dir string) {
	w.t.Helper()

	program, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	p := w.startLab("run", "env", relayFolder+"="+dir, program)

	await(w.t, time.Minute, "the relay listens", func() (bool, string) {
		select {
		case <-p.done:
			w.t.Fatalf("the relay has ended: %s", p.stderr.String())
		default:
		}

		_, err := os.Stat(filepath.Join(dir, relayReady))

		return err == nil, fmt.Sprint(err)
	})
}

// mails returns the mails that the relay accepted for a recipient, the oldest first.
func (w *world) mails(dir, to string) []relayed {
	w.t.Helper()

	text, err := os.ReadFile(filepath.Join(dir, relayMails))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}

	var list []relayed

	for line := range strings.Lines(string(text)) {
		var m relayed
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			w.t.Fatalf("the relay kept %q: %v", line, err)
		}

		if len(m.To) == 1 && m.To[0] == to {
			list = append(list, m)
		}
	}

	return list
}

// writeRelayFiles makes key and certificate of a relay in the folder, and returns the certificate.
func writeRelayFiles(t *testing.T, dir string) string {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		IPAddresses: []net.IP{net.ParseIP(relayIP)},
	}

	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}

	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}

	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})

	for name, content := range map[string][]byte{
		relayCert: text, relayKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return string(text)
}
